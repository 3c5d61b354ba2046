"""The actors of a model: worker, reaper, operator, submitter, and time itself."""

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from gantline.contract.errors import Code
from gantline.contract.job import Job
from gantline.contract.outcome import (
    ErrorInfo,
    Failure,
    Outcome,
    Released,
    Snoozed,
    Stopped,
    Success,
)
from gantline.contract.query import LaneRequest
from gantline.contract.results import Applied, NotFound, Stale
from gantline.contract.snapshot import Run
from gantline.manager.manager import Ending
from gantline.manager.reaper import Reaper
from gantline.manager.submitter import Submission
from gantline.runtime import new_uuid
from gantline.testing.factories import JOB_TYPE, register_sessions
from gantline.testing.model.invariants import check
from gantline.testing.model.world import Actor, Desk, Fate

LEASE: Final = timedelta(seconds=60)
ORDINARY: Final = LaneRequest("default", (JOB_TYPE,), 10, logged=(JOB_TYPE,))
SUSPECTS: Final = LaneRequest("default", (JOB_TYPE,), 10, logged=(JOB_TYPE,), suspects=(10,))

OUTCOMES: Final[dict[str, Outcome]] = {
    "success": Success(),
    "failure": Failure(ErrorInfo("BROKEN", "It is broken."), retryable=False),
    "retry": Failure(ErrorInfo(Code.NETWORK_ERROR, "Try again."), retry_after=timedelta(0)),
    "snooze": Snoozed(LEASE),
    "release": Released(),
}
ALL_FATES: Final = frozenset(Fate) - {Fate.ANSWERED}


def worker(
    name: str,
    *outcomes: str,
    session: str = "",
    claims: int = 1,
    renews: int = 0,
    fates: frozenset[Fate] = frozenset(),
) -> Actor:
    """Claim, renew, and end what was claimed in one of these ways; so many times.

    Two with one session are two runs of the same worker.
    """

    async def work(desk: Desk) -> None:
        await register_sessions(desk.store, session or name)
        for _ in range(claims):
            claim_id = new_uuid()
            runs = await desk.repeat(
                lambda claim_id=claim_id: desk.manager.claim(  # type: ignore[misc]
                    session or name, claim_id, [ORDINARY], lease=LEASE
                )
            )
            for run in runs:
                await _run(desk, run, renews, outcomes)

    return Actor(name, work, fates)


async def _run(desk: Desk, run: Run, renews: int, outcomes: tuple[str, ...]) -> None:
    for _ in range(renews):
        renewal = await desk.repeat(lambda: desk.manager.renew(run.session, [run.ref], lease=LEASE))
        if renewal.lost:
            return
        if renewal.cancel_requested:
            await _settle(desk, Ending(run, Stopped()))
            return
    await _settle(desk, Ending(run, OUTCOMES[await desk.choose(outcomes)]))


async def _settle(desk: Desk, ending: Ending) -> None:
    (settled,) = await desk.repeat(lambda: desk.manager.settle([ending]))
    is_final = isinstance(settled.result, Applied | Stale | NotFound)
    check(is_final, f"nothing follows from a run that ended: {settled.result}")


def reaper(*, sweeps: int = 1, fates: frozenset[Fate] = frozenset()) -> Actor:
    async def reap(desk: Desk) -> None:
        sweeper = Reaper(desk.store, jitter=lambda: 0.0)
        for _ in range(sweeps):
            await desk.repeat(sweeper.run_once)

    return Actor("reaper", reap, fates)


def passing_time(*spans: timedelta) -> Actor:
    """Let time pass; by default so long that a lease runs out."""

    async def run(desk: Desk) -> None:
        for span in spans or (LEASE,):
            await desk.let_time_pass(span)

    return Actor("time", run)


def operator(
    *actions: str, job_id: UUID, name: str = "operator", fates: frozenset[Fate] = frozenset()
) -> Actor:
    """Cancel, redrive or delete the job, one after the other."""

    async def act(desk: Desk) -> None:
        for action in actions:
            await desk.repeat(lambda action=action: _act(desk, action, job_id))  # type: ignore[misc]

    return Actor(name, act, fates)


def _act(desk: Desk, action: str, job_id: UUID) -> Coroutine[Any, Any, Any]:
    match action:
        case "cancel":
            return desk.manager.cancel([job_id], tenant_id=None, actor="operator")
        case "redrive":
            return desk.manager.redrive([job_id], tenant_id=None, actor="operator")
        case "delete":
            return desk.manager.delete([job_id], tenant_id=None)
        case _:
            raise ValueError(action)


def submitter(job: Job, *, name: str = "client", fates: frozenset[Fate] = frozenset()) -> Actor:
    async def submit(desk: Desk) -> None:
        await desk.repeat(lambda: desk.manager.submit([Submission(job)]))

    return Actor(name, submit, fates)
