"""The books of a load on Redis: what was accepted, and what became of it."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from gantline.contract.snapshot import JobSnapshot, LoggedEvent
from gantline.contract.status import Event, JobStatus
from tests.redis.conftest import opened

GIVEN_UP = "Poisoned LeaseExpired"
"""What becomes of a job whose leases ran out three times."""


def say(text: str) -> None:
    print(text)  # noqa: T201  # the figures of a proof; pytest shows them with -rP


async def check_books(
    url: str, accepted: Sequence[UUID], *, some_given_up: bool = False
) -> Counter[str]:
    """Nothing accepted is lost, nothing ended twice; return how often each event happened.

    Every job was completed; where leases ran out time and again, some may have been given up.
    """
    async with opened(url) as store:
        events: list[LoggedEvent] = []
        while page := await store.events(after=len(events), limit=1000):
            events += page
        jobs = await store.get(accepted, tenant_id=None)
        counts = await store.counts(tenant_id=None)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    rows = [event.entry for event in events]
    completed = Counter(row.job_id for row in rows if row.event is Event.COMPLETED)
    assert set(completed.values()) <= {1}
    assert len({(row.job_id, row.fence) for row in rows}) == len(rows)
    fates = Counter(map(_fate, jobs))
    assert fates.keys() <= {"Completed", *([GIVEN_UP] if some_given_up else [])}, fates
    assert sum(lane.completed for lane in counts) == len(completed)
    assert len(set(accepted) & completed.keys()) == fates["Completed"]
    assert not any(lane.queued or lane.running for lane in counts)
    return Counter(str(row.event) for row in rows)


def _fate(job: JobSnapshot | None) -> str:
    if job is None:
        return "lost"
    if job.status is JobStatus.COMPLETED or job.last is None:
        return str(job.status)
    return f"{job.status} {job.last.reason}"
