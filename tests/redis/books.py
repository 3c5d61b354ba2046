"""The books of a load on Redis: what was accepted, and what became of it."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from tests.redis.conftest import opened
from windlass.contract.snapshot import JobSnapshot, LoggedEvent
from windlass.contract.status import Event, JobStatus


def say(text: str) -> None:
    print(text)  # noqa: T201  # the figures of a proof; pytest shows them with -rP


async def check_books(url: str, accepted: Sequence[UUID]) -> Counter[str]:
    """Nothing accepted is lost, nothing ended twice; return how often each event happened."""
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
    others = Counter(_fate(job) for job in jobs if _fate(job) != JobStatus.COMPLETED)
    assert not others, f"of {len(accepted)} accepted jobs some were not completed: {others}"
    assert not set(accepted) - completed.keys()
    assert sum(lane.completed for lane in counts) == len(completed)
    assert not any(lane.queued or lane.running for lane in counts)
    return Counter(str(row.event) for row in rows)


def _fate(job: JobSnapshot | None) -> str:
    if job is None:
        return "lost"
    reason = f" {job.last.reason}" if job.last and job.status is not JobStatus.COMPLETED else ""
    return f"{job.status}{reason}"
