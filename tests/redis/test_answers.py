"""What comes from the server: in pieces, all at once, wrong, or not at all."""

import asyncio

import pytest
from redis.exceptions import ConnectionError, InvalidResponse, RedisError

from gantline.stores.redis.connection import ResponseReader


def answers() -> ResponseReader:
    return ResponseReader(RedisError)


async def test_answers_come_in_order_however_they_are_cut() -> None:
    reader = answers()
    waiting = reader.expect(3)
    for piece in (b"+O", b"K\r\n:", b"7\r\n*2\r\n$1\r\n\xff\r\n", b"$-1\r\n"):
        assert not waiting.done()
        reader.data_received(piece)
    assert await waiting == [b"OK", 7, [b"\xff", None]]


async def test_an_error_of_the_server_is_an_answer() -> None:
    reader = answers()
    waiting = reader.expect(2)
    reader.data_received(b"-ERR no\r\n:1\r\n")
    refused, one = await waiting
    assert (str(refused), one) == ("ERR no", 1)
    assert not reader.is_lost


async def test_what_is_no_answer_ends_the_connection() -> None:
    reader = answers()
    waiting = reader.expect(1)
    reader.data_received(b"what?\r\n")
    with pytest.raises(InvalidResponse):
        await waiting
    assert reader.is_lost


@pytest.mark.parametrize("error", [None, OSError("reset")])
async def test_a_lost_connection_is_told_to_who_waits_and_who_comes(error: OSError | None) -> None:
    reader = answers()
    waiting = reader.expect(1)
    reader.connection_lost(error)
    with pytest.raises(ConnectionError):
        await waiting
    with pytest.raises(ConnectionError):
        reader.expect(1)


async def test_an_answer_that_nobody_waits_for_any_more_is_no_trouble() -> None:
    reader = answers()
    waiting = asyncio.ensure_future(reader.expect(1))
    waiting.cancel()
    reader.data_received(b":1\r\n")
    reader.connection_lost(None)
    assert waiting.cancelled()
