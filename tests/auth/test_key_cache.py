"""The cache of keys: asks once for all who wait, and forgets in time."""

import asyncio

import pytest

from gantline.auth import api_keys
from gantline.auth.api_key import KeyGrant, StoredApiKey
from gantline.auth.api_keys import KeyCache
from gantline.contract.errors import StoreUnavailable
from gantline.testing.clock import FakeClock


class Shelf:
    """Where keys are read from, as slowly as a test wants."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.reads: list[str] = []
        self._questions = asyncio.Semaphore(0)
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.name = "first"
        self.broken = False
        self.cache = KeyCache(self.read, clock=self.clock)

    async def read(self, key_id: str) -> StoredApiKey | None:
        self.reads.append(key_id)
        self._questions.release()
        name = self.name
        await self.may_answer.wait()
        if self.broken:
            raise StoreUnavailable("Nobody answers.")
        if key_id == "unknown":
            return None
        return StoredApiKey(grant=KeyGrant(name=name), secrets=(), created_at=self.clock.now())

    async def asked(self) -> None:
        """Wait until it has been asked once more."""
        await self._questions.acquire()

    async def name_of(self, key_id: str) -> str | None:
        stored = await self.cache.get(key_id)
        return stored.grant.name if stored else None


async def test_a_key_is_read_anew_after_some_seconds() -> None:
    shelf = Shelf()
    for _ in range(3):
        assert await shelf.name_of("a") == "first"
        shelf.clock.advance(2)
    assert shelf.reads == ["a"]
    shelf.name = "second"
    assert await shelf.name_of("a") == "second"


async def test_what_is_unknown_is_remembered_too() -> None:
    shelf = Shelf()
    assert [await shelf.name_of("unknown") for _ in range(3)] == [None] * 3
    assert shelf.reads == ["unknown"]


async def test_many_who_come_at_once_ask_once() -> None:
    shelf = Shelf()
    shelf.may_answer.clear()
    waiting = [asyncio.create_task(shelf.name_of("a")) for _ in range(50)]
    await shelf.asked()
    waiting[0].cancel()
    await asyncio.sleep(0)
    shelf.may_answer.set()
    assert await asyncio.gather(*waiting[1:]) == ["first"] * 49
    assert shelf.reads == ["a"]


async def test_a_failure_is_told_to_all_and_not_remembered() -> None:
    shelf = Shelf()
    shelf.broken = True
    answers = await asyncio.gather(*(shelf.name_of("a") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    shelf.broken = False
    assert await shelf.name_of("a") == "first"


async def test_a_failure_that_nobody_waits_for_is_no_noise() -> None:
    shelf = Shelf()
    shelf.broken = True
    shelf.may_answer.clear()
    waiting = asyncio.create_task(shelf.name_of("a"))
    await shelf.asked()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    shelf.may_answer.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert shelf.reads == ["a"]


async def test_what_was_being_read_when_it_was_forgotten_is_not_kept() -> None:
    """A key that is revoked while another request reads it must not come back by that."""
    shelf = Shelf()
    shelf.may_answer.clear()
    early = asyncio.create_task(shelf.name_of("a"))
    await shelf.asked()
    shelf.name = "revoked"
    shelf.cache.invalidate("a")
    late = asyncio.create_task(shelf.name_of("a"))
    await shelf.asked()
    shelf.may_answer.set()
    assert (await early, await late) == ("first", "revoked")
    assert await shelf.name_of("a") == "revoked"
    assert len(shelf.reads) == 2


async def test_the_age_counts_from_before_the_read() -> None:
    """A slow answer is as old as its question: the key may have been revoked meanwhile."""
    shelf = Shelf()
    shelf.may_answer.clear()
    slow = asyncio.create_task(shelf.name_of("a"))
    await shelf.asked()
    shelf.clock.advance(5)
    shelf.may_answer.set()
    await slow
    await shelf.name_of("a")
    assert len(shelf.reads) == 2


async def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "_MOST_CACHED", 3)
    shelf = Shelf()
    for key_id in ("a", "b", "c", "a", "d", "a"):
        await shelf.name_of(key_id)
    assert shelf.reads == ["a", "b", "c", "d"]  # b was used longest ago
    await shelf.name_of("b")
    assert shelf.reads[-1] == "b"


def test_a_second_event_loop_reads_for_itself() -> None:
    """`submit_sync` and a web server may share one application."""
    with asyncio.Runner() as one, asyncio.Runner() as other:
        shelf = one.run(waiting_shelf())
        shelf.may_answer = asyncio.Event()
        shelf.may_answer.set()
        assert other.run(shelf.name_of("a")) == "first"


async def waiting_shelf() -> Shelf:
    """One that is just being asked."""
    shelf = Shelf()
    shelf.may_answer.clear()
    waiting = asyncio.create_task(shelf.name_of("a"))
    await shelf.asked()
    waiting.cancel()
    return shelf
