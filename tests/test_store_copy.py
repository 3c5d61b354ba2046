"""Copying a store: what arrives is the same, and at no time do the jobs run in two places."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from gantline.api.rate_limiter import NAMESPACE as RATE_LIMITS
from gantline.auth.api_keys import USES
from gantline.contract.errors import GantlineError, StoreClosed
from gantline.contract.outcome import Success
from gantline.contract.records import RecordWrite
from gantline.contract.snapshot import Progress as RunProgress
from gantline.contract.status import Event, JobStatus
from gantline.contract.store import JobStore
from gantline.contract.stored import Marks, Part, Stored, StoredJob, StoredRecord
from gantline.manager.manager import JobManager
from gantline.manager.sessions import Session, register
from gantline.manager.submitter import Submission
from gantline.moving.closing import CopyProgress, StoreNames, read_closing, reopen
from gantline.moving.store_copy import NOT_COMPARED, NOT_COPIED
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.conformance.bench import Bench
from gantline.testing.conformance.moving import read_out, seen
from gantline.testing.factories import make_job, make_new
from gantline.testing.faults import Call, Crash, intercepted
from tests.harness import MemoryHarness
from tests.moving_stores import KINDS, NAMES, copied, copy_of, furnished, opened_harness


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def source(clock: FakeClock) -> AsyncIterator[Bench]:
    async with opened_harness("memory", clock, None, None) as bench:
        yield bench


@pytest.fixture
async def target(clock: FakeClock) -> AsyncIterator[Bench]:
    async with opened_harness("sqlite", clock, None, None) as bench:
        yield bench


async def content(store: JobStore) -> list[Stored]:
    """All but what a copy writes itself, and what is not copied."""
    return [
        item
        for item in await read_out(store)
        if not isinstance(item, Marks)
        and not (isinstance(item, StoredRecord) and item.record.key == "closed")
        and not (isinstance(item, StoredRecord) and item.record.namespace in NOT_COPIED)
    ]


async def is_closed(bench: Bench) -> bool:
    return await read_closing(bench.store) is not None


async def is_the_same(source: Bench, target: Bench) -> None:
    assert await content(target.store) == await content(source.store)
    assert await seen(target.store) == await seen(source.store)


# -- every pair -----------------------------------------------------------------------------------


@pytest.mark.parametrize("there", KINDS)
@pytest.mark.parametrize("here", KINDS)
async def test_any_store_is_copied_into_any_other(
    here: str, there: str, clock: FakeClock, request: pytest.FixtureRequest
) -> None:
    postgres = request.getfixturevalue("postgres") if "postgres" in (here, there) else None
    redis = request.getfixturevalue("redis") if "redis" in (here, there) else None
    async with (
        opened_harness(here, clock, postgres, redis) as source,
        opened_harness(there, clock, postgres, redis) as target,
    ):
        await furnished(source)
        done = await copied(source.store, target.store)
        await is_the_same(source, target)
        held = await content(source.store)
        assert done.jobs == sum(isinstance(item, StoredJob) for item in held) > 5
        assert done.keys >= 3
        assert (await is_closed(source), await is_closed(target)) == (True, False)
        clock.advance(timedelta(days=500))
        runs = await target.claim()
        assert runs
        for run in runs:
            await target.finish(run)


# -- closing --------------------------------------------------------------------------------------


async def test_the_source_tells_where_its_jobs_went(source: Bench, target: Bench) -> None:
    await source.submit()
    await copied(source.store, target.store)
    closed = await read_closing(source.store)
    assert closed is not None
    assert (closed.has_moved, closed.copied_to, closed.by) == (True, NAMES.target, "op")
    assert await reopen(source.store) == closed
    assert await reopen(source.store) is None
    assert not await is_closed(source)


async def test_nothing_can_be_changed_in_a_closed_store(source: Bench, target: Bench) -> None:
    failed, _ = await source.bring_to(JobStatus.FAILED)
    before = await read_out(source.store)
    await copied(source.store, target.store)
    manager = JobManager(source.store)
    changes = (
        lambda: manager.submit([Submission(make_job())]),
        lambda: manager.cancel([failed], tenant_id=None, actor="op"),
        lambda: manager.redrive([failed], tenant_id=None, actor="op"),
        lambda: manager.delete([failed], tenant_id=None),
    )
    for change in changes:
        with pytest.raises(StoreClosed, match="were moved to another one"):
            await change()
    assert [job for job in await read_out(source.store) if isinstance(job, StoredJob)] == [
        job for job in before if isinstance(job, StoredJob)
    ]


@pytest.mark.parametrize("phase", ["closing", "waiting", "emptying", "copying", "comparing"])
async def test_what_goes_wrong_opens_the_source_and_leaves_the_target_closed(
    phase: str, source: Bench, target: Bench
) -> None:
    await furnished(source)

    def break_it(progress: CopyProgress) -> None:
        if progress.doing.startswith(phase):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await copied(source.store, target.store, on_progress=break_it)
    assert not await is_closed(source)
    assert await is_closed(target) == (phase in ("copying", "comparing"))
    await copied(source.store, target.store)
    await is_the_same(source, target)


async def test_an_interrupted_copy_opens_the_source(source: Bench, target: Bench) -> None:
    await source.submit()
    waiting = asyncio.Event()

    def tell(progress: CopyProgress) -> None:
        if progress.doing.startswith("waiting"):
            waiting.set()

    copy = copy_of(source.store, target.store, grace=timedelta(hours=1), on_progress=tell)
    task = asyncio.create_task(copy.run(wait=timedelta(0)))
    await waiting.wait()
    assert await is_closed(source)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await is_closed(source)


async def test_a_copy_that_may_have_opened_the_target_leaves_the_source_closed(
    source: Bench, target: Bench
) -> None:
    await source.submit()

    async def losing_the_last_answer(verb: str, call: Call) -> Any:
        answer = await call()
        closed = await read_closing(source.store)
        if verb == "write_records" and closed and closed.has_moved:
            raise GantlineError("the answer was lost")
        return answer

    with pytest.raises(GantlineError, match="the answer was lost"):
        await copied(source.store, intercepted(target.store, losing_the_last_answer))
    assert (await is_closed(source), await is_closed(target)) == (True, False)


async def test_a_copy_that_another_has_overtaken_hands_nothing_over(
    source: Bench, target: Bench
) -> None:
    await source.submit()
    other = MemoryStore(clock=source.clock)
    overtaken = False

    async def overtaking(verb: str, call: Call) -> Any:
        nonlocal overtaken
        if verb == "counts" and not overtaken:
            overtaken = True
            places = StoreNames(NAMES.source, "a third place")
            await copied(source.store, other, names=places)
        return await call()

    with pytest.raises(GantlineError, match="Another copy of the same store"):
        await copied(intercepted(source.store, overtaking), target.store)
    assert await is_closed(target)
    closed = await read_closing(source.store)
    assert closed is not None
    assert closed.copied_to == "a third place"


# -- running jobs ---------------------------------------------------------------------------------


async def test_a_run_is_waited_for(source: Bench, target: Bench) -> None:
    run = await source.start()
    told: list[str] = []

    async def end_it(verb: str, call: Call) -> Any:
        answer = await call()
        if verb == "find" and len([one for one in told if "running" in one]) == 1:
            await source.finish(run)
        return answer

    store = intercepted(source.store, end_it)
    await copied(
        store,
        target.store,
        wait=timedelta(seconds=30),
        on_progress=lambda progress: told.append(progress.doing),
    )
    assert any(str(run.job.job_id) in one for one in told)
    assert await target.status(run.job.job_id) is JobStatus.COMPLETED


async def test_a_run_that_lasts_too_long_stops_the_copy_and_is_named(
    source: Bench, target: Bench
) -> None:
    run = await source.start()
    with pytest.raises(GantlineError, match=str(run.job.job_id)):
        await copied(source.store, target.store)
    assert not await is_closed(source)
    await source.finish(run)


async def test_the_run_of_a_dead_worker_is_given_up(source: Bench, target: Bench) -> None:
    run = await source.start()
    await source.let_leases_expire()
    await copied(source.store, target.store)
    history = await target.store.history(run.job.job_id, tenant_id=None)
    assert [row.event for row in history] == [Event.CRASHED]


@pytest.mark.parametrize("here", KINDS)
async def test_a_run_taken_by_force_can_end_its_job_nowhere(
    here: str, clock: FakeClock, target: Bench, request: pytest.FixtureRequest
) -> None:
    postgres = request.getfixturevalue("postgres") if here == "postgres" else None
    redis = request.getfixturevalue("redis") if here == "redis" else None
    async with opened_harness(here, clock, postgres, redis) as source:
        run = await source.start(max_attempts=1)
        done = await copied(source.store, target.store, force=True)
        assert done.taken_away == 1
        for place in (source, target):
            assert not (await place.settle(run, Success())).accepted
            renewal = await place.store.renew(run.session, [run.ref], lease=timedelta(1))
            assert renewal.lost == {run.token}
            (answer,) = await place.store.progress([RunProgress(run.ref, 1.0)])
            assert type(answer).__name__ == "Stale"
        await is_the_same(source, target)
        (again,) = await target.claim()
        assert (again.attempt, again.fence) == (run.attempt, run.fence + 1)
        await target.finish(again)
        (row, *_) = await target.store.history(run.job.job_id, tenant_id=None)
        assert (row.event, row.reason, row.actor) == (Event.RELEASED, "TakenAway", "op")


async def test_a_run_that_was_to_be_cancelled_is_cancelled_by_force(
    source: Bench, target: Bench
) -> None:
    run = await source.start()
    await source.cancel(run.job.job_id)
    await copied(source.store, target.store, force=True)
    assert await target.status(run.job.job_id) is JobStatus.CANCELLED


# -- the target -----------------------------------------------------------------------------------


async def test_a_target_that_holds_jobs_is_refused_unless_it_may_be_emptied(
    source: Bench, target: Bench
) -> None:
    mine, foreign = await source.submit("mine"), await target.submit("foreign")
    with pytest.raises(GantlineError, match=r"the new place holds jobs already.*--replace"):
        await copied(source.store, target.store)
    assert not await is_closed(source)
    assert await target.status(foreign) is JobStatus.QUEUED
    await copied(source.store, target.store, replace=True)
    assert await target.store.get([foreign], tenant_id=None) == [None]
    assert await target.status(mine) is JobStatus.QUEUED


@pytest.mark.parametrize("what", ["keys", "records"])
async def test_a_target_that_holds_anything_else_is_refused(
    what: str, source: Bench, target: Bench
) -> None:
    if what == "keys":
        held = make_new(idempotency_key="k")
        await target.store.insert([held])
        found = (await target.store.dump(Part.KEYS, limit=9)).items
        await target.store.clear()
        await target.store.load(found)
    else:
        await target.store.write_records([RecordWrite("api-keys", "k", b"1")])
    with pytest.raises(GantlineError, match=f"holds {what} already"):
        await copied(source.store, target.store)


async def test_the_unfinished_copy_of_another_store_is_not_replaced(
    source: Bench, target: Bench, clock: FakeClock
) -> None:
    async with opened_harness("memory", clock, None, None) as other:
        await other.submit()
        await interrupted(other, target, names=StoreNames("another place", NAMES.target))
        with pytest.raises(GantlineError, match="holds jobs already"):
            await copied(source.store, target.store)


async def interrupted(source: Bench, target: Bench, **options: Any) -> None:
    def break_it(progress: CopyProgress) -> None:
        if progress.doing.startswith("comparing"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await copied(source.store, target.store, on_progress=break_it, **options)


async def test_what_changed_since_an_interrupted_copy_is_as_it_is_now(
    source: Bench, target: Bench
) -> None:
    """Jobs have ended, come and gone meanwhile, and none is doubled."""
    gone, _ = await source.bring_to(JobStatus.CANCELLED)
    await furnished(source)
    waits = await source.submit("waits")
    await interrupted(source, target)
    runs = await source.claim()
    assert waits in {run.job.job_id for run in runs}
    for run in runs:
        await source.finish(run)
    await source.manager.delete([gone], tenant_id=None)
    await source.submit("came")
    await copied(source.store, target.store)
    await is_the_same(source, target)


async def has_worker(bench: Bench) -> None:
    now = bench.clock.now()
    session = Session(
        session_id="s",
        host="h",
        pid=1,
        version="1",
        started_at=now,
        last_seen_at=now,
        queues={},
        job_types=(),
    )
    await register(bench.store, session)


async def test_workers_on_the_target_are_refused(source: Bench, target: Bench) -> None:
    await has_worker(target)
    with pytest.raises(GantlineError, match="1 worker runs on the new place"):
        await copied(source.store, target.store)


async def test_a_store_is_not_copied_into_itself(source: Bench) -> None:
    job_id = await source.submit()
    with pytest.raises(GantlineError):
        await copied(source.store, source.store)
    with pytest.raises(GantlineError, match="the same store"):
        await copied(source.store, source.store, replace=True)
    assert await source.status(job_id) is JobStatus.QUEUED
    assert not await is_closed(source)


async def test_jobs_that_were_moved_are_not_copied_from_where_they_were(
    source: Bench, target: Bench, clock: FakeClock
) -> None:
    await source.submit()
    await copied(source.store, target.store)
    with pytest.raises(GantlineError, match="were moved to the new place"):
        await copied(
            source.store,
            MemoryStore(clock=clock),
            names=StoreNames(NAMES.source, "a third place"),
        )
    with pytest.raises(GantlineError, match="holds jobs already"):
        await copied(source.store, target.store)
    assert await is_closed(source)


# -- records --------------------------------------------------------------------------------------


async def test_records_of_processes_stay_behind(source: Bench, target: Bench) -> None:
    assert {"sessions", RATE_LIMITS} == NOT_COPIED
    assert {USES, "api-seal"} == NOT_COMPARED
    await has_worker(source)
    await source.store.write_records(
        [RecordWrite(name, "k", b"1") for name in (RATE_LIMITS, USES, "switches")]
    )
    await copied(source.store, target.store)
    held = [item for item in await read_out(target.store) if isinstance(item, StoredRecord)]
    assert [item.record.namespace for item in held] == [USES, "switches"]


# -- comparing ------------------------------------------------------------------------------------


def spoilt(store: JobStore, spoil: Any) -> JobStore:
    """Reads out what it holds, but for one thing."""

    class Spoilt:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def dump(self, part: Part, **where: Any) -> Any:
            page = await store.dump(part, **where)
            return msgspec.structs.replace(page, items=tuple(filter(None, map(spoil, page.items))))

    return Spoilt()


def replaced(job_id: UUID, **fields: Any) -> Any:
    def spoil(item: Stored) -> Stored:
        is_it = isinstance(item, StoredJob) and item.job.job_id == job_id
        return msgspec.structs.replace(item, **fields) if is_it else item

    return spoil


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"fence": 7}, r"fence differs \(0 at the source, 7 at the target\)"),
        ({"version": 9}, "version differs"),
        ({"fingerprint": b"other"}, "fingerprint differs"),
    ],
)
async def test_a_difference_is_named(
    fields: dict[str, Any], told: str, source: Bench, target: Bench
) -> None:
    ids = await source.submit_many(5)
    with pytest.raises(GantlineError, match=f"job {ids[2]}: {told}"):
        await copied(source.store, spoilt(target.store, replaced(ids[2], **fields)))
    assert (await is_closed(source), await is_closed(target)) == (False, True)


async def test_what_is_missing_or_too_much_is_named(source: Bench, target: Bench) -> None:
    await furnished(source)
    ids = await source.submit_many(3)

    def lacking(item: Stored) -> Stored | None:
        return None if item.name == f"job {ids[1]}" else item

    with pytest.raises(GantlineError, match=f"job {ids[1]}: it is only at the source"):
        await copied(source.store, spoilt(target.store, lacking))
    with pytest.raises(GantlineError, match=r"key .* it is only at the target"):
        await copied(
            spoilt(source.store, lambda item: None if "once key" in item.name else item),
            _given(target.store, source.store),
        )


def _given(target: JobStore, real: JobStore) -> JobStore:
    """A target that gets all keys, whatever the copy tells it."""

    async def around(verb: str, call: Call) -> Any:
        answer = await call()
        if verb == "clear":
            await target.load((await real.dump(Part.KEYS, limit=100)).items)
        return answer

    return intercepted(target, around)


async def test_a_target_that_counts_wrongly_is_found_out(source: Bench, target: Bench) -> None:
    await source.submit_many(3, tenant_id="tenant")

    async def miscounting(verb: str, call: Call) -> Any:
        answer = await call()
        if verb == "counts":
            answer[0].queued += 1
        return answer

    with pytest.raises(GantlineError, match="count of Queued 'test' in 'default' of tenant 'ten"):
        await copied(source.store, intercepted(target.store, miscounting))


async def test_what_comes_after_the_copy_has_begun_is_noticed(source: Bench, target: Bench) -> None:
    """A process that has slept through all the grace that it was given."""
    await source.submit("first")
    late = make_new("late")

    async def submitting(verb: str, call: Call) -> Any:
        if verb == "clear":
            await source.store.insert([late])
            return await call()
        return await call()

    async def submitting_at_the_end(verb: str, call: Call) -> Any:
        if verb == "dump" and await is_closed(target):
            await source.store.insert([late])
        return await call()

    with pytest.raises(GantlineError, match=f"job {late.job.job_id}: it is only at the source"):
        await copied(source.store, intercepted(target.store, submitting_at_the_end))
    await copied(source.store, intercepted(target.store, submitting))
    assert await target.status(late.job.job_id) is JobStatus.QUEUED


# -- dying ----------------------------------------------------------------------------------------


class Mortal:
    """A process whose n-th call of either store is its last."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.left = at
        self._after = after

    async def around(self, verb: str, call: Call) -> Any:
        self.left -= 1
        if self.left > 0:
            return await call()
        if self.left == 0 and self._after:
            await call()
        raise Crash(verb)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_copy_that_dies_at_any_call_ends_the_same_when_run_again(*, after: bool) -> None:
    calls = 0
    is_over = False
    while not is_over:
        calls += 1
        source, target = [await Bench.on(MemoryHarness()) for _ in range(2)]
        await source.submit_many(3, idempotency_key="")
        await source.submit("keyed", idempotency_key="k", created_by="me")
        died = Mortal(calls, after=after)
        stores = [intercepted(one.store, died.around) for one in (source, target)]
        try:
            await copied(*stores)
            is_over = True
        except Crash:
            both_open = not await is_closed(source) and not await is_closed(target)
            jobs = len((await target.store.dump(Part.JOBS, limit=9)).items)
            assert not both_open or not jobs, "the jobs can run in both places"
            if not await is_closed(target) and jobs:
                continue  # it died when all was done
            await copied(source.store, target.store)
        assert await content(target.store) == await content(source.store)
        assert (await is_closed(source), await is_closed(target)) == (True, False)
    assert calls > 20
