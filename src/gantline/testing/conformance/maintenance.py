"""Rules for maintenance on this store: reaping, budgets, pruning, and two leaders at once."""

import asyncio
from datetime import timedelta
from uuid import UUID

import msgspec

from gantline.contract.outcome import LeaseLost
from gantline.contract.query import PruneRule
from gantline.contract.records import RecordWrite
from gantline.contract.retention import Retention
from gantline.contract.status import DEAD, TERMINAL, Event, JobStatus, Reason
from gantline.contract.transition import StateGuard
from gantline.manager.cursors import CURSORS, ConsumerCursor
from gantline.manager.maintenance import Maintenance
from gantline.manager.manager import Ending
from gantline.manager.orphans import OrphanSweeper
from gantline.manager.pruner import Pruner
from gantline.manager.reaper import Reaped
from gantline.manager.sequencer import number_events
from gantline.manager.sessions import Session, register
from gantline.manager.switches import SWITCHES, Switches
from gantline.testing.conformance.bench import HOUR, Bench
from gantline.testing.conformance.rule import rule, rule_for


@rule
async def a_crash_costs_no_attempt_but_counts_for_itself(bench: Bench) -> None:
    run = await bench.start(max_attempts=1)
    await bench.let_leases_expire()
    assert await bench.reap() == Reaped(requeued=1)
    job = await bench.snapshot(run.job.job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.QUEUED, 0, 1)
    assert job.run_at == bench.clock.now()
    assert job.last is not None
    assert (job.last.event, job.last.session) == (Event.CRASHED, run.session)


@rule
async def the_third_crash_poisons(bench: Bench) -> None:
    job_id = await bench.submit(max_attempts=1)
    for crashes in (1, 2):
        await bench.claim()
        await bench.reap_expired()
        assert (await bench.snapshot(job_id)).crashes == crashes
        bench.clock.advance(HOUR)
    suspect = (await bench.claim(suspects=(1,)))[0]
    assert suspect.is_suspect
    await bench.let_leases_expire()
    assert await bench.reap() == Reaped(poisoned=1)
    job = await bench.snapshot(job_id)
    assert job.last is not None
    assert (job.status, job.last.reason) == (JobStatus.POISONED, Reason.LEASE_EXPIRED)


@rule
async def a_crash_after_a_cancel_request_cancels(bench: Bench) -> None:
    run = await bench.start()
    await bench.cancel(run.job.job_id)
    await bench.let_leases_expire()
    assert await bench.reap() == Reaped(cancelled=1)
    assert await bench.status(run.job.job_id) is JobStatus.CANCELLED


@rule
async def the_sweep_goes_on_until_nothing_is_left(bench: Bench) -> None:
    await bench.submit_many(450)
    assert len(await bench.claim(limit=450)) == 450
    await bench.let_leases_expire()
    assert await bench.reap() == Reaped(requeued=450)
    assert await bench.reap() == Reaped()


@rule
async def a_live_lease_is_left_alone(bench: Bench) -> None:
    run = await bench.start()
    assert await bench.reap() == Reaped()
    await bench.finish(run)


@rule
async def two_leaders_at_once_do_no_harm(bench: Bench) -> None:
    """Leadership only saves work: with both believing, each crash still counts once."""
    other = await bench.another()
    ids = await bench.submit_many(30)
    await bench.claim()
    await bench.let_leases_expire()
    swept = await asyncio.gather(*(b.reap() for b in (bench, other, bench, other)))
    # Both may report the same crash; the jobs show that it is counted once.
    assert sum(report.requeued for report in swept) >= 30
    for job in await bench.store.get(ids, tenant_id=None):
        assert job is not None
        assert (job.crashes, job.attempt, job.version) == (1, 0, 3)


@rule
async def maintenance_is_run_by_the_leader_alone(bench: Bench) -> None:
    first = Maintenance(bench.store, Switches(bench.store), "a")
    second = Maintenance(bench.store, Switches(bench.store), "b")
    report = await first.run_once()
    assert report is not None
    assert report.term == 1
    assert await second.run_once() is None
    await first.resign()
    report = await second.run_once()
    assert report is not None
    assert report.term == 2


@rule
async def what_is_older_than_its_retention_is_pruned(bench: Bench) -> None:
    done, _ = await bench.bring_to(JobStatus.COMPLETED)
    dead, _ = await bench.bring_to(JobStatus.FAILED)
    live = await bench.submit()
    pruner = Pruner(bench.store, Switches(bench.store), retention=Retention.split(HOUR, 3 * HOUR))
    assert (await pruner.run_once()).jobs == 0
    bench.clock.advance(2 * HOUR)
    assert (await pruner.run_once()).jobs == 1
    assert await _kept(bench, done, dead, live) == [dead, live]
    bench.clock.advance(2 * HOUR)
    assert (await pruner.run_once()).jobs == 1
    assert await _kept(bench, done, dead, live) == [live]
    assert sum((await bench.recount()).values()) == 1


@rule
async def what_ended_at_the_limit_itself_is_kept(bench: Bench) -> None:
    moment = timedelta(microseconds=1)
    for _ in range(2):
        await bench.bring_to(JobStatus.COMPLETED)
        bench.clock.advance(moment)
    for before, removed in ((bench.clock.now() - moment, 1), (bench.clock.now(), 1)):
        rules = [PruneRule(JobStatus.COMPLETED, before)]
        assert (await bench.store.prune(rules, limit=10)).jobs == removed


@rule
async def of_many_old_jobs_the_oldest_go_first(bench: Bench) -> None:
    ids = []
    for _ in range(3):
        ids.append((await bench.bring_to(JobStatus.COMPLETED))[0])
        bench.clock.advance(HOUR)
    rules = [PruneRule(JobStatus.COMPLETED, bench.clock.now())]
    assert (await bench.store.prune(rules, limit=1)).jobs == 1
    assert await _kept(bench, *ids) == ids[1:]


@rule
async def a_job_that_runs_again_is_not_pruned_by_its_old_end(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.FAILED)
    await bench.redrive(job_id)
    bench.clock.advance(HOUR)
    rules = [PruneRule(JobStatus.FAILED, bench.clock.now())]
    pruned = await bench.store.prune(rules, limit=10)
    assert (pruned.jobs, pruned.overdue) == (0, timedelta(0))
    assert await bench.status(job_id) is JobStatus.QUEUED


@rule
async def exempt_jobs_do_not_hide_old_ones_after_them(bench: Bench) -> None:
    for _ in range(5):
        await bench.bring_to(JobStatus.FAILED)
    old, _ = await bench.bring_to(JobStatus.COMPLETED)
    bench.clock.advance(2 * HOUR)
    pruner = Pruner(bench.store, Switches(bench.store), retention=Retention.split(HOUR, 100 * HOUR))
    assert (await pruner.run_once()).jobs == 1
    assert await _kept(bench, old) == []


@rule
async def the_slowest_durable_cursor_holds_the_pruner_back(bench: Bench) -> None:
    await bench.bring_to(JobStatus.COMPLETED)
    await bench.bring_to(JobStatus.COMPLETED)
    await number_events(bench.store)
    bench.clock.advance(2 * HOUR)
    pruner = Pruner(bench.store, Switches(bench.store), retention=Retention.split(HOUR, HOUR))
    await bench.store.write_records([_cursor("fast", 99), _cursor("slow", 0)])
    assert (await pruner.run_once()).jobs == 0
    await bench.store.write_records([_cursor("slow", 99)])
    assert (await pruner.run_once()).jobs == 2


@rule
async def how_long_the_oldest_job_should_have_been_gone_is_known(bench: Bench) -> None:
    kept = {
        JobStatus.COMPLETED: HOUR,
        JobStatus.FAILED: HOUR,
        JobStatus.POISONED: 2 * HOUR,
        JobStatus.CANCELLED: HOUR,
    }

    async def prune(limit: int) -> tuple[int, timedelta]:
        now = bench.clock.now()
        rules = [PruneRule(status, now - retention) for status, retention in kept.items()]
        pruned = await bench.store.prune(rules, limit=limit)
        return pruned.jobs, pruned.overdue

    assert await prune(0) == (0, timedelta(0))
    for status in (JobStatus.POISONED, JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED):
        await bench.bring_to(status)
        bench.clock.advance(HOUR / 2)
    # The newest ended half an hour ago, the oldest two hours ago.
    for limit, removed, overdue in ((0, 0, 0.5), (1, 1, 0), (1, 0, 0)):
        assert await prune(limit) == (removed, overdue * HOUR)
    bench.clock.advance(5 * HOUR)
    for removed, overdue in ((0, 5.0), (1, 5.0), (1, 4.5), (1, 0)):
        assert await prune(removed) == (removed, overdue * HOUR)


@rule
async def the_oldest_of_all_statuses_is_measured(bench: Bench) -> None:
    ending = (JobStatus.COMPLETED, JobStatus.CANCELLED, JobStatus.FAILED)
    for status in (*ending, *reversed(ending)):
        await bench.bring_to(status)
        bench.clock.advance(HOUR)
    for statuses in (DEAD | TERMINAL, DEAD):
        rules = [PruneRule(status, bench.clock.now()) for status in statuses]
        oldest = (6 if JobStatus.COMPLETED in statuses else 4) * HOUR
        assert (await bench.store.prune(rules, limit=0)).overdue == oldest


@rule_for(status for status in JobStatus if status.is_terminal)
async def a_deleted_job_leaves_nothing_behind(bench: Bench, status: JobStatus) -> None:
    job_id, _ = await bench.bring_to(status)
    job = await bench.snapshot(job_id)
    guard = StateGuard(job.status, job.job.tenant_id, job.version)
    await bench.store.delete([(job_id, guard)])
    await number_events(bench.store)
    assert await bench.store.events(after=0, limit=10) == []
    assert await bench.store.dead_counts(tenant_id=None) == []
    bench.clock.advance(HOUR)
    pruned = await bench.store.prune([PruneRule(status, bench.clock.now())], limit=10)
    assert (pruned.jobs, pruned.overdue) == (0, timedelta(0))
    assert set((await bench.recount()).values()) == {0}


@rule
async def a_job_that_is_kept_for_a_consumer_is_overdue(bench: Bench) -> None:
    await bench.bring_to(JobStatus.COMPLETED)
    await number_events(bench.store)
    bench.clock.advance(3 * HOUR)
    rules = [PruneRule(JobStatus.COMPLETED, bench.clock.now() - HOUR)]
    kept = await bench.store.prune(rules, limit=10, keep_events_after=0)
    assert (kept.jobs, kept.overdue) == (0, 2 * HOUR)


@rule
async def a_job_finished_just_before_the_reaper_writes_stays_finished(bench: Bench) -> None:
    run = await bench.start()
    await bench.let_leases_expire()
    late = await bench.store.expired(limit=10)
    await bench.finish(run)
    settled = await bench.manager.settle([Ending(one, LeaseLost()) for one in late])
    assert [answer.accepted for answer in settled] == [False]
    assert await bench.status(run.job.job_id) is JobStatus.COMPLETED


async def _kept(bench: Bench, *ids: UUID) -> list[UUID]:
    jobs = await bench.store.get(ids, tenant_id=None)
    return [job.job.job_id for job in jobs if job]


@rule
async def no_cursor_and_no_switch_is_overlooked_however_many_there_are(bench: Bench) -> None:
    await bench.bring_to(JobStatus.COMPLETED)
    bench.clock.advance(2 * HOUR)
    many = [_cursor(f"consumer-{number:05}", 99) for number in range(1001)]
    await bench.store.write_records([*many, _cursor("zzz", 0)])
    assert (
        await Pruner(
            bench.store, Switches(bench.store), retention=Retention.split(HOUR, HOUR)
        ).run_once()
    ).jobs == 0
    await bench.store.write_records(
        [RecordWrite(SWITCHES, f"paused-type/{number:05}", b"true") for number in range(1001)]
    )
    switches = Switches(bench.store)
    await switches.pause_type("zzz")
    assert switches.running(("zzz",)) == ()


@rule
async def a_type_nobody_handles_is_poisoned_after_its_grace(bench: Bench) -> None:
    sweeper = OrphanSweeper(bench.store, grace=HOUR)
    orphan = await bench.submit(job_type="orphan")
    later = await bench.submit(job_type="orphan", delay=10 * HOUR)
    handled = await bench.submit(job_type="handled")
    await register(bench.store, _session(bench, "handled"))
    assert await sweeper.run_once() == 0
    bench.clock.advance(HOUR / 2)
    await register(bench.store, _session(bench, "handled"))
    assert await sweeper.run_once() == 0
    bench.clock.advance(HOUR / 2)
    await register(bench.store, _session(bench, "handled"))
    assert await sweeper.run_once() == 1
    job = await bench.snapshot(orphan)
    assert job.last is not None
    assert (job.status, job.last.reason) == (JobStatus.POISONED, Reason.NO_HANDLER)
    assert await bench.status(later) is JobStatus.QUEUED
    assert await bench.status(handled) is JobStatus.QUEUED


@rule
async def a_worker_that_comes_back_in_time_saves_its_type(bench: Bench) -> None:
    sweeper = OrphanSweeper(bench.store, grace=HOUR)
    job_id = await bench.submit(job_type="canary")
    await sweeper.run_once()
    bench.clock.advance(HOUR / 2)
    await register(bench.store, _session(bench, "canary"))
    assert await sweeper.run_once() == 0
    bench.clock.advance(HOUR / 2)  # the session is gone again, and the grace starts anew
    assert await sweeper.run_once() == 0
    assert await bench.status(job_id) is JobStatus.QUEUED


def _session(bench: Bench, *job_types: str) -> Session:
    return Session(
        session_id="session",
        host="host",
        pid=1,
        version="0",
        started_at=bench.clock.now(),
        last_seen_at=bench.clock.now(),
        queues={"default": 1},
        job_types=job_types,
    )


def _cursor(name: str, position: int) -> RecordWrite:
    value = msgspec.json.encode(ConsumerCursor(position=position))
    return RecordWrite(CURSORS, name, value)
