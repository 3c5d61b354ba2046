"""Workers of the battery passport that die by SIGKILL, one after the other, until all is done.

    python -m tests.examples.killed_passports STORE OUTBOX OUT MOMENT

The first one does what there is without documents; then a sample is sent in. At every step a
worker dies at that moment, and the next one takes over on a clock that is far enough ahead for all
leases to be over. In the end all rows, and how often each job was run, are written to OUT.
"""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from examples.battery_passport import assembly
from examples.battery_passport.assembly import make_jobs
from examples.battery_passport.database import Database, Step
from examples.battery_passport.signing import KEY_VARIABLE
from gantline import Context, Gantline, JobDefaults, JobStatus, WorkerSettings
from gantline.contract.query import JobFilter
from gantline.manager.reaper import Reaper
from gantline.testing.liveness import watching
from gantline.testing.readiness import of_worker
from tests.examples.passports import JOBS_OF_A_SAMPLE, SIGNING_KEY, all_jobs, lasting_rows, upload

MOMENTS: Final = ("claimed", "written", "ended")
_LEASE: Final = timedelta(seconds=10)
_STEP: Final = timedelta(seconds=40)
_STEPS_OF_A_CHILD: Final = 2
_RULES: Final = "RUN_RULE_TESTS"
_ENDED: Final = JobFilter(
    tenant_id=None,
    job_types=frozenset({_RULES, *JOBS_OF_A_SAMPLE}),
    statuses=frozenset(status for status in JobStatus if status.is_terminal),
)
_PATIENCE_SECONDS: Final = 60
# No lease of an earlier worker is left, and a job takes milliseconds; the machine may be slow.
_STARTS_WITHIN: Final = timedelta(seconds=10)


class ClockAhead:
    """The host's clock, but later."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def monotonic(self) -> float:
        return time.monotonic()


class Death:
    """Where a worker dies: at one moment of the first run of a step.

    claimed: before the handler; written: before its transaction is committed; ended: after that,
    and on Redis before the queue knows that the job is done.
    """

    def __init__(self, step: str, moment: str) -> None:
        self._step = step
        self._moment = moment

    def at(self, ctx: Context, moment: str) -> None:
        if (ctx.job.job_type, moment) == (self._step, self._moment):
            os.kill(os.getpid(), signal.SIGKILL)

    @asynccontextmanager
    async def around_runs(self, ctx: Context) -> AsyncIterator[None]:
        self.at(ctx, "claimed")
        yield
        self.at(ctx, "ended")

    def dying_database(self) -> type[Database]:
        death = self

        class DyingDatabase(Database):
            @asynccontextmanager
            async def step(self, ctx: Context, result: Any) -> AsyncIterator[Step]:
                async with super().step(ctx, result) as step:
                    yield step
                    death.at(ctx, "written")

        return DyingDatabase


class Place:
    """The databases that one worker after the other uses."""

    def __init__(self, store: str, outbox: str) -> None:
        self._store = store
        self._outbox = outbox or None
        self._steps = 0

    def jobs(self, death: Death | None = None) -> Gantline:
        """The application as the next worker has it: when all leases of the last one are over."""
        self._steps += 1
        clock = ClockAhead(self._steps * _STEP)
        hooks = [death.around_runs] if death else []
        jobs = make_jobs(self._store, outbox=self._outbox, defaults=JobDefaults(hooks=hooks))
        jobs.move_to(self._store, clock=clock)
        return jobs

    def in_child(self, task: Callable[[], Coroutine[Any, Any, None]]) -> int:
        """Do something in a process of its own; its signal, or 0."""
        self._steps += _STEPS_OF_A_CHILD
        pid = os.fork()
        if pid == 0:
            asyncio.run(task())
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    async def work(
        self, until: int, death: Death | None = None, *, is_undisturbed: bool = False
    ) -> None:
        """Work until so many jobs have ended, or until dead.

        Until no job is left would not do: one that moves is seen neither in outbox nor store.
        """
        if death is not None:
            _replace_database(death.dying_database())
        async with self.jobs() as jobs:  # who died is found, and then the backoff is over too
            await Reaper(jobs.store).run_once()
            if jobs.outbox is not None:
                await jobs.outbox.relay().sweep()
        jobs = self.jobs(death)
        settings = WorkerSettings(
            queues=jobs.default_queues(slots=1),  # with a worker only one run dies
            lease=_LEASE,
            poll=timedelta(seconds=0.1),
            maintain_every=timedelta(seconds=0.1),
        )
        async with asyncio.timeout(_PATIENCE_SECONDS), jobs, jobs.running(settings) as worker:
            readiness = [of_worker(worker)]
            async with watching(jobs.store, readiness=readiness, within=_STARTS_WITHIN) as oracle:
                while len((await jobs.store.find(_ENDED, limit=200)).items) < until:  # noqa: ASYNC110  # a store tells nobody
                    await asyncio.sleep(0.02)
            oracle.check()
            if is_undisturbed:
                await oracle.check_economy()

    async def send_in(self) -> None:
        async with self.jobs() as jobs:
            await upload(jobs, "nordcell-ev")


def _replace_database(database: type[Database]) -> None:
    """For this process, which ends with it."""
    setattr(assembly, "Database", database)  # noqa: B010  # a name that it only imports


async def report(place: Place, out: int) -> None:
    async with place.jobs() as jobs:
        found = await all_jobs(jobs)
        told = {
            "rows": await lasting_rows(jobs),
            "jobs": Counter(job.job.job_type for job in found),
            "statuses": Counter(job.status.value for job in found),
            "crashes": {job.job.job_type: job.crashes for job in found if job.crashes},
        }
    os.write(out, msgspec.json.encode(told))


def main(store: str, outbox: str, out: str, moment: str) -> None:
    os.environ[KEY_VARIABLE] = SIGNING_KEY
    place = Place(store, outbox)

    def work(*steps: str, until: int) -> None:
        """With a worker that dies at each of the steps, and a last one that lives."""
        for step in steps if moment else ():
            dying = partial(place.work, until, Death(step, moment))
            assert place.in_child(dying) == signal.SIGKILL, step
        living = partial(place.work, until, is_undisturbed=not moment)
        assert place.in_child(living) == 0

    work(_RULES, until=1)
    assert place.in_child(place.send_in) == 0
    work(*JOBS_OF_A_SAMPLE, until=1 + sum(JOBS_OF_A_SAMPLE.values()))
    assert place.in_child(partial(report, place, os.open(out, os.O_WRONLY | os.O_CREAT))) == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
