"""Crash points: the process dies before or after each store call; nothing accepted is lost."""

from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from gantline.contract.outcome import Success
from gantline.contract.results import Applied, Duplicate
from gantline.contract.snapshot import Progress, Run
from gantline.contract.status import Event, JobStatus
from gantline.contract.submission import NewJob
from gantline.manager.manager import Ending
from gantline.manager.reaper import Reaper
from gantline.manager.submitter import Submission
from gantline.testing.conformance.bench import HOUR, LEASE, Bench
from gantline.testing.conformance.rule import rule_for
from gantline.testing.factories import make_job, make_new
from gantline.testing.faults import Crash, CrashPoint

_CALLS = 7
_JOBS = 3


class Point(NamedTuple):
    at: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} call {self.at}"


@rule_for(Point(at, after) for at in range(1, _CALLS + 1) for after in (False, True))
async def whatever_was_accepted_ends_once(bench: Bench, point: Point) -> None:
    crash = CrashPoint(at=point.at, after=point.after)
    dying = bench.over(crash.wrap(bench.store))
    jobs = [make_new(n) for n in range(_JOBS)]
    with suppress(Crash):
        await _life(dying, jobs)
    assert crash.reached
    # The submitter tries again with the same ids, as one does without an answer.
    answers = await bench.store.insert(jobs)
    assert all(isinstance(answer, Applied | Duplicate) for answer in answers)
    await _others_finish(bench)
    stored = await bench.store.get([new.job.job_id for new in jobs], tenant_id=None)
    for job in stored:
        assert job is not None
        assert job.status is JobStatus.COMPLETED
        rows = await bench.store.history(job.job.job_id, tenant_id=None)
        assert Counter(row.event for row in rows)[Event.COMPLETED] == 1
    follow_ups = await bench.claim("next", limit=1000)
    assert Counter(run.job.data() for run in follow_ups) == dict.fromkeys(range(_JOBS), 1)


async def _life(bench: Bench, jobs: list[NewJob]) -> None:
    await bench.store.insert(jobs)
    runs = await bench.claim()
    await bench.store.renew("worker-1", [run.ref for run in runs], lease=LEASE)
    await bench.store.progress([Progress(run.ref, 10.0) for run in runs])
    await bench.manager.settle([_done(bench, run) for run in runs[:1]])
    await bench.manager.settle([_done(bench, run) for run in runs[1:]])
    await Reaper(bench.store).run_once()


async def _others_finish(bench: Bench) -> None:
    for _ in range(3):
        await bench.reap_expired()
        bench.clock.advance(HOUR)
        runs = await bench.claim(session="worker-2")
        await bench.manager.settle([_done(bench, run) for run in runs])


def _done(bench: Bench, run: Run) -> Ending:
    follow_up = make_job(run.job.data(), job_type="next", idempotency_key=f"next-{run.job.data()}")
    return Ending(
        run, Success(follow_ups=(bench.manager.submitter.prepare(Submission(follow_up)),))
    )
