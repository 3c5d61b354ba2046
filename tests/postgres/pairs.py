"""The verbs that meet in the exploration of statements: two at a time, over one job and one key."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from gantline.contract.errors import IllegalTransition, VersionMismatch
from gantline.contract.outcome import LeaseLost
from gantline.contract.query import PruneRule
from gantline.contract.snapshot import Progress, Run
from gantline.contract.status import JobStatus
from gantline.manager.manager import Acted, Ending
from gantline.manager.reaper import Reaper
from gantline.manager.submitter import Submission
from gantline.runtime import new_uuid
from gantline.testing.clock import FakeClock
from gantline.testing.model.actors import LEASE, ORDINARY, OUTCOMES
from gantline.testing.model.models import FIRST, another_job, the_job
from gantline.testing.model.world import Desk
from tests.postgres.stepping import Pair, Verb

# -- what was before -------------------------------------------------------------------------------


async def queued(desk: Desk, clock: FakeClock) -> UUID:
    """The id of a claim that both may make."""
    await desk.manager.submit([Submission(the_job())])
    return new_uuid()


async def nothing(desk: Desk, clock: FakeClock) -> None:
    """An empty store."""


async def running(desk: Desk, clock: FakeClock) -> Run:
    claim_id = await queued(desk, clock)
    (run,) = await desk.manager.claim("worker", claim_id, [ORDINARY], lease=LEASE)
    return run


async def late(desk: Desk, clock: FakeClock) -> Run:
    run = await running(desk, clock)
    clock.advance(LEASE + timedelta(seconds=1))
    return run


async def failed(desk: Desk, clock: FakeClock) -> Run:
    run = await running(desk, clock)
    await desk.manager.settle([Ending(run, OUTCOMES["failure"])])
    return run


async def taken_over(desk: Desk, clock: FakeClock) -> tuple[Run, Run]:
    """A run that was lost, and its heir."""
    lost = await late(desk, clock)
    await desk.manager.settle([Ending(lost, LeaseLost())])
    (heir,) = await desk.manager.claim("heir", new_uuid(), [ORDINARY], lease=LEASE)
    return lost, heir


# -- what meets ------------------------------------------------------------------------------------


async def claim(desk: Desk, context: Any) -> str:
    runs = await desk.manager.claim(desk.name, new_uuid(), [ORDINARY], lease=LEASE)
    return _shown(runs)


async def same_claim(desk: Desk, claim_id: UUID) -> str:
    """The worker sent it twice, since the first answer did not come."""
    runs = await desk.manager.claim("worker", claim_id, [ORDINARY], lease=LEASE)
    return _shown(runs)


def _shown(runs: list[Run]) -> str:
    return repr([(run.job.job_id, run.fence, run.session) for run in runs])


async def cancel(desk: Desk, context: Any) -> str:
    (acted,) = await desk.manager.cancel([FIRST], tenant_id=None, actor="operator")
    if not isinstance(acted, Acted):
        return repr(acted)
    return f"{acted.status} {acted.version}{' changed' if acted.changed else ''}"


async def redrive(desk: Desk, context: Any) -> str:
    return repr(await desk.manager.redrive([FIRST], tenant_id=None, actor="operator"))


async def delete(desk: Desk, context: Any) -> str:
    """Whether it is refused by what it reads or by the guard depends on when it reads."""
    (answer,) = await desk.manager.delete([FIRST], tenant_id=None)
    return "refused" if isinstance(answer, IllegalTransition | VersionMismatch) else repr(answer)


async def prune(desk: Desk, context: Any) -> str:
    now = await desk.store.ping()
    rule = PruneRule(JobStatus.FAILED, now + timedelta(days=1))
    pruned = await desk.store.prune([rule], limit=10)
    return f"{pruned.jobs} {pruned.keys}"


async def submit(desk: Desk, context: Any) -> str:
    """The first job again, or for the first time."""
    return repr(await desk.manager.submit([Submission(the_job())]))


async def submit_another(desk: Desk, context: Any) -> str:
    return repr(await desk.manager.submit([Submission(another_job())]))


def ended(outcome: str) -> Verb:
    async def settle(desk: Desk, run: Run) -> str:
        (settled,) = await desk.manager.settle([Ending(run, OUTCOMES[outcome])])
        return f"{settled.transition.event} {settled.result}"

    return settle


def ended_by(which: int, outcome: str) -> Verb:
    """The end of a lost run (0), or of its heir (1)."""

    async def settle(desk: Desk, runs: tuple[Run, Run]) -> str:
        return str(await ended(outcome)(desk, runs[which]))

    return settle


async def complete_in_transaction(desk: Desk, run: Run) -> str:
    """The handler's own statements first, then the end of its run; all or nothing."""
    transition = desk.manager.decide(Ending(run, OUTCOMES["success"]))
    if not desk.store.capabilities.caller_transaction:
        return repr((await desk.store.apply([transition]))[0])
    async with desk.store.transaction() as transaction:
        await transaction.connection.execute("SELECT 1")
        return repr(await transaction.apply(transition))


async def reap(desk: Desk, run: Run) -> str:
    """What the reaper writes; it has read the run before."""
    (settled,) = await desk.manager.settle([Ending(run, LeaseLost(times_alone=1))])
    return f"{settled.transition.event} {settled.result}"


async def sweep(desk: Desk, context: Any) -> str:
    """All of the reaper. What it skips depends on when it read."""
    reaped = await Reaper(desk.store, jitter=lambda: 0.0).run_once()
    return f"{reaped.requeued} {reaped.poisoned} {reaped.cancelled}"


async def renew(desk: Desk, run: Run) -> str:
    renewal = await desk.manager.renew("worker", [run.ref], lease=LEASE)
    return f"{len(renewal.lost)} lost, {len(renewal.cancel_requested)} to stop"


async def progress(desk: Desk, run: Run) -> str:
    return repr(await desk.manager.progress([Progress(run.ref, 50.0, "half", logged=True)]))


async def end_session(desk: Desk, context: Any) -> str:
    return repr(await desk.store.expire_session("worker"))


async def sequence(desk: Desk, context: Any) -> str:
    await desk.store.sequence(limit=100)
    return ""


PAIRS = [
    Pair("claim, claim", queued, claim, claim),
    Pair("claim, the same claim", queued, same_claim, same_claim),
    Pair("claim, cancel", queued, claim, cancel),
    Pair("success, reap", late, ended("success"), reap),
    Pair("retry, reap", late, ended("retry"), reap),
    Pair("success, cancel", running, ended("success"), cancel),
    Pair("retry, cancel", running, ended("retry"), cancel),
    Pair("success, the same success", running, ended("success"), ended("success")),
    Pair("success, failure", running, ended("success"), ended("failure")),
    Pair(
        "success of a lost run, of its heir",
        taken_over,
        ended_by(0, "success"),
        ended_by(1, "success"),
    ),
    Pair(
        "retry of a lost run, of its heir", taken_over, ended_by(0, "retry"), ended_by(1, "retry")
    ),
    Pair("renew, reap", late, renew, reap),
    Pair("renew, success", running, renew, ended("success")),
    Pair("renew, cancel", running, renew, cancel),
    Pair("progress, reap", late, progress, reap),
    Pair("reap, reap", late, reap, reap),
    Pair("end of the session, success", running, end_session, ended("success")),
    Pair("cancel, reap", late, cancel, reap),
    Pair("submit, the same submit", nothing, submit, submit),
    Pair("submit, submit of the same key", nothing, submit, submit_another),
    Pair("failure, submit of the same key", running, ended("failure"), submit_another),
    Pair("redrive, submit of the same key", failed, redrive, submit_another),
    Pair("delete, submit of the same key", failed, delete, submit_another),
    Pair("delete, submit again", failed, delete, submit),
    Pair("delete, redrive", failed, delete, redrive),
    Pair("delete, delete", failed, delete, delete),
    Pair("prune, redrive", failed, prune, redrive),
    Pair("prune, delete", failed, prune, delete),
    Pair("redrive, redrive", failed, redrive, redrive),
    # Both may have read the job before either wrote: then both requests are noted, as versions 3
    # and 4. It is the same stop, and a guard by version would be refused by every progress.
    Pair(
        "cancel, cancel",
        running,
        cancel,
        cancel,
        also=(
            ("Running 3 changed", "Running 4 changed"),
            ("Running 4 changed", "Running 3 changed"),
        ),
    ),
    Pair("sequence, success", running, sequence, ended("success")),
    Pair("sequence, cancel", running, sequence, cancel),
    Pair("sequence, sequence", running, sequence, sequence),
    Pair("complete in a transaction, reap", late, complete_in_transaction, reap),
    Pair("complete in a transaction, cancel", running, complete_in_transaction, cancel),
    Pair("sweep, success", late, sweep, ended("success")),
    Pair("sweep, renew", late, sweep, renew),
    Pair("complete in a transaction, renew", running, complete_in_transaction, renew),
]
