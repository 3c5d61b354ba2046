"""Clock shifts: a clock that jumps delays or hastens work, and never breaks a promise."""

from datetime import timedelta

from gantline.contract.outcome import Success
from gantline.contract.results import Renewal
from gantline.contract.status import JobStatus
from gantline.manager.sequencer import number_events
from gantline.testing.conformance.bench import HOUR, LEASE, PERMANENT, Bench
from gantline.testing.conformance.rule import rule, rule_for

JUMPS = (timedelta(hours=1), timedelta(hours=-1), timedelta(days=400), timedelta(days=-400))


@rule_for(JUMPS)
async def a_run_can_end_across_a_jump(bench: Bench, jump: timedelta) -> None:
    run = await bench.start()
    bench.clock.shift(jump)
    await bench.finish(run)
    job = await bench.snapshot(run.job.job_id)
    assert job.status is JobStatus.COMPLETED
    assert job.completed_at == bench.clock.now()


@rule
async def a_jump_forward_takes_jobs_over_but_fences_the_old_run(bench: Bench) -> None:
    run = await bench.start()
    bench.clock.shift(HOUR)
    assert (await bench.reap()).requeued == 1
    bench.clock.shift(HOUR)
    heir = (await bench.claim(session="worker-2"))[0]
    assert not (await bench.settle(run, Success())).accepted
    await bench.finish(heir)


@rule
async def a_jump_backward_lets_a_lease_live_longer_and_no_more(bench: Bench) -> None:
    run = await bench.start()
    bench.clock.shift(-HOUR)
    await bench.let_leases_expire()
    assert await bench.store.expired(limit=10) == []
    assert await bench.store.renew(run.session, [run.ref], lease=LEASE) == Renewal()
    await bench.let_leases_expire()
    assert (await bench.reap()).requeued == 1


@rule_for(jump for jump in JUMPS if jump < timedelta(0))
async def a_jump_backward_costs_a_dead_worker_s_job_one_lease_at_most(
    bench: Bench, jump: timedelta
) -> None:
    run = await bench.start()
    bench.clock.shift(jump)
    assert await bench.store.expired(limit=10) == []
    job = await bench.snapshot(run.job.job_id)
    assert job.run is not None
    assert job.run.lease_until == bench.clock.now() + LEASE
    await bench.let_leases_expire()
    assert (await bench.reap()).requeued == 1


@rule
async def a_lease_is_cut_to_the_length_it_was_renewed_for(bench: Bench) -> None:
    await bench.submit_many(2)
    longer, shorter = await bench.claim()
    await bench.store.renew(longer.session, [longer.ref], lease=2 * LEASE)
    await bench.store.renew(shorter.session, [shorter.ref], lease=LEASE / 2)
    bench.clock.shift(-HOUR)
    assert await bench.store.expired(limit=10) == []
    bench.clock.advance(LEASE)
    assert [run.ref for run in await bench.store.expired(limit=10)] == [shorter.ref]
    bench.clock.advance(LEASE)
    assert len(await bench.store.expired(limit=10)) == 2


@rule
async def a_lease_that_is_no_longer_than_it_was_given_for_is_not_cut(bench: Bench) -> None:
    run = await bench.start()
    bench.clock.advance(LEASE / 2)
    bench.clock.shift(-LEASE / 4)
    assert await bench.store.expired(limit=10) == []
    job = await bench.snapshot(run.job.job_id)
    assert job.run is not None
    assert job.run.lease_until == run.lease_until


@rule_for(JUMPS)
async def versions_fences_and_events_keep_their_order(bench: Bench, jump: timedelta) -> None:
    run = await bench.start()
    await bench.finish(run, PERMANENT)
    bench.clock.shift(jump)
    await bench.redrive(run.job.job_id)
    again = (await bench.claim())[0]
    await bench.finish(again)
    rows = await bench.store.history(run.job.job_id, tenant_id=None)
    assert [row.version for row in rows] == sorted({row.version for row in rows})
    await number_events(bench.store)
    events = await bench.store.events(after=0, limit=10)
    assert [event.entry for event in events] == rows


@rule
async def a_clock_that_is_set_back_does_not_make_a_leader_for_ever(bench: Bench) -> None:
    first = await bench.store.lead("role", "a", lease=LEASE)
    assert first is not None
    bench.clock.shift(-HOUR)
    second = await bench.store.lead("role", "b", lease=LEASE)
    assert second is not None
    assert (second.term, second.until) == (2, bench.clock.now() + LEASE)
    assert await bench.store.lead("role", "a", lease=LEASE) is None


@rule
async def a_ping_returns_the_time_of_the_store(bench: Bench) -> None:
    assert await bench.store.ping() == bench.clock.now()
