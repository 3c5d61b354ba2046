"""Rules for events: one order, nothing skipped, no number twice."""

import asyncio
from contextlib import suppress
from threading import Event as Signal

from gantline.contract.outcome import Success
from gantline.contract.policy import DEFAULT_POLICY
from gantline.contract.query import PruneRule
from gantline.contract.results import Applied, ApplyResult
from gantline.contract.snapshot import LoggedEvent, Run
from gantline.contract.status import Event, JobStatus, Reason
from gantline.contract.transition import Transition
from gantline.manager.sequencer import number_events
from gantline.testing.conformance.bench import HOUR, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.rule import rule


async def read(bench: Bench, after: int = 0, limit: int = 1000) -> list[LoggedEvent]:
    await number_events(bench.store)
    return await bench.store.events(after=after, limit=limit)


@rule
async def every_ended_run_and_every_action_is_an_event(bench: Bench) -> None:
    run = await bench.start(tenant_id="tenant")
    await bench.finish(run, RETRYABLE)
    bench.clock.advance(HOUR)
    await bench.finish((await bench.claim())[0], PERMANENT)
    await bench.redrive(run.job.job_id)
    await bench.cancel(run.job.job_id)
    seen = await read(bench)
    assert [event.entry.event for event in seen] == [
        Event.RETRIED,
        Event.FAILED,
        Event.REDRIVEN,
        Event.CANCELLED,
    ]
    assert {(event.tenant_id, event.job_type) for event in seen} == {("tenant", "test")}
    history = await bench.store.history(run.job.job_id, tenant_id="tenant")
    assert [event.entry for event in seen] == history


@rule
async def a_cursor_reads_on_where_it_stopped(bench: Bench) -> None:
    await bench.submit_many(7)
    for run in await bench.claim():
        await bench.finish(run)
    seen: list[LoggedEvent] = []
    while page := await read(bench, after=seen[-1].sequence if seen else 0, limit=3):
        seen += page
    numbers = [event.sequence for event in seen]
    assert numbers == sorted(set(numbers))
    assert len({event.entry.job_id for event in seen}) == 7


@rule
async def a_submit_a_claim_and_progress_are_no_events(bench: Bench) -> None:
    run = await bench.start()
    await bench.store.renew(run.session, [run.ref], lease=HOUR)
    assert await read(bench) == []


@rule
async def a_number_is_never_handed_out_again(bench: Bench) -> None:
    await bench.bring_to(JobStatus.COMPLETED)
    last = (await read(bench))[-1].sequence
    bench.clock.advance(HOUR)
    await bench.store.prune([PruneRule(JobStatus.COMPLETED, bench.clock.now())], limit=10)
    assert await read(bench) == []
    await bench.bring_to(JobStatus.COMPLETED)
    assert [event.sequence > last for event in await read(bench)] == [True]


@rule
async def the_last_number_is_known_and_never_goes_back(bench: Bench) -> None:
    assert await bench.store.last_event() == 0
    await bench.bring_to(JobStatus.COMPLETED)
    last = (await read(bench))[-1].sequence
    assert await bench.store.last_event() == last
    bench.clock.advance(HOUR)
    await bench.store.prune([PruneRule(JobStatus.COMPLETED, bench.clock.now())], limit=10)
    assert await bench.store.last_event() == last


@rule
async def several_may_number_at_once(bench: Bench) -> None:
    """Every row gets one number, and the numbers have no holes: a hole is a missed row."""
    handles = [bench, await bench.another(), await bench.another()]
    await bench.submit_many(30)

    async def settle_and_number(handle: Bench, runs: list[Run]) -> None:
        for run in runs:
            assert await handle.store.apply([_completed(run)]) == [Applied(3)]
            await number_events(handle.store)

    runs = await bench.claim()
    await asyncio.gather(
        *(settle_and_number(handle, runs[n::3]) for n, handle in enumerate(handles))
    )
    seen = await read(bench)
    assert [event.sequence for event in seen] == list(range(1, 31))
    assert len({event.entry.job_id for event in seen}) == 30


@rule
async def what_a_consumer_has_not_read_is_not_pruned(bench: Bench) -> None:
    first, _ = await bench.bring_to(JobStatus.COMPLETED)
    second, _ = await bench.bring_to(JobStatus.COMPLETED)
    read_up_to = (await read(bench))[0].sequence
    bench.clock.advance(HOUR)
    rules = [PruneRule(JobStatus.COMPLETED, bench.clock.now())]
    pruned = await bench.store.prune(rules, limit=10, keep_events_after=read_up_to)
    assert pruned.jobs == 1
    assert await bench.store.get([first], tenant_id=None) == [None]
    assert await bench.status(second) is JobStatus.COMPLETED
    assert [event.entry.job_id for event in await read(bench)] == [second]


@rule
async def a_late_commit_is_never_skipped(bench: Bench) -> None:
    """Two writers, the first to write the last to commit: a reader in between misses neither."""
    await bench.submit_many(2)
    first, second = await bench.claim()
    late, may_commit = await _write_without_commit(bench, _completed(first))
    other = asyncio.create_task(bench.store.apply([_completed(second)]))
    # It may have to wait for the first; give it the chance to overtake.
    await asyncio.wait({other}, timeout=0.3)
    seen: list[LoggedEvent] = []
    for _ in range(3):  # however often it looks
        seen += await read(bench, after=seen[-1].sequence if seen else 0)
    may_commit.set()
    assert await late == [Applied(3)]
    assert await other == [Applied(3)]
    seen += await read(bench, after=seen[-1].sequence if seen else 0)
    numbers = [event.sequence for event in seen]
    assert numbers == sorted(set(numbers))
    assert {event.entry.job_id for event in seen} == {first.job.job_id, second.job.job_id}


@rule
async def what_follows_a_late_commit_comes_after_it(bench: Bench) -> None:
    await bench.submit_many(2)
    first, second = await bench.claim()
    failed = Transition.failed(first, PERMANENT.error, Reason.PERMANENT_ERROR)
    late, may_commit = await _write_without_commit(bench, failed)
    other = asyncio.create_task(bench.store.apply([_completed(second)]))
    await asyncio.wait({other}, timeout=0.3)
    seen = await read(bench)
    may_commit.set()
    await asyncio.gather(late, other)
    await bench.redrive(first.job.job_id)
    seen += await read(bench, after=seen[-1].sequence if seen else 0)
    of_the_job = [one.entry.event for one in seen if one.entry.job_id == first.job.job_id]
    assert of_the_job == [Event.FAILED, Event.REDRIVEN]


@rule
async def a_late_commit_is_not_pruned_before_it_is_read(bench: Bench) -> None:
    await bench.submit_many(2)
    first, second = await bench.claim()
    late, may_commit = await _write_without_commit(bench, _completed(first))
    other = asyncio.create_task(bench.store.apply([_completed(second)]))
    await asyncio.wait({other}, timeout=0.3)
    seen = await read(bench)
    may_commit.set()
    await asyncio.gather(late, other)
    bench.clock.advance(HOUR)
    rules = [PruneRule(JobStatus.COMPLETED, bench.clock.now())]
    read_up_to = seen[-1].sequence if seen else 0
    await bench.store.prune(rules, limit=10, keep_events_after=read_up_to)
    seen += await read(bench, after=read_up_to)
    assert {event.entry.job_id for event in seen} == {first.job.job_id, second.job.job_id}


@rule
async def a_write_that_is_undone_disturbs_no_number(bench: Bench) -> None:
    """A store may have given it one."""
    fails = False

    def fail() -> None:
        if fails:
            raise RuntimeError("This commit fails.")

    await bench.submit_many(3)
    undone, *others = await bench.claim()
    failing = await bench.harness.open(before_commit=fail)
    fails = True
    with suppress(RuntimeError):  # a store without a commit of its own does not fail
        await failing.apply([_completed(undone)])
    seen: list[LoggedEvent] = []
    for run in others:
        assert await bench.store.apply([_completed(run)]) == [Applied(3)]
        for _ in range(2):
            seen += await read(bench, after=seen[-1].sequence if seen else 0)
    numbers = [event.sequence for event in seen]
    assert numbers == list(range(1, len(seen) + 1))
    assert len({event.entry.job_id for event in seen}) == len(seen)
    assert len(seen) == (await bench.recount())["Completed"]


@rule
async def a_reader_beside_many_writers_misses_nothing(bench: Bench) -> None:
    handles = [bench, await bench.another(), await bench.another()]
    await bench.submit_many(60)
    runs = await bench.claim()
    seen: list[LoggedEvent] = []

    async def write(handle: Bench, mine: list[Transition]) -> None:
        for transition in mine:
            assert await handle.store.apply([transition]) == [Applied(3)]

    async def follow() -> None:
        while len(seen) < len(runs):
            seen.extend(await read(bench, after=seen[-1].sequence if seen else 0, limit=7))
            await asyncio.sleep(0)

    transitions = [_completed(run) for run in runs]
    writers = [write(handle, transitions[n::3]) for n, handle in enumerate(handles)]
    await asyncio.wait_for(asyncio.gather(follow(), *writers), timeout=30)
    numbers = [event.sequence for event in seen]
    assert numbers == sorted(set(numbers))
    assert {event.entry.job_id for event in seen} == {run.job.job_id for run in runs}


def _completed(run: Run) -> Transition:
    return Transition.completed(run, Success(), hold_key=DEFAULT_POLICY.hold_key)


async def _write_without_commit(
    bench: Bench, transition: Transition
) -> tuple[asyncio.Task[list[ApplyResult]], Signal]:
    """Begin a write that waits before its commit, until the signal is set."""
    is_writing, may_commit = Signal(), Signal()

    def hold() -> None:
        is_writing.set()
        may_commit.wait(timeout=20)

    may_commit.set()  # opening commits too, where there is a schema to check
    slow = await bench.harness.open(before_commit=hold)
    is_writing.clear()
    may_commit.clear()
    late = asyncio.create_task(slow.apply([transition]))
    # A store without a commit of its own is through at once, and never holds.
    held = asyncio.create_task(asyncio.to_thread(is_writing.wait, 20))
    await asyncio.wait({held, late}, return_when=asyncio.FIRST_COMPLETED)
    is_writing.set()
    return late, may_commit
