"""Many callers, few writes."""

import asyncio
from collections.abc import Sequence

import pytest

from gantline.manager.batcher import Batcher


class Book:
    """Answers an item with its double, and can be made to wait."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.is_writing = asyncio.Event()

    async def write(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.is_writing.set()
        await self.may_write.wait()
        if -1 in items:
            raise ValueError("an item that cannot be written")
        return [2 * item for item in items]


async def test_who_is_alone_is_written_at_once() -> None:
    book = Book()
    batcher = Batcher(book.write)
    assert [await batcher.add(item) for item in (1, 2)] == [2, 4]
    assert book.batches == [[1], [2]]


async def test_who_comes_in_the_same_turn_comes_along() -> None:
    book = Book()
    batcher = Batcher(book.write, most=3)
    assert await asyncio.gather(*map(batcher.add, range(5))) == [0, 2, 4, 6, 8]
    assert book.batches == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("ends", ["written", "cancelled", "refused"])
async def test_who_comes_while_another_is_written_is_written_next(ends: str) -> None:
    book = Book()
    batcher = Batcher(book.write)
    book.may_write.clear()
    first = asyncio.create_task(batcher.add(-1 if ends == "refused" else 1))
    await book.is_writing.wait()
    others = [asyncio.create_task(batcher.add(item)) for item in (2, 3)]
    drained = asyncio.create_task(batcher.drained())
    await asyncio.sleep(0)
    if ends == "cancelled":
        first.cancel()
    book.may_write.set()
    assert await asyncio.gather(*others) == [4, 6]
    assert book.batches[1:] == [[2, 3]]
    await drained
    if ends == "written":
        assert await first == 2
    else:
        with pytest.raises(ValueError if ends == "refused" else asyncio.CancelledError):
            await first


async def test_who_is_cancelled_before_it_is_written_harms_no_other() -> None:
    book = Book()
    batcher = Batcher(book.write)
    first, second = (asyncio.create_task(batcher.add(item)) for item in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 4
    assert await batcher.add(3) == 6


async def test_an_error_is_told_to_each_of_its_batch_and_to_nobody_else() -> None:
    book = Book()
    batcher = Batcher(book.write)
    answers = await asyncio.gather(*map(batcher.add, (1, -1)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ValueError, ValueError]
    assert await batcher.add(2) == 4
