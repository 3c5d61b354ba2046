"""What comes from the server: in pieces, all at once, wrong, or not at all."""

import asyncio
import struct
from typing import Any

import pytest
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError, InvalidResponse, RedisError

from gantline.contract.errors import InvalidInput, StoreCorrupt
from gantline.stores.redis.calls import check_moved_on, each_of
from gantline.stores.redis.connection import ResponseReader
from gantline.stores.redis.failures import reads_replies
from gantline.stores.redis.insert import read_refusal


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


async def test_an_error_that_the_driver_cannot_read_ends_the_connection() -> None:
    reader = ResponseReader(BaseParser.parse_error)
    waiting = reader.expect(1)
    reader.data_received(b"-MOVED\r\n")
    with pytest.raises(ConnectionError):
        await waiting
    assert reader.is_lost


async def test_more_answers_than_questions_end_the_connection() -> None:
    """Or the next who asks takes one of them for theirs."""
    reader = answers()
    waiting = reader.expect(1)
    reader.data_received(b":1\r\n:2\r\n")
    with pytest.raises(InvalidResponse):
        await waiting
    assert not reader.are_complete


async def test_an_answer_to_no_question_ends_the_connection() -> None:
    reader = answers()
    waiting = reader.expect(1)
    reader.data_received(b":1\r\n")
    assert await waiting == [1]
    assert reader.are_complete
    reader.data_received(b":2\r\n")
    assert not reader.are_complete


@pytest.mark.parametrize("item", [None, 0, 2, [], b"", b"X", b"Kwhat"])
def test_only_a_1_means_that_a_job_was_stored(item: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the verb makes StoreCorrupt of any
        read_refusal(item)
    assert read_refusal(1) is None


@pytest.mark.parametrize("reply", [None, 7, b"1", [], [1], [1, 1, 1]])
def test_there_is_a_result_for_each_job(reply: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # likewise
        each_of([reply], [["one", "two"]])
    assert each_of([[1, 2], [3]], [["one", "two"], ["three"]]) == [1, 2, 3]


async def test_a_reply_that_cannot_be_read_is_an_error_of_ours() -> None:
    @reads_replies
    async def verb(refused: Exception) -> None:
        raise refused

    for error in (TypeError("no"), KeyError("no"), struct.error("no"), OverflowError("no")):
        with pytest.raises(StoreCorrupt) as raised:
            await verb(error)
        assert raised.value.__cause__ is error
    with pytest.raises(InvalidInput):
        await verb(InvalidInput("no"))


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


def test_a_script_that_goes_on_where_it_began_is_not_followed() -> None:
    """As with a row of the log that names itself as the one before it."""
    with pytest.raises(ValueError):  # noqa: PT011  # likewise
        check_moved_on(False)
    check_moved_on(True)
