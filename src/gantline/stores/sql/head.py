"""The head: where a job stands."""

from typing import Generic, NamedTuple, TypeVar

from gantline.contract.status import JobStatus
from gantline.contract.submission import DedupeKey, KeyKind

Id = TypeVar("Id")
"""How a store spells a UUID."""


class Head(NamedTuple, Generic[Id]):
    """Read from the table where the job stands. The last five are of its run."""

    status: JobStatus
    job_id: Id
    end: int | None
    """The log row of its end, if it has ended."""
    version: int
    fence: int
    attempt: int
    crashes: int
    snoozes: int
    priority: int
    lane: int
    tenant: str
    created_at: int
    idempotency_key: str
    fingerprint: bytes
    job_type: str
    token: Id | None = None
    session: str = ""
    started_at: int | None = None
    until: int | None = None
    cancel_requested: bool = False

    @property
    def key(self) -> DedupeKey | None:
        if not self.idempotency_key:
            return None
        return DedupeKey(
            KeyKind.JOB, self.tenant, self.job_type, self.idempotency_key, self.fingerprint
        )
