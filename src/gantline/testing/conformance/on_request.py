"""Rules for events that a type asks for: submitted, started, progressed. They change nothing."""

from typing import Any
from uuid import UUID, uuid4

from gantline.contract.outcome import Success
from gantline.contract.query import JobFilter, LaneRequest, PruneRule
from gantline.contract.results import Applied, Conflict, Duplicate, Stale
from gantline.contract.snapshot import LogEntry, LoggedEvent, Progress, Run
from gantline.contract.status import ON_REQUEST, Event, JobStatus
from gantline.contract.submission import NewJob
from gantline.manager.sequencer import number_events
from gantline.testing.conformance.bench import HOUR, LEASE, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.rule import rule
from gantline.testing.factories import JOB_TYPE, make_new
from gantline.testing.faults import losing_answers


def logged(payload: Any = None, **fields: Any) -> NewJob:
    return make_new(payload, logged=True, **fields)


async def start(bench: Bench, *, logging: bool = True, limit: int = 100) -> list[Run]:
    types = (JOB_TYPE,)
    requests = [LaneRequest("default", types, limit, types if logging else ())]
    await bench.register("worker-1")
    return await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)


async def read(bench: Bench) -> list[LoggedEvent]:
    await number_events(bench.store)
    return await bench.store.events(after=0, limit=1000)


async def history(bench: Bench, job_id: UUID) -> list[LogEntry]:
    return await bench.store.history(job_id, tenant_id=None)


@rule
async def submit_start_and_progress_are_logged_on_request(bench: Bench) -> None:
    new = logged(tenant_id="tenant", attempt=2)
    assert await bench.store.insert([new]) == [Applied(1)]
    bench.clock.advance(LEASE)
    (run,) = await start(bench)
    bench.clock.advance(LEASE / 2)
    progress = Progress(run.ref, 40.5, "parsing", logged=True)
    assert await bench.store.progress([progress]) == [Applied(3)]
    follow_up = logged("next", job_type="next", tenant_id="tenant")
    await bench.finish(run, Success(follow_ups=(follow_up,)))

    submitted, started, progressed, *ended = await history(bench, new.job.job_id)
    assert (submitted.event, submitted.version, submitted.attempt) == (Event.SUBMITTED, 1, 1)
    assert (submitted.status, submitted.reason) == (JobStatus.QUEUED, "Submitted")
    assert (submitted.fence, submitted.session, submitted.started_at) == (0, "", None)
    assert (started.event, started.version, started.attempt) == (Event.STARTED, 2, 2)
    assert (started.status, started.reason) == (JobStatus.RUNNING, "Started")
    assert (started.fence, started.session) == (1, "worker-1")
    assert started.at == started.started_at == run.started_at == submitted.at + LEASE
    assert (progressed.event, progressed.version) == (Event.PROGRESSED, 3)
    assert (progressed.status, progressed.reason) == (JobStatus.RUNNING, "Progressed")
    assert (progressed.percent, progressed.phase) == (40.5, "parsing")
    assert progressed.at == run.started_at + LEASE / 2
    assert (progressed.started_at, progressed.session) == (run.started_at, "worker-1")
    assert (started.percent, started.phase) == (None, "")
    assert [(row.event, row.version, row.percent) for row in ended] == [(Event.COMPLETED, 4, None)]
    (of_the_next,) = await history(bench, follow_up.job.job_id)
    assert of_the_next.event is Event.SUBMITTED

    seen = await read(bench)
    assert {event.tenant_id for event in seen} == {"tenant"}
    of_the_job = [event.entry for event in seen if event.job_type == JOB_TYPE]
    assert of_the_job == await history(bench, new.job.job_id)


@rule
async def what_is_not_asked_for_is_not_logged(bench: Bench) -> None:
    """Also beside a job whose events are asked for, in the same call."""
    await bench.store.insert([make_new(1), logged(2), make_new(3)])
    plain = (*(await start(bench, logging=False)),)
    assert len(plain) == 3
    await bench.store.progress([Progress(run.ref, 50.0, "half") for run in plain])
    assert [event.entry.event for event in await read(bench)] == [Event.SUBMITTED]
    await bench.submit(job_type="other")
    types = (JOB_TYPE, "other")
    requests = [LaneRequest("default", types, 10, (JOB_TYPE,))]
    await bench.register("w")
    assert len(await bench.store.claim("w", uuid4(), requests, lease=LEASE)) == 1
    assert len(await read(bench)) == 1


@rule
async def they_do_not_change_how_a_job_stands(bench: Bench) -> None:
    """Two jobs go through the same, one of them with these events: only their logs differ."""
    new, plain = logged(1), make_new(2)
    await bench.store.insert([new, plain])
    for logging in (True, False):
        (run,) = await start(bench, logging=logging, limit=1)
        await bench.finish(run, RETRYABLE)
    bench.clock.advance(HOUR)
    runs = await start(bench)
    await bench.store.progress([Progress(run.ref, 50.0, "half", logged=True) for run in runs])
    for job_id in (new.job.job_id, plain.job.job_id):
        job = await bench.snapshot(job_id)
        assert job.last is not None
        assert (job.last.event, job.version, job.attempt) == (Event.RETRIED, 5, 2)
        assert job.run is not None
        assert (job.run.percent, job.run.phase) == (50.0, "half")
    for run in runs:
        await bench.finish(run, PERMANENT)
    job = await bench.snapshot(new.job.job_id)
    assert (job.status, job.version, job.last and job.last.event) == (
        JobStatus.FAILED,
        6,
        Event.FAILED,
    )
    (dead,) = await bench.store.dead_counts(tenant_id=None)
    assert (dead.jobs, dead.reason) == (2, "PermanentError")
    assert (await bench.recount())["Failed"] == 2
    found = await bench.store.find(JobFilter(reasons=frozenset({"PermanentError"})), limit=10)
    assert len(found.items) == 2


@rule
async def a_job_with_only_such_events_has_no_outcome(bench: Bench) -> None:
    new = logged()
    await bench.store.insert([new])
    assert (await bench.snapshot(new.job.job_id)).last is None
    (run,) = await start(bench)
    job = await bench.snapshot(new.job.job_id)
    assert (job.last, job.status, job.derived(bench.clock.now())) == (None, JobStatus.RUNNING, None)
    assert job.version == run.version == 2
    for reason in ("Submitted", "Started"):
        page = await bench.store.find(JobFilter(reasons=frozenset({reason})), limit=10)
        assert page.items == ()


@rule
async def they_are_not_logged_twice_where_an_answer_is_lost(bench: Bench) -> None:
    new = logged(idempotency_key="key")
    lossy = bench.over(losing_answers(bench.store))
    assert await lossy.store.insert([new]) == [Duplicate(new.job.job_id)]
    (run,) = await start(lossy)
    await lossy.store.progress([Progress(run.ref, 50.0, "half", logged=True)])
    await lossy.store.progress([Progress(run.ref, 50.0, "more", logged=True)])
    await lossy.finish(run)
    rows = await history(bench, new.job.job_id)
    assert [row.event for row in rows] == [
        Event.SUBMITTED,
        Event.STARTED,
        Event.PROGRESSED,
        Event.PROGRESSED,
        Event.COMPLETED,
    ]
    assert [row.phase for row in rows] == ["", "", "half", "more", ""]


@rule
async def what_is_refused_is_not_logged(bench: Bench) -> None:
    new = logged(1, idempotency_key="key")
    await bench.store.insert([new])
    repeated, clashing = logged(1, idempotency_key="key"), logged(2, idempotency_key="key")
    answers = await bench.store.insert([repeated, clashing, logged(3)])
    assert [type(answer) for answer in answers] == [Duplicate, Conflict, Applied]
    (run, other) = await start(bench)
    await bench.finish(run)
    assert await bench.store.progress([Progress(run.ref, 9.0, "zombie", logged=True)]) == [Stale()]
    events = [event.entry.event for event in await read(bench)]
    assert events.count(Event.SUBMITTED) == 2
    assert Event.PROGRESSED not in events
    await bench.finish(other)


@rule
async def they_are_pruned_with_their_job_and_not_before_they_were_read(bench: Bench) -> None:
    new = logged()
    await bench.store.insert([new])
    (run,) = await start(bench)
    await bench.finish(run)
    events = await read(bench)
    assert len(events) == 3
    bench.clock.advance(HOUR)
    rules = [PruneRule(JobStatus.COMPLETED, bench.clock.now())]
    for event, pruned in zip(events, (0, 0, 1), strict=True):
        done = await bench.store.prune(rules, limit=10, keep_events_after=event.sequence)
        assert done.jobs == pruned
    assert await read(bench) == []
    assert await bench.store.last_event() == events[-1].sequence


@rule
async def they_come_in_the_order_in_which_they_happened(bench: Bench) -> None:
    """Over several processes; for each job its versions only grow."""
    benches = [bench, await bench.another()]
    await bench.store.insert([logged(n) for n in range(6)])
    runs = [run for one in benches for run in await start(one, limit=3)]
    for percent in (25.0, 50.0):
        for index, run in enumerate(runs):
            update = Progress(run.ref, percent, logged=True)
            await benches[index % 2].store.progress([update])
    for index, run in enumerate(runs):
        await benches[1 - index % 2].finish(run)
    seen = await read(bench)
    assert [event.sequence for event in seen] == list(range(1, 31))
    for run in runs:
        versions = [one.entry.version for one in seen if one.entry.job_id == run.job.job_id]
        assert versions == [1, 2, 3, 4, 5]
    assert len([one for one in seen if one.entry.event in ON_REQUEST]) == 24


@rule
async def what_follows_from_an_end_is_logged_after_it(bench: Bench) -> None:
    await bench.store.insert([logged()])
    (run,) = await start(bench)
    follow_ups = (logged(1, job_type="next"), logged(2, job_type="next"))
    await bench.finish(run, Success(follow_ups=follow_ups))
    seen = [(event.job_type, event.entry.event) for event in await read(bench)]
    assert seen[2:] == [(JOB_TYPE, Event.COMPLETED), *[("next", Event.SUBMITTED)] * 2]
