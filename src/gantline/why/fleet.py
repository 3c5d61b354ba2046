"""The fleet, as one job sees it: the live workers that could run it, and whether they have room."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gantline.contract.query import Cursor, JobFilter
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES, JobSnapshot
from gantline.contract.status import JobStatus
from gantline.contract.store import JobReader
from gantline.manager.sessions import Session
from gantline.worker.suspects import runs_alone

_PAGE: Final = 1000
_MOST_RUNS: Final = 20_000
"""How many of the runs that go on are read, the newest; a fleet with more looks freer."""
_RUNNING: Final = JobFilter(tenant_id=None, statuses=frozenset({JobStatus.RUNNING}))


class Room(NamedTuple):
    """How many jobs like this one a worker can run at once, and how many more it can now."""

    session: Session
    slots: int
    free: int
    runs: Sequence[JobSnapshot]
    is_alone: bool

    @property
    def suspects(self) -> int:
        return sum(run.crashes >= SUSPECT_AFTER_CRASHES for run in self.runs)


async def read_runs(store: JobReader) -> dict[str, list[JobSnapshot]]:
    """Read what runs, by session."""
    found: dict[str, list[JobSnapshot]] = {}
    after: Cursor | None = None
    for _ in range(0, _MOST_RUNS, _PAGE):
        page = await store.find(_RUNNING, limit=_PAGE, after=after)
        for job in page.items:
            if job.run is not None:
                found.setdefault(job.run.session, []).append(job)
        after = page.next
        if after is None:
            break
    return found


def room_in(session: Session, runs: Sequence[JobSnapshot], job: JobSnapshot) -> Room:
    """Say how much room a worker has for a job, as its own slots reckon."""
    queue, job_type = job.job.queue, job.job.job_type
    total = session.slots or sum(session.queues.values())
    in_queue = session.queues[queue]
    slots = min(total, in_queue)
    free = min(total - len(runs), in_queue - sum(run.job.queue == queue for run in runs))
    for names, most in session.concurrency:
        if job_type in names:
            slots = min(slots, most)
            free = min(free, most - sum(run.job.job_type in names for run in runs))
    is_alone = any(runs_alone(run.crashes, total) for run in runs)
    return Room(session, slots, 0 if is_alone else max(0, free), runs, is_alone)
