"""Rules for reading: each tenant its own, pages that lose nothing, counts that are true."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from gantline.contract.errors import Code
from gantline.contract.outcome import Released, Snoozed, Success, TypeDisabled
from gantline.contract.query import Cursor, JobFilter
from gantline.contract.snapshot import JobSnapshot, Run
from gantline.contract.status import DerivedState, JobStatus, Reason, State
from gantline.manager.manager import Ending
from gantline.testing.conformance.bench import HOUR, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.factories import CREATED_AT, number

ALL = JobFilter(tenant_id=None)


async def all_pages(bench: Bench, job_filter: JobFilter, limit: int) -> list[JobSnapshot]:
    found: list[JobSnapshot] = []
    after: Cursor | None = None
    while True:
        page = await bench.store.find(job_filter, limit=limit, after=after)
        found += page.items
        if page.next is None:
            return found
        assert len(page.items) == limit
        after = page.next


@rule
async def one_tenant_does_not_see_another(bench: Bench) -> None:
    theirs, _ = await bench.bring_to(JobStatus.FAILED, tenant_id="theirs")
    mine = await bench.submit(tenant_id="mine")
    jobs = await bench.store.get([theirs, mine], tenant_id="mine")
    assert [job and job.job.job_id for job in jobs] == [None, mine]
    assert await bench.store.history(theirs, tenant_id="mine") == []
    page = await bench.store.find(JobFilter(tenant_id="mine"), limit=10)
    assert [job.job.job_id for job in page.items] == [mine]
    (counts,) = await bench.store.counts(tenant_id="mine")
    assert (counts.queued, counts.failed) == (1, 0)


@rule
async def dead_letters_are_counted_by_type_status_and_reason(bench: Bench) -> None:
    for status in (JobStatus.FAILED, JobStatus.POISONED, JobStatus.FAILED, JobStatus.CANCELLED):
        await bench.bring_to(status)
    await bench.finish(await bench.start(), TypeDisabled())
    for status in (JobStatus.FAILED, JobStatus.COMPLETED):
        await bench.bring_to(status, tenant_id="theirs")
    counted = await bench.store.dead_counts(tenant_id="default")
    assert [(one.job_type, one.status, one.reason, one.jobs) for one in counted] == [
        ("test", JobStatus.FAILED, Reason.PERMANENT_ERROR, 2),
        ("test", JobStatus.FAILED, Reason.TYPE_DISABLED, 1),
        ("test", JobStatus.POISONED, Reason.ATTEMPTS_EXHAUSTED, 1),
    ]
    assert sum(one.jobs for one in await bench.store.dead_counts(tenant_id=None)) == 5
    newest = [one.newest_at for one in counted]
    assert newest[0] >= newest[2]
    job_id, _ = await bench.bring_to(JobStatus.POISONED)
    await bench.manager.redrive([job_id], tenant_id=None, actor="op")
    assert await bench.store.dead_counts(tenant_id="default") == counted


@rule
async def jobs_come_in_the_order_they_were_asked_for(bench: Bench) -> None:
    a, b = await bench.submit(), await bench.submit()
    unknown = uuid4()
    jobs = await bench.store.get([b, unknown, a, b], tenant_id=None)
    assert [job and job.job.job_id for job in jobs] == [b, None, a, b]


@rule
async def pages_lose_no_job_of_the_same_instant(bench: Bench) -> None:
    ids = {await bench.submit(job_id=number(n), created_at=CREATED_AT) for n in range(1, 12)}
    found = [job.job.job_id for job in await all_pages(bench, ALL, limit=3)]
    assert found == sorted(ids, reverse=True)


@rule
async def the_newest_comes_first(bench: Bench) -> None:
    for n in (2, 1, 3):
        await bench.submit(job_id=number(n), created_at=CREATED_AT + timedelta(seconds=n))
    found = await all_pages(bench, ALL, limit=2)
    assert [job.job.job_id.int for job in found] == [3, 2, 1]


@rule_for(JobStatus)
async def a_list_by_status_has_just_that_status(bench: Bench, status: JobStatus) -> None:
    ids = {one: (await bench.bring_to(one))[0] for one in _claimable_order()}
    page = await bench.store.find(JobFilter(statuses=frozenset({status})), limit=10)
    assert [job.job.job_id for job in page.items] == [ids[status]]
    assert [job.status for job in page.items] == [status]


def _claimable_order() -> list[JobStatus]:
    """Queued last, or `bring_to` would claim it again for the next one."""
    return sorted(JobStatus, key=lambda status: status is JobStatus.QUEUED)


@rule
async def a_list_over_several_statuses_is_one_list(bench: Bench) -> None:
    ids = [(await bench.bring_to(one))[0] for one in _claimable_order()]
    dead = frozenset({JobStatus.FAILED, JobStatus.POISONED, JobStatus.QUEUED})
    found = await all_pages(bench, JobFilter(statuses=dead), limit=1)
    assert {job.status for job in found} == dead
    assert [job.job.job_id for job in found] == sorted(
        (job.job.job_id for job in found), reverse=True
    )
    assert len(found) == 3
    assert len(await all_pages(bench, JobFilter(statuses=frozenset(JobStatus)), limit=4)) == len(
        ids
    )


@rule
async def every_filter_narrows(bench: Bench) -> None:
    match = await bench.submit(
        job_type="kind",
        queue="queue",
        subject_id="subject",
        created_by="owner",
        correlation_id="correlation",
        parent_job_id=UUID(int=9),
        created_at=CREATED_AT + HOUR,
    )
    await bench.submit()
    filters = [
        JobFilter(job_types=frozenset({"kind", "unknown"})),
        JobFilter(queues=frozenset({"queue"})),
        JobFilter(subject_id="subject"),
        JobFilter(created_by="owner"),
        JobFilter(correlation_id="correlation"),
        JobFilter(parent_job_id=UUID(int=9)),
        JobFilter(created_from=CREATED_AT + HOUR),
        JobFilter(subject_id="subject", statuses=frozenset({JobStatus.QUEUED})),
    ]
    for job_filter in filters:
        page = await bench.store.find(job_filter, limit=10)
        assert [job.job.job_id for job in page.items] == [match], job_filter
    earlier = await bench.store.find(JobFilter(created_before=CREATED_AT + HOUR), limit=10)
    assert match not in [job.job.job_id for job in earlier.items]
    nobody = await bench.store.find(JobFilter(subject_id="other"), limit=10)
    assert (nobody.items, nobody.next) == ((), None)


@rule
async def dead_letters_are_found_by_reason(bench: Bench) -> None:
    await bench.bring_to(JobStatus.FAILED)
    run = await bench.start()
    await bench.finish(run, TypeDisabled())
    job_filter = JobFilter(
        statuses=frozenset({JobStatus.FAILED}), reasons=frozenset({Reason.TYPE_DISABLED})
    )
    page = await bench.store.find(job_filter, limit=10)
    assert [job.job.job_id for job in page.items] == [run.job.job_id]


@rule
async def jobs_are_found_by_the_code_of_their_last_error(bench: Bench) -> None:
    dead, _ = await bench.bring_to(JobStatus.FAILED)
    await bench.bring_to(JobStatus.COMPLETED)
    run = await bench.start()
    await bench.finish(run, RETRYABLE)
    for code, job_id in (("BROKEN", dead), (Code.NETWORK_ERROR, run.job.job_id)):
        found = await all_pages(bench, JobFilter(error_codes=frozenset({code, "none"})), limit=1)
        assert [job.job.job_id for job in found] == [job_id]
    completed = JobFilter(
        statuses=frozenset({JobStatus.COMPLETED}), error_codes=frozenset({"BROKEN"})
    )
    assert (await bench.store.find(completed, limit=10)).items == ()
    await bench.redrive(dead)
    assert (await all_pages(bench, JobFilter(error_codes=frozenset({"BROKEN"})), limit=1)) == []


@rule
async def jobs_are_found_by_how_many_attempts_have_begun(bench: Bench) -> None:
    for status in _claimable_order():
        await bench.bring_to(status)
    tried = await bench.submit(job_type="tried")
    for _ in range(2):
        (run,) = await bench.claim("tried")
        await bench.finish(run, RETRYABLE)
        bench.clock.advance(HOUR)
    begun = {least: await all_pages(bench, JobFilter(min_attempts=least), 4) for least in range(4)}
    every = await all_pages(bench, JobFilter(), limit=4)
    for least, found in begun.items():
        assert found == [job for job in every if job.attempt >= least]
    assert [job.job.job_id for job in begun[2] if job.job.job_type == "tried"] == [tried]
    assert begun[3] == [job for job in begun[3] if job.job.job_id != tried]
    (run,) = await bench.claim("tried")
    assert tried in {job.job.job_id for job in await all_pages(bench, JobFilter(min_attempts=3), 4)}


@rule_for(JobStatus)
async def a_span_of_time_narrows_every_status(bench: Bench, status: JobStatus) -> None:
    """Each has its own index, and its own column for the time."""
    ids = []
    for hours in range(4):
        created_at = CREATED_AT + hours * HOUR
        if status is JobStatus.QUEUED:
            ids.append(await bench.submit(created_at=created_at))
        else:
            ids.append((await bench.bring_to(status, created_at=created_at))[0])
    narrow = JobFilter(
        statuses=frozenset({status}),
        created_from=CREATED_AT + HOUR,
        created_before=CREATED_AT + 3 * HOUR,
    )
    found = await all_pages(bench, narrow, limit=1)
    assert [job.job.job_id for job in found] == [ids[2], ids[1]]


@rule
async def jobs_of_gantline_itself_can_be_left_out(bench: Bench) -> None:
    own = await bench.submit(job_type="gantline.webhook-delivery")
    others = {await bench.submit(job_type=name) for name in ("Gantline.mail", "gantline", "test")}
    found = await all_pages(bench, JobFilter(internal=False), limit=2)
    assert {job.job.job_id for job in found} == others
    assert own in {job.job.job_id for job in await all_pages(bench, JobFilter(), limit=2)}


@rule
async def a_redriven_job_leaves_the_dead_letters(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.FAILED)
    await bench.redrive(job_id)
    dead = JobFilter(statuses=frozenset({JobStatus.FAILED}))
    assert (await bench.store.find(dead, limit=10)).items == ()
    assert (await bench.recount())["Failed"] == 0


@rule
async def counts_are_what_a_recount_finds(bench: Bench) -> None:
    for status in _claimable_order():
        await bench.bring_to(status)
    await bench.submit(delay=HOUR)
    await bench.submit(queue="other", job_type="kind", priority=0)
    assert await bench.recount() == {
        "Queued": 3,
        "Running": 1,
        "Completed": 1,
        "Failed": 1,
        "Poisoned": 1,
        "Cancelled": 1,
    }
    first, second = await bench.store.counts(tenant_id=None)
    assert (first.queue, first.job_type, first.queued) == ("default", "test", 2)
    assert first.scheduled == 1
    assert (second.queue, second.job_type, second.queued) == ("other", "kind", 1)


@rule
async def counts_stay_true_when_they_are_added_up(bench: Bench) -> None:
    """A store may count changes, and add them up when it prunes."""
    for made in (1, 2):
        for status in (one for one in JobStatus if one.is_terminal):
            await bench.bring_to(status)
        await bench.submit(job_type="waiting")
        await bench.store.prune([], limit=1)
        assert await bench.recount() == {
            status: 0 if status is JobStatus.RUNNING else made for status in JobStatus
        }


@rule
async def each_tenant_has_its_own_counts(bench: Bench) -> None:
    """Also where jobs of several end in one call."""
    for tenant_id in ("a", "b", "b", "b"):
        await bench.submit(tenant_id=tenant_id)
    *ending, _ = await bench.claim()
    await bench.manager.settle([Ending(run, Success()) for run in ending])
    await bench.submit(tenant_id="a")
    since = bench.clock.now()
    bench.clock.advance(HOUR)
    await bench.submit(tenant_id="b")
    await bench.submit(tenant_id="b", delay=HOUR)
    for tenant_id, expected in (
        ("a", (1, 0, since, 0, 1)),
        ("b", (2, 1, bench.clock.now(), 1, 2)),
    ):
        (one,) = await bench.store.counts(tenant_id=tenant_id)
        found = (one.queued, one.scheduled, one.oldest_due_at, one.running, one.completed)
        assert found == expected


@rule
async def the_oldest_due_job_shows_how_long_a_queue_waits(bench: Bench) -> None:
    await bench.submit(priority=3)
    since = bench.clock.now()
    bench.clock.advance(HOUR)
    await bench.submit(priority=3)
    await bench.submit(priority=0)
    await bench.submit(delay=HOUR)
    for tenant_id in (None, "default"):
        (counts,) = await bench.store.counts(tenant_id=tenant_id)
        assert counts.oldest_due_at == since


@rule
async def derived_states_follow_from_what_is_stored(bench: Bench) -> None:
    scheduled = await bench.snapshot(await bench.submit(delay=HOUR))
    assert scheduled.derived(bench.clock.now()) is DerivedState.SCHEDULED
    assert scheduled.derived(bench.clock.now() + HOUR) is None
    run = await bench.start()
    await bench.finish(run, RETRYABLE)
    retrying = await bench.snapshot(run.job.job_id)
    assert retrying.derived(bench.clock.now()) is DerivedState.RETRYING
    bench.clock.advance(HOUR / 2)
    run = (await bench.claim())[0]
    await bench.cancel(run.job.job_id)
    stopping = await bench.snapshot(run.job.job_id)
    assert stopping.derived(bench.clock.now()) is DerivedState.CANCELLING


SHOWN = {
    DerivedState.SCHEDULED: {"scheduled", "snoozed"},
    DerivedState.RETRYING: {"retried", "crashed"},
    DerivedState.CANCELLING: {"cancelling"},
}


async def stand_in_every_state(bench: Bench, **fields: Any) -> None:
    """A job of each type stands as the type says; what waits, waits an hour."""
    begun = ("crashed", "retried", "snoozed", "released", "running", "cancelling", "ended", "dead")
    runs: dict[str, Run] = {}
    for job_type in begun:
        await bench.submit(job_type=job_type, **fields)
        runs[job_type] = (await bench.claim(job_type, session=f"of-{job_type}"))[0]
    await bench.store.expire_session("of-crashed")
    await bench.reap()
    await bench.finish(runs["retried"], RETRYABLE)
    await bench.finish(runs["snoozed"], Snoozed(HOUR))
    await bench.finish(runs["released"], Released())
    await bench.cancel(runs["cancelling"].job.job_id)
    await bench.finish(runs["ended"])
    await bench.finish(runs["dead"], PERMANENT)
    await bench.redrive(runs["dead"].job.job_id)
    await bench.submit(job_type="scheduled", delay=HOUR, **fields)
    await bench.submit(job_type="waiting", **fields)


async def types_in(bench: Bench, job_filter: JobFilter, limit: int = 1) -> set[str]:
    return {job.job.job_type for job in await all_pages(bench, job_filter, limit)}


@rule_for(DerivedState)
async def a_list_by_a_derived_state_has_just_the_jobs_that_show_it(
    bench: Bench, state: DerivedState
) -> None:
    await stand_in_every_state(bench)
    await stand_in_every_state(bench, tenant_id="theirs")
    job_filter = JobFilter(statuses=frozenset({state}))
    assert await types_in(bench, job_filter) == SHOWN[state]
    every = await all_pages(bench, JobFilter(), limit=50)
    now = bench.clock.now()
    for limit in (1, 3):
        found = await all_pages(bench, job_filter, limit)
        assert found == [job for job in every if job.derived(now) is state]


@rule
async def a_job_is_scheduled_until_the_instant_at_which_it_is_due(bench: Bench) -> None:
    await stand_in_every_state(bench)
    scheduled = JobFilter(statuses=frozenset({DerivedState.SCHEDULED}))
    bench.clock.advance(HOUR - timedelta(microseconds=1))
    assert await types_in(bench, scheduled) == SHOWN[DerivedState.SCHEDULED]
    bench.clock.advance(timedelta(microseconds=1))
    assert await types_in(bench, scheduled) == set()
    retrying = JobFilter(statuses=frozenset({DerivedState.RETRYING}))
    assert await types_in(bench, retrying) == SHOWN[DerivedState.RETRYING]


@rule
async def derived_states_and_statuses_are_one_list(bench: Bench) -> None:
    await stand_in_every_state(bench)
    queued = {"crashed", "retried", "snoozed", "released", "dead", "scheduled", "waiting"}
    cases: tuple[tuple[set[State], set[str]], ...] = (
        (set(DerivedState), set().union(*SHOWN.values())),
        ({JobStatus.QUEUED, DerivedState.SCHEDULED}, queued),
        ({JobStatus.COMPLETED, DerivedState.CANCELLING}, {"ended", "cancelling"}),
        (
            {JobStatus.RUNNING, DerivedState.RETRYING},
            {"running", "cancelling", "retried", "crashed"},
        ),
    )
    for states, expected in cases:
        job_filter = JobFilter(statuses=frozenset(states))
        found = [job.job.job_type for job in await all_pages(bench, job_filter, limit=2)]
        assert sorted(found) == sorted(expected), states


@rule
async def jobs_are_found_that_are_due_before_an_instant(bench: Bench) -> None:
    for hours in range(4):
        await bench.submit(job_type=f"in-{hours}", delay=hours * HOUR)
    run = await bench.start(job_type="test")
    await bench.finish(await bench.start(created_by="me"))
    at = bench.clock.now() + 2 * HOUR
    assert await types_in(bench, JobFilter(due_before=at)) == {"in-0", "in-1"}
    after = JobFilter(due_before=at + timedelta(microseconds=1))
    assert await types_in(bench, after) == {"in-0", "in-1", "in-2"}
    cases: tuple[tuple[set[State], set[str]], ...] = (
        ({DerivedState.SCHEDULED}, {"in-1"}),
        ({JobStatus.QUEUED, JobStatus.COMPLETED}, {"in-0", "in-1"}),
        ({JobStatus.RUNNING, JobStatus.COMPLETED, DerivedState.CANCELLING}, set()),
    )
    for states, expected in cases:
        both = JobFilter(due_before=at, statuses=frozenset(states))
        assert await types_in(bench, both) == expected, states
    await bench.finish(run, Snoozed(HOUR))
    assert await types_in(bench, JobFilter(due_before=at)) == {"in-0", "in-1", "test"}
