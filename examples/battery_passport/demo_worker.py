"""The demo's worker, a process of its own, so that it can be killed and its jobs be taken over.

`python -m examples.battery_passport.demo_worker STORE PACE` works until its standard input ends.
"""

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final, NamedTuple

from examples.battery_passport.assembly import make_jobs
from gantline import Context, Gantline, JobDefaults, Retry, WorkerSettings

_START_AGAIN_SECONDS: Final = 0.3


class WorkerState(NamedTuple):
    pid: int
    killed: int
    """How many of its predecessors were killed."""


class WorkerProcess:
    """Keeps one worker running: where it ends, whatever the reason, another is started."""

    def __init__(self, store: str, *, pace_seconds: float, say: Callable[[str], None]) -> None:
        self._say = say
        self.pace_seconds = pace_seconds
        self._store = store
        self._process: Process | None = None
        self._killed = 0

    @property
    def state(self) -> WorkerState:
        return WorkerState(0 if self._process is None else self._process.pid, self._killed)

    def kill(self) -> int:
        """End it as a crash would, by SIGKILL; return which process that was."""
        killed = self._process
        if killed is None or killed.returncode is not None:
            return 0  # the next one is being started
        killed.kill()
        self._killed += 1
        self._say(f"  Worker {killed.pid} was killed. Another one takes its jobs over.")
        return killed.pid

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._process = await self._start()
        keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            if self._process.stdin is not None:
                self._process.stdin.close()  # asks it to stop
            await self._process.wait()

    async def _keep(self) -> None:
        while self._process is not None:
            await self._process.wait()
            await asyncio.sleep(_START_AGAIN_SECONDS)
            self._process = await self._start()

    async def _start(self) -> Process:
        module = "examples.battery_passport.demo_worker"
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, self._store, str(self.pace_seconds)),
            stdin=PIPE,
            start_new_session=True,  # Ctrl-C is for the demo, which then stops this one
        )


class DemoHooks:
    """What the demo adds to every run: time to look at it, and one failure on purpose."""

    def __init__(self, pace_seconds: float) -> None:
        self._pace_seconds = pace_seconds

    @asynccontextmanager
    async def walk_slowly(self, ctx: Context) -> AsyncIterator[None]:
        """Handlers take milliseconds; people want to see what happens to documents."""
        if ctx.job.job_type != "RUN_RULE_TESTS":
            await asyncio.sleep(self._pace_seconds)
        yield

    @asynccontextmanager
    async def fail_once(self, ctx: Context) -> AsyncIterator[None]:
        """The first attempt to sign fails, so that there is a retry to see."""
        if ctx.job.job_type == "SIGN_PASSPORT" and ctx.attempt == 1:
            wait = timedelta(seconds=2 * self._pace_seconds)
            raise Retry("The key service did not answer (the demo's doing).", after=wait)
        yield


def make_demo_jobs(store: str, pace_seconds: float) -> Gantline:
    hooks = DemoHooks(pace_seconds)
    return make_jobs(store, defaults=JobDefaults(hooks=[hooks.walk_slowly, hooks.fail_once]))


async def main(store: str, pace: str) -> None:
    # The demo's terminal shows what happens to jobs; the worker's own lines would disturb that.
    logging.getLogger("gantline").setLevel(logging.CRITICAL)
    jobs = make_demo_jobs(store, float(pace))
    async with jobs, jobs.running(WorkerSettings(drain=timedelta(seconds=1))):
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
