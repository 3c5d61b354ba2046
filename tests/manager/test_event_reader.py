"""The event reader: every event in order, at least once, to one reader at a time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from gantline.consumers.event_reader import PAGE, DeclaredConsumer, EventReader, Turn
from gantline.contract.errors import StoreUnavailable
from gantline.contract.job_event import JobEvent
from gantline.contract.outcome import Success
from gantline.contract.records import RecordWrite
from gantline.contract.retention import Retention
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.contract.transition import StateGuard
from gantline.manager.cursors import (
    CURSORS,
    ConsumerCursor,
    consumers,
    delete_cursor,
    lags,
    part_name,
    read_cursor,
    read_parts,
    slowest_position,
    write_cursor,
)
from gantline.manager.manager import Ending, JobManager
from gantline.manager.pruner import Pruner
from gantline.manager.sequencer import number_events
from gantline.manager.switches import Switches
from gantline.testing.conformance.emitting import emitted
from gantline.testing.factories import lane_requests, make_new, register_sessions
from gantline.testing.faults import Call, Crash, intercepted
from tests.ear import PATIENCE_SECONDS
from tests.harness import MemoryHarness, PostgresHarness, SqliteHarness
from tests.servers.postgres import PostgresServer

LEASE = timedelta(seconds=15)
HOUR = timedelta(hours=1)


class Listener:
    """Takes every event, unless told otherwise."""

    def __init__(self, name: str = "listener") -> None:
        self.name = name
        self.pages: list[Sequence[JobEvent]] = []
        self.before: Callable[[Sequence[JobEvent]], Any] = lambda events: None

    @property
    def taken(self) -> list[int]:
        return [event.sequence for page in self.pages for event in page]

    async def consume(self, events: Sequence[JobEvent]) -> None:
        if (waiting := self.before(events)) is not None:
            await waiting
        self.pages.append(events)


class Broken(Listener):
    """Fails as often as it is told to."""

    def __init__(self, *, failures: int = 1_000_000) -> None:
        super().__init__("broken")
        self.failures = failures

    async def consume(self, events: Sequence[JobEvent]) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the receiver is down")
        await super().consume(events)


class Place:
    """A store whose clock stands still, and short words for what happens there."""

    def __init__(self, harness: Any, store: JobStore) -> None:
        self.harness, self.store, self.clock = harness, store, harness.clock

    def reader(
        self,
        listener: Listener,
        owner: str = "here",
        *,
        store: JobStore | None = None,
        **options: Any,
    ) -> EventReader:
        declared = DeclaredConsumer(consumer=listener, **options)
        return EventReader(store or self.store, declared, owner, clock=self.clock, lease=LEASE)

    async def complete(self, number: int, *, emitted: bytes | None = None) -> list[NewJob]:
        """Have so many jobs run; each leaves one row."""
        jobs = [make_new(n) for n in range(number)]
        await self.store.insert(jobs)
        manager, requests = (
            JobManager(self.store),
            lane_requests(jobs[0].job.job_type, limit=number),
        )
        await register_sessions(self.store, "worker")
        runs = await manager.claim("worker", uuid4(), requests, lease=HOUR)
        await manager.settle([Ending(run, Success(emitted=emitted)) for run in runs])
        await number_events(self.store)
        return jobs


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    harness: Any
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        harness = PostgresHarness(server)
    else:
        harness = MemoryHarness() if request.param == "memory" else SqliteHarness()
    yield Place(harness, await harness.open())
    await harness.close()


async def test_a_new_consumer_begins_at_the_end_and_misses_nothing_after(place: Place) -> None:
    await place.complete(3)
    listener = Listener()
    reader = place.reader(listener)
    await reader.begin()
    await place.complete(2)
    assert await reader.run_once() is Turn.CAUGHT_UP
    assert listener.taken == [4, 5]
    assert [event.type for event in listener.pages[0]] == ["job.completed", "job.completed"]


async def test_one_that_wants_to_begins_at_the_start(place: Place) -> None:
    await place.complete(3)
    listener = Listener()
    await place.reader(listener, from_start=True).run_once()
    assert listener.taken == [1, 2, 3]


async def test_each_consumer_has_its_own_cursor_which_outlives_its_reader(place: Place) -> None:
    first, second = Listener("first"), Listener("second")
    for one in (first, second):
        await place.reader(one).begin()
    await place.complete(2)
    await place.reader(first).run_once()
    await place.complete(1)
    again, late = place.reader(first), place.reader(second)
    await again.run_once()
    await late.run_once()
    assert (first.taken, second.taken) == ([1, 2, 3], [1, 2, 3])


async def test_pages_are_bounded_and_follow_at_once(place: Place) -> None:
    listener = Listener()
    reader = place.reader(listener, from_start=True)
    await place.complete(PAGE + 5)
    assert [await reader.run_once(), await reader.run_once()] == [Turn.MORE, Turn.CAUGHT_UP]
    assert [len(page) for page in listener.pages] == [PAGE, 5]
    assert listener.taken == list(range(1, PAGE + 6))


async def test_only_one_reads_until_it_resigns_or_its_lease_is_over(place: Place) -> None:
    here, there, third = Listener(), Listener(), Listener()
    readers = [place.reader(here, "here"), place.reader(there, "there"), place.reader(third, "3")]
    for reader in readers:
        await reader.begin()
    await place.complete(1)
    assert await readers[0].run_once() is Turn.CAUGHT_UP
    assert await readers[1].run_once() is Turn.ELSEWHERE
    await readers[0].resign()
    await place.complete(1)
    assert await readers[1].run_once() is Turn.CAUGHT_UP
    assert await readers[2].run_once() is Turn.ELSEWHERE
    place.clock.advance(2 * LEASE)
    await place.complete(1)
    assert await readers[2].run_once() is Turn.CAUGHT_UP
    assert (here.taken, there.taken, third.taken) == ([1], [2], [3])


async def test_what_fails_comes_again_with_the_same_ids_and_is_told_to_operators(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(failures=2)
    reader = place.reader(broken)
    await reader.begin()
    (new,) = await place.complete(1)
    with caplog.at_level(logging.ERROR, "gantline.consumer"):
        assert [await reader.run_once(), await reader.run_once()] == [Turn.FAILED, Turn.FAILED]
    assert [bool(record.exc_info) for record in caplog.records] == [True, False]
    (told,) = await consumers(place.store)
    assert (told.position, told.lag, told.is_failing) == (0, 1, True)
    assert told.last_error == "RuntimeError: the receiver is down"
    place.clock.advance(timedelta(seconds=1))
    assert await reader.run_once() is Turn.CAUGHT_UP
    assert [event.event_id for event in broken.pages[0]] == [f"{new.job.job_id}.3"]
    (told,) = await consumers(place.store)
    assert (told.position, told.lag, told.is_failing) == (1, 0, False)
    assert told.last_error, "what went wrong last can still be seen"


async def test_events_of_a_job_that_is_gone_are_passed_over(place: Place) -> None:
    listener = Listener()
    reader = place.reader(listener)
    await reader.begin()
    gone, *_ = await place.complete(3)
    guard = StateGuard(JobStatus.COMPLETED, gone.job.tenant_id)
    await place.store.delete([(gone.job.job_id, guard)])
    await reader.run_once()
    assert len(listener.taken) == 2
    assert await lags(place.store) == {"listener": 0}


async def test_an_id_that_changed_hands_is_not_taken_for_the_job_of_the_event(
    place: Place,
) -> None:
    listener = Listener()
    reader = place.reader(listener, from_start=True)
    (first,) = await place.complete(1)
    found = await place.store.events(after=0, limit=1)

    async def around(verb: str, call: Call) -> Any:
        return found if verb == "events" else await call()

    guard = StateGuard(JobStatus.COMPLETED, first.job.tenant_id)
    await place.store.delete([(first.job.job_id, guard)])
    await place.store.insert([make_new(1, job_id=first.job.job_id, tenant_id="other")])
    reader = place.reader(listener, store=intercepted(place.store, around), from_start=True)
    await reader.run_once()
    assert listener.taken == []


async def test_what_is_not_wanted_is_passed_over_without_a_look_at_its_job(place: Place) -> None:
    verbs: list[str] = []

    async def around(verb: str, call: Call) -> Any:
        verbs.append(verb)
        return await call()

    listener, store = Listener(), intercepted(place.store, around)
    await place.complete(3)
    reader = place.reader(
        listener, store=store, from_start=True, wants=lambda event_type, job_type: False
    )
    assert await reader.run_once() is Turn.CAUGHT_UP
    assert (listener.pages, "get" in verbs) == ([], False)
    assert await lags(place.store) == {"listener": 0}


async def test_the_cursor_moves_after_each_step_that_was_taken(place: Place) -> None:
    listener = Listener()
    await place.complete(3)

    def die_at_the_third(events: Sequence[JobEvent]) -> None:
        if events[0].sequence == 3:
            raise RuntimeError("the third")

    listener.before = die_at_the_third
    reader = place.reader(listener, from_start=True, at_once=1)
    assert await reader.run_once() is Turn.FAILED
    assert listener.taken == [1, 2]
    assert await lags(place.store) == {"listener": 1}


async def test_who_is_stopped_finishes_what_is_in_hand_and_no_more(place: Place) -> None:
    listener = Listener()
    await place.complete(3)
    reader = place.reader(listener, from_start=True, at_once=1)
    listener.before = lambda events: reader.stop()
    await reader.run_once()
    assert listener.taken == [1]
    assert await lags(place.store) == {"listener": 2}


# -- rows of several events -----------------------------------------------------------------------


async def test_a_row_gives_what_was_emitted_with_it_and_then_its_own(place: Place) -> None:
    (new,) = await place.complete(1, emitted=emitted("a", "b"))
    listener, auditor = Listener(), Listener("auditor")
    await place.reader(listener, from_start=True).run_once()
    await place.reader(auditor, from_start=True, of_audit=True).run_once()
    ids = [event.event_id for page in listener.pages for event in page]
    job_id = new.job.job_id
    assert ids == [f"{job_id}.3.1", f"{job_id}.3.2", f"{job_id}.3"]
    assert [event.event_id for page in auditor.pages for event in page] == [f"{job_id}.3.3"]
    assert await lags(place.store) == {"listener": 0, "auditor": 0}


async def test_the_cursor_moves_past_rows_and_a_failure_repeats_no_event(place: Place) -> None:
    """As long as the reader lives; another one is given the whole row."""
    await place.complete(2, emitted=emitted("a", "b"))
    listener, failures = Listener(), 3

    def fail(events: Sequence[JobEvent]) -> None:
        nonlocal failures
        if failures and events[0].event_id.endswith(".2"):
            failures -= 1
            raise RuntimeError("the second")

    listener.before = fail
    reader = place.reader(listener, from_start=True, at_once=1)
    for _ in range(3):
        assert await reader.run_once() is Turn.FAILED
        assert listener.taken == [1]
        assert await lags(place.store) == {"listener": 2}
    await reader.resign()
    another = Listener()
    await place.reader(another, "there", from_start=True).run_once()
    assert another.taken == [1, 1, 1, 2, 2, 2]


async def test_a_failure_at_the_border_of_a_step_goes_on_there(place: Place) -> None:
    await place.complete(2, emitted=emitted("a", "b"))
    listener, failures = Listener(), 2

    def fail(events: Sequence[JobEvent]) -> None:
        nonlocal failures
        if failures and len(listener.pages) == 1:
            failures -= 1
            raise RuntimeError("the second step")

    listener.before = fail
    reader = place.reader(listener, from_start=True, at_once=2)
    while await reader.run_once() is not Turn.CAUGHT_UP:
        pass
    assert listener.taken == [1, 1, 1, 2, 2, 2]
    assert len({event.event_id for page in listener.pages for event in page}) == 6


async def test_who_is_stopped_finishes_the_row_in_hand(place: Place) -> None:
    """So that after a clean stop nothing is repeated."""
    await place.complete(2, emitted=emitted("a", "b"))
    listener = Listener()
    reader = place.reader(listener, from_start=True, at_once=1)
    listener.before = lambda events: reader.stop()
    await reader.run_once()
    assert listener.taken == [1, 1, 1]
    assert await lags(place.store) == {"listener": 1}


class PuttingOff(Listener):
    """Has so many things put off, and takes one each time."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.put_off = number
        self.asked = 0
        self.error: Exception | None = None

    async def resume(self) -> bool:
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.put_off -= self.put_off > 0
        return self.put_off > 0


async def test_what_was_put_off_is_taken_after_each_page_also_an_empty_one(place: Place) -> None:
    listener = PuttingOff(3)
    reader = place.reader(listener, from_start=True, resume=listener.resume)
    await place.complete(1)
    turns = [await reader.run_once() for _ in range(4)]
    assert turns == [Turn.MORE, Turn.MORE, Turn.CAUGHT_UP, Turn.CAUGHT_UP]
    assert (listener.taken, listener.put_off, listener.asked) == ([1], 0, 4)


async def test_what_was_put_off_waits_for_a_page_that_failed(place: Place) -> None:
    """And where that fails itself, the page is not given again."""
    listener = PuttingOff(0)
    listener.before = lambda events: _raise(RuntimeError("the page"))
    reader = place.reader(listener, from_start=True, resume=listener.resume)
    await place.complete(1)
    assert (await reader.run_once(), listener.asked) == (Turn.FAILED, 0)
    listener.before, listener.error = (lambda events: None), RuntimeError("what was put off")
    assert (await reader.run_once(), listener.asked) == (Turn.FAILED, 1)
    listener.error = None
    assert (await reader.run_once(), listener.taken) == (Turn.CAUGHT_UP, [1])


async def test_what_was_put_off_holds_back_retention_and_is_counted_up_to_its_end(
    place: Place,
) -> None:
    listener = Listener()
    await place.complete(9)
    await place.reader(listener, from_start=True).run_once()
    part = ConsumerCursor(position=2, until=5, part_of="listener")
    await write_cursor(place.store, part_name("listener", "a"), part, expected=0)
    other = ConsumerCursor(position=2, part_of="")
    await write_cursor(place.store, "listener-of-another-name", other, expected=0)
    whole, found, _ = await consumers(place.store)
    assert (whole.name, whole.part_of, whole.lag, whole.unread_since) == ("listener", "", 0, None)
    assert (found.name, found.part_of, found.lag) == ("listener#a", "listener", 3)
    assert found.unread_since == place.clock.now()
    assert await slowest_position(place.store) == 2
    parts = await read_parts(place.store, "listener")
    assert {name: held.cursor for name, held in parts.items()} == {"a": part}
    version = parts["a"].version
    assert not await delete_cursor(place.store, "listener#a", expected=version + 1)
    assert await delete_cursor(place.store, "listener#a", expected=version)
    assert not await read_parts(place.store, "listener")


async def test_one_who_lost_the_lead_while_consuming_cannot_move_the_cursor(place: Place) -> None:
    slow, quick = Listener(), Listener()
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        has_begun.set()
        await may_end.wait()

    slow.before = lambda events: wait()
    first, second = place.reader(slow, "first"), place.reader(quick, "second")
    await first.begin()
    await place.complete(2)
    turn = asyncio.create_task(first.run_once())
    await has_begun.wait()
    place.clock.advance(2 * LEASE)
    quick.before = lambda events: _raise(RuntimeError("not yet"))
    assert await second.run_once() is Turn.FAILED
    may_end.set()
    assert await turn is Turn.MORE
    assert await lags(place.store) == {"listener": 2}, "it belongs to the second"
    quick.before = lambda events: None
    await second.run_once()
    assert quick.taken == [1, 2]
    assert await first.run_once() is Turn.ELSEWHERE


async def test_who_took_over_is_alone_with_the_cursor_before_it_has_moved_it(
    place: Place,
) -> None:
    begun = [asyncio.Event(), asyncio.Event()]
    may_end = [asyncio.Event(), asyncio.Event()]

    def waiting(number: int) -> Listener:
        async def wait() -> None:
            begun[number].set()
            await may_end[number].wait()

        listener = Listener()
        listener.before = lambda events: wait()
        return listener

    readers = [place.reader(waiting(0), "first"), place.reader(waiting(1), "second")]
    await readers[0].begin()
    await place.complete(2)
    first = asyncio.create_task(readers[0].run_once())
    await begun[0].wait()
    place.clock.advance(2 * LEASE)
    second = asyncio.create_task(readers[1].run_once())
    await begun[1].wait()
    may_end[0].set()
    assert await first is Turn.MORE
    assert await lags(place.store) == {"listener": 2}
    may_end[1].set()
    assert await second is Turn.CAUGHT_UP
    assert await lags(place.store) == {"listener": 0}


async def test_a_lost_answer_of_the_cursor_repeats_nothing(place: Place) -> None:
    listener, writes = Listener(), 0

    async def around(name: str, call: Call) -> Any:
        nonlocal writes
        answer = await call()
        writes += name == "write_records"
        if writes == 3 and name == "write_records":  # to begin, to take over, to move
            raise StoreUnavailable("away")
        return answer

    await place.complete(3)
    reader = place.reader(listener, store=intercepted(place.store, around), from_start=True)
    with pytest.raises(StoreUnavailable):
        await reader.run_once()
    assert await reader.run_once() is Turn.CAUGHT_UP
    assert listener.taken == [1, 2, 3]


async def test_a_lead_that_lapsed_and_was_taken_by_nobody_else_is_as_good_as_before() -> None:
    """A process that stood still for a while; its page is not given again for that."""
    harness = MemoryHarness()
    place = Place(harness, await harness.open())
    short, extended = timedelta(milliseconds=30), asyncio.Event()

    async def around(verb: str, call: Call) -> Any:
        answer = await call()
        if verb == "lead":
            extended.set()
        return answer

    async def stand_still() -> None:
        extended.clear()
        place.clock.advance(HOUR)
        await extended.wait()

    listener = Listener()
    listener.before = lambda events: stand_still()
    declared = DeclaredConsumer(consumer=listener, at_once=1, from_start=True)
    store = intercepted(place.store, around)
    reader = EventReader(store, declared, "here", clock=place.clock, lease=short)
    await place.complete(3)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await reader.run_once() is Turn.CAUGHT_UP
    assert listener.taken == [1, 2, 3]
    assert await lags(place.store) == {"listener": 0}


async def test_a_long_turn_keeps_the_lead_and_one_that_loses_it_is_stopped() -> None:
    harness = MemoryHarness()
    place = Place(harness, await harness.open())
    listener, hung = Listener(), asyncio.Event()

    async def hang() -> None:
        hung.set()
        await asyncio.Event().wait()

    listener.before = lambda events: hang()
    short = timedelta(milliseconds=30)
    declared = DeclaredConsumer(consumer=listener)
    reader = EventReader(place.store, declared, "here", clock=place.clock, lease=short)
    other = EventReader(place.store, declared, "there", clock=place.clock, lease=short)
    await reader.begin()
    await place.complete(1)
    turn = asyncio.create_task(reader.run_once())
    await hung.wait()
    for _ in range(5):
        place.clock.advance(short / 2)
        await asyncio.sleep(short.total_seconds())
        assert await other.run_once() is Turn.ELSEWHERE
    await place.store.lead("consumer:listener", "thief", lease=short)
    place.clock.advance(short * 2)
    while await place.store.lead("consumer:listener", "thief", lease=short) is None:
        place.clock.advance(short * 2)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await turn is Turn.MORE
    assert await reader.run_once() is Turn.ELSEWHERE


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "verb", ["lead", "read_records", "write_records", "events", "get", "last_event"]
)
async def test_a_store_that_is_away_costs_repeats_and_never_an_event(
    place: Place, verb: str, after: bool
) -> None:
    listener = Listener()
    fails_at = 1

    async def around(name: str, call: Call) -> Any:
        nonlocal fails_at
        if name == verb and (fails_at := fails_at - 1) == 0:
            if after:
                await call()
            raise StoreUnavailable("away")
        return await call()

    for fails_at in (1, 2, 3):  # noqa: B007  # the store fails at it
        await place.complete(2)
        reader = place.reader(
            listener, store=intercepted(place.store, around), from_start=True, at_once=1
        )
        for _ in range(5):
            try:
                await reader.run_once()
            except StoreUnavailable:
                continue
        await reader.resign()
    assert sorted(set(listener.taken)) == [1, 2, 3, 4, 5, 6]
    assert await lags(place.store) == {"listener": 0}


@pytest.mark.parametrize("at", range(1, 12))
async def test_wherever_a_process_dies_the_next_one_gives_the_rest(place: Place, at: int) -> None:
    """Right before and right after each call of the store; repeats come, and gaps never."""
    for after in (False, True):
        listener, left = Listener(f"listener-{after}"), at
        await place.reader(listener).begin()
        before = await place.store.last_event()

        async def around(name: str, call: Call, after: bool = after) -> Any:
            nonlocal left
            left -= 1
            if left != 0:
                return await call()
            if after:
                await call()
            raise Crash(name)

        await place.complete(3)
        dying = place.reader(listener, "dying", store=intercepted(place.store, around), at_once=1)
        try:
            await dying.run_once()
        except Crash:
            place.clock.advance(2 * LEASE)
        await place.reader(listener, "next").run_once()
        firsts = list(dict.fromkeys(listener.taken))
        assert firsts == sorted(firsts) == list(range(before + 1, before + 4))


async def test_what_a_consumer_has_yet_to_read_is_not_pruned(place: Place) -> None:
    await place.reader(Listener("slow")).begin()
    await place.complete(2)
    quick = place.reader(Listener("quick"))
    await quick.begin()
    await quick.run_once()
    place.clock.advance(2 * HOUR)
    pruner = Pruner(place.store, Switches(place.store), retention=Retention.split(HOUR, HOUR))
    assert (await pruner.run_once()).jobs == 0
    await place.reader(Listener("slow")).run_once()
    assert (await pruner.run_once()).jobs == 2


async def test_a_consumer_that_was_deleted_holds_nothing_back(place: Place) -> None:
    await place.reader(Listener("retired")).begin()
    await place.complete(2)
    await delete_cursor(place.store, "retired")
    place.clock.advance(2 * HOUR)
    pruner = Pruner(place.store, Switches(place.store), retention=Retention.split(HOUR, HOUR))
    assert (await pruner.run_once()).jobs == 2
    assert await consumers(place.store) == []


async def test_a_name_that_another_one_begins_with_is_not_mistaken_for_it(place: Place) -> None:
    await place.reader(Listener("orders-new")).begin()
    await place.complete(1)
    await place.reader(Listener("orders")).begin()
    held = await read_cursor(place.store, "orders")
    assert held is not None
    assert held.cursor.position == 1
    await place.store.write_records([RecordWrite(CURSORS, "orders", None)])
    assert await read_cursor(place.store, "orders") is None


def _raise(error: Exception) -> None:
    raise error
