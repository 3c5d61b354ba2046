"""The fence matrix: a run that is over can write nothing, whoever has the job now."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple

from gantline.contract.outcome import Released, Snoozed
from gantline.contract.results import Applied, Stale
from gantline.contract.snapshot import Progress, Run
from gantline.contract.status import JobStatus
from gantline.contract.transition import Transition
from gantline.testing.conformance.bench import HOUR, LEASE, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.conformance.states import RUN_VERBS, Verb, has_ended_run

Step = Callable[[Bench, Run], Awaitable[None]]


async def _reaped(bench: Bench, run: Run) -> None:
    await bench.reap_expired()


async def _reclaimed_by_another(bench: Bench, run: Run) -> None:
    await _reaped(bench, run)
    await _claim_again(bench, "worker-2")


async def _reclaimed_by_the_same(bench: Bench, run: Run) -> None:
    await _reaped(bench, run)
    await _claim_again(bench, run.session)


async def _snoozed(bench: Bench, run: Run) -> None:
    await bench.finish(run, Snoozed(timedelta(0)))


async def _snoozed_and_claimed(bench: Bench, run: Run) -> None:
    await _snoozed(bench, run)
    await _claim_again(bench, run.session)


async def _released_and_claimed(bench: Bench, run: Run) -> None:
    await bench.finish(run, Released())
    await _claim_again(bench, run.session)


async def _taken_away(bench: Bench, run: Run) -> None:
    """By an operator: it costs no attempt, and the next run has a higher fence."""
    job = await bench.snapshot(run.job.job_id)
    taken = Transition.taken_away(job, actor="op")
    for _ in range(2):  # its answer may be lost
        assert await bench.store.apply([taken]) == [Applied(job.version + 1)]
    left = await bench.snapshot(run.job.job_id)
    assert (left.status, left.attempt) == (JobStatus.QUEUED, run.attempt - 1)
    assert left.fence == run.fence


async def _taken_away_and_claimed(bench: Bench, run: Run) -> None:
    await _taken_away(bench, run)
    await _claim_again(bench, run.session)
    again = await bench.snapshot(run.job.job_id)
    assert (again.attempt, again.fence) == (run.attempt, run.fence + 1)


async def _retried_and_claimed(bench: Bench, run: Run) -> None:
    await bench.finish(run, RETRYABLE)
    await _claim_again(bench, run.session)


async def _redriven(bench: Bench, run: Run) -> None:
    await bench.finish(run, PERMANENT)
    await bench.redrive(run.job.job_id)


async def _redriven_and_claimed(bench: Bench, run: Run) -> None:
    await _redriven(bench, run)
    await _claim_again(bench, run.session)


async def _completed(bench: Bench, run: Run) -> None:
    await bench.finish(run)


async def _cancelled(bench: Bench, run: Run) -> None:
    await _snoozed(bench, run)
    await bench.cancel(run.job.job_id)


async def _claim_again(bench: Bench, session: str) -> None:
    bench.clock.advance(HOUR)
    assert len(await bench.claim(session=session)) == 1


SITUATIONS: tuple[Step, ...] = (
    _reaped,
    _reclaimed_by_another,
    _reclaimed_by_the_same,
    _snoozed,
    _snoozed_and_claimed,
    _released_and_claimed,
    _taken_away,
    _taken_away_and_claimed,
    _retried_and_claimed,
    _redriven,
    _redriven_and_claimed,
    _completed,
    _cancelled,
)


class Case(NamedTuple):
    situation: Step
    verb: Verb

    def __str__(self) -> str:
        return f"{self.verb.name} after {self.situation.__name__.strip('_')}"


@rule_for(Case(situation, verb) for situation in SITUATIONS for verb in RUN_VERBS)
async def a_run_that_is_over_cannot_end_the_job(bench: Bench, case: Case) -> None:
    run = await bench.start()
    await case.situation(bench, run)
    await _let_the_lease_of_the_newer_run_expire(bench, case)
    before = await bench.snapshot(run.job.job_id)
    rows = await bench.store.history(run.job.job_id, tenant_id=None)
    transition = case.verb.make(before, run)
    answer = (await bench.store.apply([transition]))[0]
    if has_ended_run(rows, run, transition):
        assert isinstance(answer, Applied)
    else:
        assert answer == Stale()
    assert await bench.snapshot(run.job.job_id) == before
    assert await bench.store.history(run.job.job_id, tenant_id=None) == rows


async def _let_the_lease_of_the_newer_run_expire(bench: Bench, case: Case) -> None:
    if case.verb.name == "reap":
        # Even then it is for the newer run's own token alone.
        await bench.let_leases_expire()


@rule_for(SITUATIONS)
async def a_run_that_is_over_cannot_be_renewed_or_progress(bench: Bench, situation: Step) -> None:
    run = await bench.start()
    await situation(bench, run)
    before = await bench.snapshot(run.job.job_id)
    renewal = await bench.store.renew(run.session, [run.ref], lease=10 * LEASE)
    assert renewal.lost == {run.token}
    assert await bench.store.progress([Progress(run.ref, 99.0, "zombie")]) == [Stale()]
    assert await bench.snapshot(run.job.job_id) == before


@rule
async def the_fence_only_grows(bench: Bench) -> None:
    job_id = await bench.submit(max_attempts=50)
    fences = []
    for step in (
        Snoozed(timedelta(0)),
        Released(),
        RETRYABLE,
        None,
        PERMANENT,
    ):
        run = (await bench.claim())[0]
        fences.append(run.fence)
        if step is None:
            await bench.reap_expired()
        else:
            await bench.finish(run, step)
        if await bench.status(job_id) is JobStatus.FAILED:
            await bench.redrive(job_id)
        bench.clock.advance(HOUR)
    fences.append((await bench.claim())[0].fence)
    assert fences == [1, 2, 3, 4, 5, 6]
