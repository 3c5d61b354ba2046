"""Coming to rest: waiting until a closed store is known to be closed, and nothing runs any more."""

import asyncio
from datetime import timedelta
from time import monotonic
from typing import Final

from gantline.contract.errors import GantlineError
from gantline.contract.query import JobFilter
from gantline.contract.results import Applied
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.transition import Transition
from gantline.manager.reaper import Reaper
from gantline.manager.sequencer import Sequencer
from gantline.manager.sessions import live_sessions
from gantline.moving.progress import Progress, Tell

# How long until everybody has read the switches: submitters do so every second, workers every five.
GRACE: Final = timedelta(seconds=2)
GRACE_WITH_WORKERS: Final = timedelta(seconds=6)

_RUNNING: Final = JobFilter(tenant_id=None, statuses=frozenset({JobStatus.RUNNING}))
_LOOK_AGAIN_SECONDS: Final = 0.5
_MOST_TOLD: Final = 5
_AT_ONCE: Final = 100


async def grace_for(store: JobStore) -> timedelta:
    return GRACE_WITH_WORKERS if await live_sessions(store) else GRACE


async def settle(
    store: JobStore, *, grace: timedelta, wait: timedelta, force: bool, actor: str, tell: Tell
) -> int:
    """Wait until nothing moves any more; return how many runs were taken away by force."""
    tell(Progress(f"waiting {grace.total_seconds():g} s for all processes to notice"))
    await asyncio.sleep(grace.total_seconds())
    running = await _wait_for_runs(store, wait, tell)
    taken_away = await _take_away(store, actor) if force else 0
    if running and not force:
        more = " and more" if len(running) > _MOST_TOLD else ""
        raise GantlineError(
            f"Jobs are still running: {_names(running)}{more}.",
            next_step="Wait longer with --wait, or take their runs away with --force.",
        )
    await Sequencer(store).run_once()
    return taken_away


async def _wait_for_runs(store: JobStore, wait: timedelta, tell: Tell) -> tuple[JobSnapshot, ...]:
    """Return those that are left. Runs of workers that died end here, by their leases."""
    until = monotonic() + wait.total_seconds()
    reaper = Reaper(store)
    while True:
        await reaper.run_once()
        running = (await store.find(_RUNNING, limit=_MOST_TOLD + 1)).items
        if not running or monotonic() >= until:
            return running
        tell(Progress(f"waiting for running jobs: {_names(running)}"))
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def _names(running: tuple[JobSnapshot, ...]) -> str:
    return ", ".join(str(job.job.job_id) for job in running[:_MOST_TOLD])


async def _take_away(store: JobStore, actor: str) -> int:
    """A run that reports progress meanwhile is looked at again."""
    taken = 0
    while running := (await store.find(_RUNNING, limit=_AT_ONCE)).items:
        answers = await store.apply([_ended_by_force(job, actor) for job in running])
        taken += sum(isinstance(answer, Applied) for answer in answers)
    return taken


def _ended_by_force(job: JobSnapshot, actor: str) -> Transition:
    if job.run and job.run.cancel_requested:
        return Transition.cancelled(job, actor=actor, version=job.version)
    return Transition.taken_away(job, actor=actor)
