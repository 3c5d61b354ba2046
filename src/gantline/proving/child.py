"""A process of a proof: a worker, or a client that submits and cancels jobs.

    python -m gantline.proving.child '{"role": "worker", …}'

The store is named by GANTLINE_STORE. It ends with the process that started it.
"""

import asyncio
import ctypes
import logging
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, Literal

import msgspec

from gantline.app.gantline import Gantline
from gantline.contract.clock import SystemClock
from gantline.contract.errors import GantlineError, StoreUnavailable
from gantline.contract.job_id import new_job_id
from gantline.contract.store import JobStore
from gantline.proof.history import HistoryFile, recorded
from gantline.proof.intercepting import AnswerLost, MadeCall, intercepted
from gantline.proving.application import QUEUES, Ear, draw_job, make_application
from gantline.proving.faults import Chance, FaultLog
from gantline.runtime import exit_process, start_thread
from gantline.stores import store_from_url
from gantline.worker.settings import WorkerSettings

Role = Literal["worker", "client"]
STORE: Final = "GANTLINE_STORE"
READY: Final = b"ready\n"
FROZEN: Final = b"frozen "
"""Before a number of seconds: the process stops itself, and is to be woken after that time."""
CALM: Final = "calm"
"""A file of this name in the folder ends all faults."""
_ORPHANED: Final = 70
_PR_SET_PDEATHSIG: Final = 1
# Of the calls of a process, so many have their answer lost, and so many are never made.
_LOST: Final = 0.012
_REFUSED: Final = 0.008
# And of the ends of runs, so many are written when the lease is long over.
_LATE: Final = 0.006
_SPARED: Final = frozenset({"open", "close", "ping", "dump", "load", "clear"})
_LOOPS: Final = 3
_PAUSE_SECONDS: Final = 0.1
_MOST_WAITING: Final = 40
_TRIES: Final = 5
_DRAIN: Final = timedelta(seconds=2)


class ChildSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is, and where it writes what it does."""

    role: Role
    name: str
    folder: str
    seed: int
    lease: float
    parent_pipe: int
    wrap: str = ""
    """A function that changes the store, as module:name; for tests of the proof itself."""
    loses_calls: bool = True
    """False: all calls reach the store, and all answers the process."""
    eating: float = 0.0
    """Which share of the jobs takes memory."""


def end_with_parent(pipe: int) -> None:
    """End at once when the other end of the pipe, which the parent alone has, is closed."""
    os.set_inheritable(pipe, False)
    if sys.platform == "linux":
        # One that is stopped sees no pipe end; the kernel kills it all the same.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))

    def wait() -> None:
        while os.read(pipe, 1):
            pass
        exit_process(_ORPHANED)

    start_thread(wait, "gantline-prove-parent")


def make_store(settings: ChildSettings, url: str) -> JobStore:
    """The store with faults around it; and outermost, what records how its calls are answered."""
    store = store_from_url(url, clock=SystemClock())
    if settings.wrap:
        store = resolve_name(settings.wrap)(store)
    if settings.loses_calls:
        store = intercepted(store, _Faults(settings).around)
    return recorded(store, HistoryFile(Path(settings.folder), settings.name), process=settings.name)


class _Faults:
    """Loses answers and whole calls, and lets ends of runs come late."""

    def __init__(self, settings: ChildSettings) -> None:
        self._chance = Chance(settings.seed, settings.name)
        self._log = FaultLog(Path(settings.folder), settings.name)
        self._name = settings.name
        self._lease = settings.lease
        self._calm = Path(settings.folder) / CALM

    async def around(self, verb: str, call: MadeCall) -> Any:
        drawn = self._chance.random()
        if verb == "apply" and drawn > 1 - _LATE and not self._calm.exists():
            self._freeze()
        if verb in _SPARED or drawn > _LOST + _REFUSED or self._calm.exists():
            return await call()
        if drawn > _LOST:
            self._log.add("refused call", self._name)
            raise StoreUnavailable(f"{verb} did not reach the store.")
        await call()
        self._log.add("lost answer", self._name)
        raise AnswerLost(f"The answer to {verb} was lost.")

    def _freeze(self) -> None:
        seconds = self._chance.uniform(1.5, 2.5) * self._lease
        self._log.add("late write", self._name, seconds)
        os.write(sys.stdout.fileno(), FROZEN + f"{seconds:.3f}\n".encode())
        os.kill(os.getpid(), signal.SIGSTOP)


async def _work(jobs: Gantline, settings: ChildSettings) -> None:
    worker_settings = WorkerSettings(
        queues=QUEUES, lease=timedelta(seconds=settings.lease), drain=_DRAIN
    )
    async with jobs, jobs.working(worker_settings) as worker:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        os.write(sys.stdout.fileno(), READY)
        await worker.run()


async def _submit(jobs: Gantline, settings: ChildSettings) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with jobs:
        os.write(sys.stdout.fileno(), READY)
        loops = [
            asyncio.create_task(
                _submit_for_ever(
                    jobs, Chance(settings.seed, f"{settings.name}/{n}"), eating=settings.eating
                )
            )
            for n in range(_LOOPS)
        ]
        waiting = asyncio.create_task(ended.wait())
        done, _ = await asyncio.wait({waiting, *loops}, return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, *loops):
            task.cancel()
        await asyncio.wait({waiting, *loops})
        for task in done:
            task.result()


async def _submit_for_ever(jobs: Gantline, chance: Chance, *, eating: float) -> None:
    while True:
        await asyncio.sleep(chance.uniform(0, 2 * _PAUSE_SECONDS))
        with suppress(StoreUnavailable):
            if chance.random() < 0.2:
                await _until_few_wait(jobs)
        job_id = await _submit_one(jobs, chance, eating=eating)
        if job_id is not None and chance.random() < 0.08:
            await asyncio.sleep(chance.uniform(0, 0.5))
            with suppress(GantlineError):  # it may have ended, or be nowhere
                await jobs.handle(job_id).cancel(actor="prove")


async def _submit_one(jobs: Gantline, chance: Chance, *, eating: float) -> Any:
    """Submit until it is accepted, by the same id: as careful clients do."""
    job_type, plan, options = draw_job(chance, jobs, eating=eating)
    options["job_id"] = new_job_id()
    for _ in range(_TRIES):
        try:
            return (await job_type.submit(plan, **options)).job_id
        except StoreUnavailable:
            await asyncio.sleep(_PAUSE_SECONDS)
        except GantlineError:
            return None  # its key is another job's
    return None


async def _until_few_wait(jobs: Gantline) -> None:
    while True:
        lanes = await jobs.store.counts(tenant_id=None)
        if sum(lane.queued for lane in lanes) < _MOST_WAITING:
            return
        await asyncio.sleep(0.5)


def run(settings: ChildSettings) -> None:
    """Be the process that the settings describe, until it is ended."""
    end_with_parent(settings.parent_pipe)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    store = make_store(settings, os.environ.pop(STORE))
    jobs = make_application(store, Ear(Path(settings.folder), settings.name))
    match settings.role:
        case "worker":
            asyncio.run(_work(jobs, settings))
        case "client":
            asyncio.run(_submit(jobs, settings))


if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=ChildSettings))
