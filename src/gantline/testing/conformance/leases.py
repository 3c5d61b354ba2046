"""Rules for leases: renewing them, seeing them expire, and progress under them."""

from datetime import timedelta
from uuid import uuid4

from msgspec.structs import replace

from gantline.contract.outcome import LEASE_EXPIRED, Outcome, Success
from gantline.contract.results import Applied, NotFound, Renewal, Stale
from gantline.contract.snapshot import Progress, RunRef
from gantline.contract.status import JobStatus
from gantline.contract.transition import Transition
from gantline.testing.conformance.bench import HOUR, LEASE, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.rule import rule, rule_for


@rule
async def a_renewed_lease_lasts_longer(bench: Bench) -> None:
    run = await bench.start()
    bench.clock.advance(LEASE / 2)
    assert await bench.store.renew(run.session, [run.ref], lease=LEASE) == Renewal()
    job = await bench.snapshot(run.job.job_id)
    assert job.run is not None
    assert job.run.lease_until == bench.clock.now() + LEASE
    assert job.version == run.version


@rule
async def a_run_that_is_not_named_expires(bench: Bench) -> None:
    await bench.submit_many(2)
    kept, left = await bench.claim()
    bench.clock.advance(LEASE / 2)
    await bench.store.renew(kept.session, [kept.ref], lease=LEASE)
    bench.clock.advance(LEASE / 2)
    assert [run.ref for run in await bench.store.expired(limit=10)] == [left.ref]


@rule
async def a_lease_has_run_out_when_its_time_is_up(bench: Bench) -> None:
    run = await bench.start()
    bench.clock.advance(LEASE - timedelta(microseconds=1))
    assert await bench.store.expired(limit=10) == []
    bench.clock.advance(timedelta(microseconds=1))
    assert [late.ref for late in await bench.store.expired(limit=10)] == [run.ref]
    assert (await bench.reap()).requeued == 1


@rule
async def a_run_renewed_for_longer_is_one_run(bench: Bench) -> None:
    """When the time of its first lease is up, nothing happens."""
    run = await bench.start()
    await bench.store.renew(run.session, [run.ref], lease=HOUR)
    await bench.let_leases_expire()
    assert await bench.store.expired(limit=10) == []
    assert (await bench.recount())["Running"] == 1
    await bench.finish(run)


@rule_for((Success(), RETRYABLE, PERMANENT))
async def a_run_that_is_over_leaves_no_lease(bench: Bench, outcome: Outcome) -> None:
    await bench.finish(await bench.start(), outcome)
    before = await bench.recount()
    await bench.let_leases_expire()
    assert await bench.store.expired(limit=10) == []
    assert await bench.recount() == before


@rule
async def a_lease_that_ran_out_but_was_not_taken_can_be_renewed(bench: Bench) -> None:
    run = await bench.start()
    await bench.let_leases_expire()
    assert await bench.store.renew(run.session, [run.ref], lease=LEASE) == Renewal()
    assert await bench.store.expired(limit=10) == []
    await bench.finish(run)


@rule
async def a_run_that_is_over_is_reported_lost(bench: Bench) -> None:
    run = await bench.start()
    await bench.finish(run)
    unknown = RunRef(uuid4(), uuid4())
    renewal = await bench.store.renew(run.session, [run.ref, unknown], lease=LEASE)
    assert renewal.lost == {run.token, unknown.token}


@rule
async def a_run_of_another_session_is_reported_lost(bench: Bench) -> None:
    run = await bench.start(session="worker-1")
    renewal = await bench.store.renew("worker-2", [run.ref], lease=HOUR)
    assert renewal.lost == {run.token}
    job = await bench.snapshot(run.job.job_id)
    assert job.run is not None
    assert job.run.lease_until == run.lease_until


@rule
async def a_renewal_reports_a_cancel(bench: Bench) -> None:
    await bench.submit_many(2)
    cancelled, other = await bench.claim()
    await bench.cancel(cancelled.job.job_id)
    renewal = await bench.store.renew(other.session, [cancelled.ref, other.ref], lease=LEASE)
    assert renewal == Renewal(cancel_requested=frozenset({cancelled.token}))


@rule
async def expired_runs_come_page_by_page(bench: Bench) -> None:
    await bench.submit_many(7)
    runs = await bench.claim()
    assert await bench.store.expired(limit=10) == []
    await bench.let_leases_expire()
    seen, after = [], None
    while page := await bench.store.expired(limit=3, after=after):
        after = page[-1].job.job_id
        seen += [run.ref for run in page]
    assert seen == sorted((run.ref for run in runs), key=lambda ref: ref.job_id)


@rule
async def an_expired_run_comes_back_as_it_was_claimed(bench: Bench) -> None:
    run = await bench.start({"a": 1})
    await bench.let_leases_expire()
    (late,) = await bench.store.expired(limit=10)
    # How long it had been due is returned by the claim, and need not be stored.
    assert replace(late, waited_seconds=run.waited_seconds) == run


@rule
async def a_run_renewed_at_the_last_moment_is_not_taken_away(bench: Bench) -> None:
    """The reaper reads, the worker renews, the reaper writes: the write must not happen."""
    run = await bench.start()
    await bench.let_leases_expire()
    late = (await bench.store.expired(limit=1))[0]
    await bench.store.renew(run.session, [run.ref], lease=LEASE)
    crashed = Transition.crashed(late, LEASE_EXPIRED, delay=timedelta(0))
    assert await bench.store.apply([crashed]) == [Stale()]
    assert await bench.status(run.job.job_id) is JobStatus.RUNNING


@rule
async def the_leases_of_a_session_that_has_ended_run_out_at_once(bench: Bench) -> None:
    await bench.submit_many(5)
    ended = await bench.claim(limit=2, session="worker-1")
    living = await bench.claim(limit=3, session="worker-2")
    assert await bench.store.expire_session("worker-1") == 2
    late = await bench.store.expired(limit=10)
    assert {run.ref for run in late} == {run.ref for run in ended}
    assert all(run.lease_until == bench.clock.now() for run in late)
    assert (await bench.reap()).requeued == 2
    for run in living:
        job = await bench.snapshot(run.job.job_id)
        assert job.run is not None
        assert job.run.lease_until == run.lease_until
        await bench.finish(run)


@rule
async def a_session_without_leases_can_end_too(bench: Bench) -> None:
    run = await bench.start(session="worker-1")
    assert await bench.store.expire_session("worker") == 0
    assert await bench.store.expire_session("worker-2") == 0
    assert await bench.store.expired(limit=10) == []
    await bench.finish(run)
    assert await bench.store.expire_session("worker-1") == 0


@rule
async def a_session_that_was_taken_for_ended_keeps_what_it_renews_in_time(bench: Bench) -> None:
    run = await bench.start()
    await bench.store.expire_session(run.session)
    late = (await bench.store.expired(limit=1))[0]
    assert await bench.store.renew(run.session, [run.ref], lease=LEASE) == Renewal()
    crashed = Transition.crashed(late, LEASE_EXPIRED, delay=timedelta(0))
    assert await bench.store.apply([crashed]) == [Stale()]
    await bench.finish(run)


@rule
async def a_run_taken_from_a_session_that_has_ended_is_fenced(bench: Bench) -> None:
    run = await bench.start(session="worker-1")
    await bench.store.expire_session("worker-1")
    assert (await bench.reap()).requeued == 1
    bench.clock.advance(HOUR)
    (heir,) = await bench.claim(session="worker-2")
    renewal = await bench.store.renew("worker-1", [run.ref], lease=LEASE)
    assert renewal.lost == {run.token}
    assert not (await bench.settle(run, Success())).accepted
    await bench.finish(heir)


@rule
async def progress_shows_and_bumps_the_version(bench: Bench) -> None:
    run = await bench.start()
    answers = await bench.store.progress([Progress(run.ref, 40.5, "parsing")])
    assert answers == [Applied(3)]
    job = await bench.snapshot(run.job.job_id)
    assert job.run is not None
    assert (job.run.percent, job.run.phase, job.version) == (40.5, "parsing", 3)
    assert await bench.store.history(run.job.job_id, tenant_id=None) == []
    settled = await bench.settle(run, Success())
    assert settled.result == Applied(4)


@rule
async def progress_and_a_cancel_keep_what_the_other_wrote(bench: Bench) -> None:
    run = await bench.start()
    bench.clock.advance(1)
    await bench.store.progress([Progress(run.ref, 40.5, "parsing")])
    await bench.cancel(run.job.job_id)
    for percent, phase in ((40.5, "parsing"), (50.0, "writing")):
        job = await bench.snapshot(run.job.job_id)
        assert job.run is not None
        assert (job.run.percent, job.run.phase) == (percent, phase)
        assert (job.run.cancel_requested, job.run.started_at) == (True, run.started_at)
        await bench.store.progress([Progress(run.ref, 50.0, "writing")])


@rule
async def progress_of_an_unknown_job_is_not_found(bench: Bench) -> None:
    unknown = RunRef(uuid4(), uuid4())
    assert await bench.store.progress([Progress(unknown, 1.0)]) == [NotFound()]
