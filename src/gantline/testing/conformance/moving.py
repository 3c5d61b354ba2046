"""Rules for moving a store: what is read out of one and taken in by another is the same there."""

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID, uuid4

import msgspec

from gantline.contract.errors import InvalidInput
from gantline.contract.outcome import Success
from gantline.contract.query import JobFilter, LaneRequest, PruneRule
from gantline.contract.records import SESSIONS, RecordWrite
from gantline.contract.results import Applied, Conflict, Duplicate, Stale
from gantline.contract.snapshot import Progress
from gantline.contract.status import JobStatus, Reason
from gantline.contract.store import JobStore
from gantline.contract.stored import Marks, Part, Stored, StoredJob, StoredKey, StoredRecord
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.contract.transition import StateGuard, Transition
from gantline.manager.sequencer import number_events
from gantline.stores.memory import MemoryStore
from gantline.testing.conformance.bench import HOUR, LEASE, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.emitting import emitted
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.factories import JOB_TYPE, lane_requests, make_new

REQUEST = DedupeKey(KeyKind.REQUEST, "tenant", "caller", "request-1", b"as asked", HOUR)
ONCE = DedupeKey(KeyKind.ONCE, "tenant", JOB_TYPE, "mail/ä", b"", 50 * HOUR)
OF_GONE = make_new("gone", tenant_id="tenant", idempotency_key="outlives", job_type="gone")


async def read_out(store: JobStore, *, limit: int = 1000) -> list[Stored]:
    """Everything that a store holds, part by part, sorted so that it can be compared."""
    await number_events(store)
    found: list[Stored] = []
    for part in Part:
        items: list[Stored] = []
        after = ""
        while True:
            page = await store.dump(part, after=after, limit=limit)
            items += page.items
            after = page.next
            if not after:
                break
        found += sorted(items, key=lambda item: item.name)
    return found


async def take_in(store: JobStore, items: Iterable[Stored], *, at_once: int = 3) -> None:
    waiting = list(items)
    for start in range(0, len(waiting), at_once):
        await store.load(waiting[start : start + at_once])


async def move(bench: Bench) -> list[Stored]:
    """Read a store out, clear it, and fill it again with the same."""
    held = await read_out(bench.store)
    await bench.store.clear()
    await take_in(bench.store, held)
    return held


async def furnish(bench: Bench) -> None:
    """Jobs in every status but Running, with all that can belong to them; keys and records."""
    await _complete_and_prune(bench, OF_GONE)
    for status in (JobStatus.QUEUED, JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.POISONED):
        await bench.bring_to(
            status, tenant_id="tenant", subject_id="s/1", created_by="me", external_id=uuid4()
        )
        if status is JobStatus.QUEUED:
            (run,) = await bench.claim()
            await bench.finish(run, Success(b'{"a":1}', once=(ONCE,), emitted=emitted("ü")))
    cancelled, _ = await bench.bring_to(JobStatus.CANCELLED, idempotency_key="freed")
    await bench.redrive(cancelled)
    (run,) = await bench.claim()
    await bench.finish(run, RETRYABLE)
    await _with_events(bench)
    await bench.store.insert(
        [
            make_new("tomorrow", delay=24 * HOUR, priority=0, trace_context={"b": "2", "a": "1"}),
            make_new("first", delay=24 * HOUR, job_id=UUID(int=0)),
            make_new("last", delay=24 * HOUR, job_id=UUID(int=2**128 - 1)),
            make_new(
                {"text": "ü" * 300},
                tenant_id="tenant",
                idempotency_key="held",
                request_key=REQUEST,
                queue="other",
                attempt=2,
                correlation_id="c",
                parent_job_id=UUID(int=7),
                external_id=UUID(int=8),
                group="account/ü",
                payload_version=3,
                scheduled_at=bench.clock.now() + timedelta(days=400, microseconds=1),
            ),
        ]
    )
    writes = [
        RecordWrite("space", "a", b"1"),
        RecordWrite("space", "a", b"2"),
        RecordWrite("space", "b/ü", b"\x00\xff", time_to_live=timedelta(hours=5, microseconds=3)),
        RecordWrite("another space", "a", b"x"),
        RecordWrite("space", "gone", b"x"),
        RecordWrite("space", "gone", None),
        RecordWrite("expired", "soon", b"x", time_to_live=timedelta(seconds=1)),
    ]
    await bench.store.write_records(writes)
    for owner in ("first", "second"):
        leadership = await bench.store.lead("role", owner, lease=LEASE)
        assert leadership is not None
        await bench.store.resign("role", owner, leadership.term)
    bench.clock.advance(timedelta(seconds=2))


async def _complete_and_prune(bench: Bench, new: NewJob) -> None:
    """Leave nothing of a job but its key."""
    assert await bench.store.insert([new]) == [Applied(1)]
    requests = lane_requests(new.job.job_type)
    await bench.register("worker-1")
    (run,) = await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)
    ended = Transition.completed(run, Success(), hold_key=100 * HOUR)
    assert await bench.store.apply([ended]) == [Applied(3)]
    before = PruneRule(JobStatus.COMPLETED, bench.clock.now() + timedelta(microseconds=1))
    await bench.store.prune([before], limit=100)
    assert await bench.store.get([new.job.job_id], tenant_id=None) == [None]


async def _with_events(bench: Bench) -> None:
    new = make_new("with events", logged=True, tenant_id="tenant", job_type="logged")
    await bench.store.insert([new])
    requests = [LaneRequest("default", ("logged",), 1, ("logged",))]
    await bench.register("worker-1")
    (run,) = await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)
    await bench.store.progress([Progress(run.ref, 12.5, "begun", logged=True)])
    await bench.finish(run, PERMANENT)


class Seen(NamedTuple):
    """What the reading verbs of a store return."""

    jobs: object
    counts: object
    dead: object
    events: object
    histories: object
    records: object


async def seen(store: JobStore) -> Seen:
    page = await store.find(JobFilter(tenant_id=None), limit=100)
    by_owner = await store.find(JobFilter(tenant_id="tenant", created_by="me"), limit=100)
    failed = frozenset({JobStatus.FAILED, JobStatus.POISONED})
    dead = await store.find(JobFilter(tenant_id="tenant", statuses=failed), limit=100)
    ids = sorted(job.job.job_id for job in page.items)
    return Seen(
        (page, by_owner, dead),
        [await store.counts(tenant_id=tenant) for tenant in (None, "tenant", "default")],
        await store.dead_counts(tenant_id=None),
        (await store.events(after=0, limit=1000), await store.last_event()),
        [await store.history(job_id, tenant_id=None) for job_id in ids],
        [await store.read_records(name) for name in ("space", "another space", "expired")],
    )


@rule
async def what_is_read_out_and_taken_in_again_is_the_same(bench: Bench) -> None:
    await furnish(bench)
    held, before = await read_out(bench.store), await seen(bench.store)
    assert await move(bench) == held
    assert await read_out(bench.store) == held
    assert await seen(bench.store) == before


@rule
async def a_store_is_filled_from_any_other(bench: Bench) -> None:
    other = bench.over(MemoryStore(clock=bench.clock))
    await furnish(other)
    held = await read_out(other.store)
    await take_in(bench.store, held)
    assert await read_out(bench.store) == held
    assert await seen(bench.store) == await seen(other.store)


@rule
async def a_store_fills_any_other(bench: Bench) -> None:
    await furnish(bench)
    other = MemoryStore(clock=bench.clock)
    held = await read_out(bench.store)
    await take_in(other, held)
    assert await read_out(other) == held
    assert await seen(other) == await seen(bench.store)


@rule_for([1, 2, 5])
async def pages_give_each_item_once(bench: Bench, limit: int) -> None:
    await furnish(bench)
    assert await read_out(bench.store, limit=limit) == await read_out(bench.store)


@rule
async def a_page_may_be_taken_in_twice(bench: Bench) -> None:
    await furnish(bench)
    held, before = await move(bench), await seen(bench.store)
    await take_in(bench.store, held, at_once=100)
    assert await read_out(bench.store) == held
    assert await seen(bench.store) == before


@rule
async def what_is_there_stays_when_a_page_comes_again(bench: Bench) -> None:
    job_id = await bench.submit()
    held = await move(bench)
    (run,) = await bench.claim()
    await take_in(bench.store, held)
    assert (await bench.snapshot(job_id)).status is JobStatus.RUNNING
    await bench.finish(run)


@rule
async def a_running_job_is_not_taken_in(bench: Bench) -> None:
    run = await bench.start("runs")
    await bench.submit()
    jobs = [job for job in await read_out(bench.store) if isinstance(job, StoredJob)]
    assert [job.status for job in jobs if job.job.job_id == run.job.job_id] == ["Running"]
    await bench.store.clear()
    try:
        await bench.store.load(jobs)
    except InvalidInput:
        assert (await bench.recount())["Queued"] == 0
    else:
        raise AssertionError("a job was taken in whose run is somebody else's")


@rule
async def numbers_go_on_after_those_taken_in(bench: Bench) -> None:
    await furnish(bench)
    held = await move(bench)
    (marks,) = [item for item in held if isinstance(item, Marks)]
    assert await bench.store.last_event() == marks.last_event
    bench.clock.advance(1000 * HOUR)
    for run in await bench.claim():
        await bench.finish(run)
    await number_events(bench.store)
    first, *_ = await bench.store.events(after=marks.last_event, limit=10)
    assert first.sequence == marks.last_event + 1
    (written,) = await bench.store.write_records([RecordWrite("space", "new", b"1")])
    assert isinstance(written, Applied)
    assert written.version > marks.last_record
    leadership = await bench.store.lead("role", "third", lease=LEASE)
    assert leadership is not None
    assert leadership.term == 3


@rule
async def jobs_go_on_where_they_were(bench: Bench) -> None:
    run = await bench.start("first", max_attempts=5)
    await bench.finish(run, RETRYABLE)
    later = await bench.submit("second", priority=0, delay=2 * HOUR)
    await move(bench)
    assert await bench.claim() == []
    bench.clock.advance(HOUR)
    (again,) = await bench.claim()
    assert again.job == run.job
    assert (again.attempt, again.fence, again.version) == (2, run.fence + 1, run.version + 2)
    assert not (await bench.settle(run, Success())).accepted
    bench.clock.advance(HOUR)
    assert [run.job.job_id for run in await bench.claim()] == [later]
    await bench.finish(again)


@rule
async def due_jobs_are_claimed_in_their_order(bench: Bench) -> None:
    ids = [await bench.submit(number, priority=number % 4) for number in range(12)]
    await move(bench)
    runs = await bench.claim()
    assert [run.priority for run in runs] == sorted(number % 4 for number in range(12))
    assert {run.job.job_id for run in runs} == set(ids)


@rule
async def keys_are_held_as_long_as_before(bench: Bench) -> None:
    await furnish(bench)
    queued = make_new("lives", tenant_id="tenant", idempotency_key="of a live job")
    await bench.store.insert([queued])
    await move(bench)
    again = make_new("lives", tenant_id="tenant", idempotency_key="of a live job")
    assert await bench.store.insert([again]) == [Duplicate(queued.job.job_id, by=KeyKind.JOB)]
    other = make_new("another", tenant_id="tenant", idempotency_key="of a live job")
    assert await bench.store.insert([other]) == [Conflict(by=KeyKind.JOB)]
    assert None not in await bench.store.held([REQUEST, ONCE])
    (asked,) = [
        job.job.job_id
        for job in (await bench.store.find(JobFilter(tenant_id="tenant"), limit=100)).items
        if job.job.queue == "other"
    ]
    assert await bench.store.request_keys([asked]) == [msgspec.structs.replace(REQUEST, hold=None)]
    bench.clock.advance(HOUR)
    assert await bench.store.held([REQUEST]) == [None]
    bench.clock.advance(50 * HOUR)
    assert await bench.store.held([ONCE]) == [None]
    assert (await bench.store.prune([], limit=10)).keys == 2
    (run,) = [run for run in await bench.claim() if run.job.job_id == queued.job.job_id]
    await bench.finish(run, PERMANENT)
    assert await bench.store.insert([other]) == [Applied(1)]


@rule
async def a_key_that_outlives_its_job_is_kept(bench: Bench) -> None:
    await furnish(bench)
    await move(bench)
    again = make_new("gone", tenant_id="tenant", idempotency_key="outlives", job_type="gone")
    assert await bench.store.insert([again]) == [Duplicate(OF_GONE.job.job_id, by=KeyKind.JOB)]
    bench.clock.advance(101 * HOUR)
    assert await bench.store.insert([again]) == [Applied(1)]


@rule
async def a_change_made_before_is_known_afterwards(bench: Bench) -> None:
    run = await bench.start()
    ended = Transition.completed(run, Success(), hold_key=HOUR)
    assert await bench.store.apply([ended]) == [Applied(3)]
    failed, _ = await bench.bring_to(JobStatus.FAILED)
    redriven = Transition.redriven(await bench.snapshot(failed), actor="op")
    assert await bench.store.apply([redriven]) == [Applied(4)]
    await move(bench)
    assert await bench.store.apply([ended, redriven]) == [Applied(3), Applied(4)]
    failing = Transition.failed(run, PERMANENT.error, Reason.PERMANENT_ERROR)
    assert await bench.store.apply([failing]) == [Stale()]


@rule
async def ended_jobs_can_be_redriven_deleted_and_pruned(bench: Bench) -> None:
    failed, _ = await bench.bring_to(JobStatus.FAILED, subject_id="s", created_by="o")
    done, _ = await bench.bring_to(JobStatus.COMPLETED)
    old, _ = await bench.bring_to(JobStatus.CANCELLED)
    await move(bench)
    await bench.redrive(failed)
    guard = StateGuard(JobStatus.COMPLETED, "default")
    assert isinstance((await bench.store.delete([(done, guard)]))[0], Applied)
    rule = PruneRule(JobStatus.CANCELLED, bench.clock.now() + HOUR)
    assert (await bench.store.prune([rule], limit=10)).jobs == 1
    assert await bench.store.get([done, old], tenant_id=None) == [None, None]
    counted = {name: jobs for name, jobs in (await bench.recount()).items() if jobs}
    assert counted == {"Queued": 1}


@rule
async def a_cleared_store_is_as_new(bench: Bench) -> None:
    await furnish(bench)
    await bench.submit("runs")
    assert await bench.claim()
    await bench.store.clear()
    assert await read_out(bench.store) == [Marks(0, 0)]
    new = bench.over(MemoryStore(clock=bench.clock))
    assert await seen(bench.store) == await seen(new.store)
    assert await bench.store.held([REQUEST, ONCE]) == [None, None]
    anew = bench.over(bench.store)  # which registers its session once more
    await anew.finish(await anew.start("again"))
    await number_events(bench.store)
    assert [event.sequence for event in await bench.store.events(after=0, limit=9)] == [1]


@rule
async def everything_is_read_out(bench: Bench) -> None:
    """A guard against rules that compare nothing with nothing."""
    await furnish(bench)
    held = await read_out(bench.store)
    jobs = [item for item in held if isinstance(item, StoredJob)]
    keys = {item.kind for item in held if isinstance(item, StoredKey)}
    records = {item.record.namespace for item in held if isinstance(item, StoredRecord)}
    assert {job.status for job in jobs} >= {JobStatus.QUEUED, JobStatus.FAILED, JobStatus.POISONED}
    assert keys == set(KeyKind)
    assert records == {"space", "another space", "expired", SESSIONS}
    numbers = [row.sequence for job in jobs for row in job.log]
    assert len(set(numbers)) == len(numbers) > 10
