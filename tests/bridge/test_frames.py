"""What the driver is given to read: what it can, and never what it would hang up on."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame
from pamqp.header import ContentHeader

from gantline.wakeups.amqp import UNREADABLE, make_delivery_readable, make_header_readable
from tests.bridge.raw_publisher import DELIVERY_MODE, MESSAGE_ID, short

BODY_BYTES = 7


def header(flags: int, properties: bytes) -> bytes:
    content = struct.pack(">HHQH", 60, 0, BODY_BYTES, flags) + properties
    return struct.pack(">BHI", 2, 1, len(content)) + content + b"\xce"


def read(raw: bytes) -> ContentHeader:
    _, channel, told = frame.unmarshal(raw)
    assert isinstance(told, ContentHeader)
    assert (channel, told.body_size) == (1, BODY_BYTES)
    return told


def test_what_the_driver_can_read_stays_as_it_is() -> None:
    raw = header(MESSAGE_ID, short(b"m-1"))
    assert make_header_readable(raw, 1) is raw


@pytest.mark.parametrize(
    ("flags", "properties"),
    [
        (MESSAGE_ID, short(b"\xff")),
        (MESSAGE_ID, b""),
        (DELIVERY_MODE, b"\x07"),  # newer brokers let it pass
        (0xFFFF, b""),
    ],
)
def test_what_it_cannot_read_is_told_in_a_header(flags: int, properties: bytes) -> None:
    told = read(make_header_readable(header(flags, properties), 1)).properties.headers
    assert told == {UNREADABLE: bytearray(struct.pack(">H", flags) + properties)}


@given(st.integers(0, 0xFFFF), st.binary(max_size=300))
def test_whatever_comes_can_be_read(flags: int, properties: bytes) -> None:
    read(make_header_readable(header(flags, properties), 1))


@given(st.text(max_size=20), st.binary(max_size=255), st.binary(max_size=255))
def test_any_name_of_an_exchange_and_any_key_can_be_read(
    tag: str, exchange: bytes, key: bytes
) -> None:
    start = struct.pack(">I", commands.Basic.Deliver.index) + short(tag.encode())
    content = start + struct.pack(">QB", 5, 1) + short(exchange) + short(key) + b"\xce"
    told = make_delivery_readable(content)
    _, _, read = frame.unmarshal(struct.pack(">BHI", 1, 1, len(told) - 1) + told)
    assert isinstance(read, commands.Basic.Deliver)
    assert (read.consumer_tag, read.delivery_tag, read.redelivered) == (tag, 5, True)
    assert read.exchange is not None
    assert read.routing_key is not None
    assert len(read.exchange.encode()) == len(exchange)
    assert len(read.routing_key.encode()) == len(key)
    try:
        assert read.routing_key == key.decode()
    except UnicodeDecodeError:
        assert read.routing_key.isascii()
