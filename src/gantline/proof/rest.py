"""The truth at rest: all that a store holds when nobody writes any more, and rules for it."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.query import Cursor, JobFilter, LaneCounts
from gantline.contract.snapshot import JobSnapshot, LogEntry, LoggedEvent
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.manager.sessions import live_sessions
from gantline.manager.switches import Switches
from gantline.proof.facts import Facts, JobFacts

_PAGE: Final = 5_000


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds, read while nobody writes."""

    now: datetime
    jobs: Mapping[UUID, JobSnapshot]
    logs: Mapping[UUID, tuple[LogEntry, ...]]
    events: tuple[LoggedEvent, ...]
    counts: tuple[LaneCounts, ...]
    served: frozenset[tuple[str, str]] = frozenset()
    """Queues and types of the workers that live."""
    stopped_queues: frozenset[str] = frozenset()
    """Paused."""
    stopped_types: frozenset[str] = frozenset()
    """Paused or disabled."""
    is_closed: bool = False


async def read_rest(store: JobStore) -> Rest:
    """Read all of a store; what it numbers late is numbered first."""
    while await store.sequence(limit=_PAGE):
        pass
    jobs = {job.job.job_id: job async for job in _every_job(store)}
    switches = Switches(store)
    await switches.refresh(max_age_seconds=0)
    sessions = await live_sessions(store)
    served = {(queue, kind) for one in sessions for queue in one.queues for kind in one.job_types}
    return Rest(
        now=await store.ping(),
        jobs=jobs,
        logs={job_id: tuple(await store.history(job_id, tenant_id=None)) for job_id in jobs},
        events=tuple([event async for event in _every_event(store)]),
        counts=tuple(await store.counts(tenant_id=None)),
        served=frozenset(served),
        stopped_queues=switches.paused_queues,
        stopped_types=switches.paused_types | switches.disabled_types,
        is_closed=switches.closed is not None,
    )


async def _every_job(store: JobStore) -> AsyncIterator[JobSnapshot]:
    after: Cursor | None = None
    while True:
        page = await store.find(JobFilter(tenant_id=None), limit=_PAGE, after=after)
        for job in page.items:
            yield job
        if (after := page.next) is None:
            return


async def _every_event(store: JobStore) -> AsyncIterator[LoggedEvent]:
    after = 0
    while events := await store.events(after=after, limit=_PAGE):
        for event in events:
            yield event
        if events[-1].sequence <= after:
            return  # it would go on for ever; the order of the numbers is judged
        after = events[-1].sequence


def check_rest(facts: Facts, rest: Rest, *, within: timedelta) -> None:
    """Judge the jobs as they stand: counts, keys, and what waits without a reason."""
    _check_counts(facts, rest)
    keys: dict[tuple[str, str, str], UUID] = {}
    for job_id, snapshot in rest.jobs.items():
        job = snapshot.job
        if job.idempotency_key and not snapshot.status.is_terminal:
            name = (job.tenant_id, job.job_type, job.idempotency_key)
            if (other := keys.setdefault(name, job_id)) != job_id:
                message = f"it has the key of job {other}, and both are live at rest"
                facts.broke("key", message, job_id=job_id)
        if job.external_id:
            name = (job.tenant_id, "", job.external_id.hex)
            if (other := keys.setdefault(name, job_id)) != job_id:
                facts.broke("key", f"it has the external id of job {other}", job_id=job_id)
        if not snapshot.status.is_terminal:
            _check_waiting(facts, snapshot, rest, within)
        known = facts.jobs.get(job_id)
        if known is not None and not facts.was_reborn(known):
            _check_standing(facts, snapshot, known)


def _check_counts(facts: Facts, rest: Rest) -> None:
    lanes: Counter[tuple[str, str, str]] = Counter()
    for job in rest.jobs.values():
        lanes[job.job.queue, job.job.job_type, job.status] += 1
        if job.run_at is not None and job.run_at > rest.now:
            lanes[job.job.queue, job.job.job_type, "Scheduled"] += 1
    counted: Counter[tuple[str, str, str]] = Counter()
    for lane in rest.counts:
        for status in (*JobStatus, "Scheduled"):
            counted[lane.queue, lane.job_type, status] += getattr(lane, status.lower())
    for name in sorted(lanes.keys() | counted.keys()):
        if lanes[name] != counted[name]:
            queue, kind, status = name
            message = (
                f"{counted[name]} of {queue}/{kind} are counted as {status}, {lanes[name]} are"
            )
            facts.broke("counts", message)


def _check_waiting(facts: Facts, job: JobSnapshot, rest: Rest, within: timedelta) -> None:
    queue, kind = job.job.queue, job.job.job_type
    if rest.is_closed or not rest.served:
        return
    if job.run is not None:  # any worker takes over what has ended
        since, what = job.run.lease_until, "its lease ran out"
    else:
        since, what = job.run_at or rest.now, "it was due"
        if (queue, kind) not in rest.served or queue in rest.stopped_queues:
            return
        if kind in rest.stopped_types:
            return
    if rest.now - since > within:
        seconds = (rest.now - since).total_seconds()
        message = f"{what} {seconds:.0f} s ago, a worker serves it, and nothing happened"
        facts.broke("waiting", message, job_id=job.job.job_id)


def _check_standing(facts: Facts, snapshot: JobSnapshot, job: JobFacts) -> None:
    """It stands where its last run left it."""
    job_id = snapshot.job.job_id
    newest = max(job.runs, default=0)
    if snapshot.fence < newest:
        call = job.runs[newest].call
        message = f"its fence is {snapshot.fence} at rest, and {newest} was handed out"
        facts.broke("fence", message, call, job_id=job_id)
    if snapshot.fence != newest or not newest or job.redrives or job.taken:
        return
    run = job.runs[newest]
    ends = [one for one in job.ends_of(run) if one.accepted]
    if snapshot.status is not JobStatus.RUNNING and len(ends) == 1:
        left = [(item.attempt, item.crashes, item.snoozes) for item in ends[0].items]
        if (snapshot.attempt, snapshot.crashes, snapshot.snoozes) not in left:
            message = f"its counters at rest are not those that {ends[0].item.event} left"
            facts.broke("counters", message, ends[0].accepted, job_id=job_id)
