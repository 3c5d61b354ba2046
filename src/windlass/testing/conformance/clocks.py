"""Clock shifts: a clock that jumps delays or hastens work, and never breaks a promise."""

from datetime import timedelta

from windlass.contract.outcome import Success
from windlass.contract.results import Renewal
from windlass.contract.status import JobStatus
from windlass.manager.sequencer import Sequencer
from windlass.testing.conformance.bench import HOUR, LEASE, PERMANENT, Bench
from windlass.testing.conformance.rule import rule, rule_for

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
    await Sequencer(bench.store).run_once()
    events = await bench.store.events(after=0, limit=10)
    assert [event.entry for event in events] == rows


@rule
async def the_clock_of_the_store_is_what_it_tells(bench: Bench) -> None:
    assert await bench.store.ping() == bench.clock.now()
