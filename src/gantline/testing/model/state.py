"""What can be seen of a store between two steps: its jobs, their logs, the key, events, counts."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from gantline.contract.snapshot import JobSnapshot, LogEntry, LoggedEvent
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.submission import DedupeKey

_ALL = 1000


@dataclass(frozen=True)
class State:
    """A store as it stands, by its own read verbs."""

    now: datetime
    jobs: dict[UUID, JobSnapshot]
    history: dict[UUID, tuple[LogEntry, ...]]
    holder: UUID | None
    """Which job holds the key that all jobs of a model share."""
    events: tuple[LoggedEvent, ...]
    last_event: int
    counts: dict[str, int]

    def digest(self) -> bytes:
        """Equal for two states that are the same."""
        return msgspec.json.encode(
            (
                self.now,
                list(self.jobs.values()),
                list(self.history.values()),
                self.holder,
                [event.sequence for event in self.events],
                self.last_event,
            )
        )


async def observe(store: JobStore, *, now: datetime, job_ids: list[UUID], key: DedupeKey) -> State:
    """Read everything that a model speaks of."""
    await store.sequence(limit=_ALL)
    found = await store.get(job_ids, tenant_id=None)
    jobs = {job_id: job for job_id, job in zip(job_ids, found, strict=True) if job is not None}
    lanes = await store.counts(tenant_id=None)
    return State(
        now=now,
        jobs=jobs,
        history={job_id: tuple(await store.history(job_id, tenant_id=None)) for job_id in job_ids},
        holder=(await store.held([key]))[0],
        events=tuple(await store.events(after=0, limit=_ALL)),
        last_event=await store.last_event(),
        counts={
            status.value: sum(getattr(lane, status.value.lower()) for lane in lanes)
            for status in JobStatus
        },
    )
