"""A job on its way into a store, with the keys that keep it from being stored twice."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict
from uuid import UUID

import msgspec

from gantline.contract.job import Job


class SubmitOptions(TypedDict, total=False):
    """How a job differs from what its type says. None is the same as not given."""

    delay: timedelta | float | None
    """A number is seconds."""
    at: datetime | None
    """The instant before which it does not run, instead of a delay."""
    expires_in: timedelta | float | None
    """If no run has begun in that time from the submit, none begins: it is Cancelled, Expired."""
    priority: int | None
    queue: str | None
    tenant: str | None
    owner: str | None
    subject: str | None
    idempotency_key: str | None
    group: str | None
    """Whose turn it takes within its tenant, instead of what its type says."""
    correlation_id: str | None
    job_id: UUID | None
    """The external id: within the tenant, a repeat with the same id finds the same job."""
    max_attempts: int | None
    parent: UUID | None
    """The job that it comes from."""
    trace_context: Mapping[str, str] | None
    """W3C headers to use instead of the current span."""


class KeyKind(StrEnum):
    """Who promised what with a dedupe key. Keys of different kinds never meet."""

    JOB = "job"
    """The envelope's idempotency key. Held while the job lives and a while after it completed."""
    REQUEST = "request"
    """The HTTP Idempotency-Key of a submit."""
    ONCE = "once"
    """A handler's "already processed" mark, written with a completion."""
    ID = "id"
    """The external id. Held as long as its job is stored; freed in the step that removes it."""


class DedupeKey(msgspec.Struct, frozen=True):
    """A key that is unique on (kind, tenant, scope); the same fingerprint means a repeat.

    `hold` is how long the key is held from now on. Without it the key belongs to the job: it is
    freed in the step in which the job fails, and held for `Transition.hold_key` once it completed.
    """

    kind: KeyKind
    tenant_id: str
    scope: str
    key: str
    fingerprint: bytes = b""
    hold: timedelta | None = None

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return (self.kind, self.tenant_id, self.scope, self.key)


def external_key(tenant_id: str, external_id: UUID, content: bytes = b"") -> DedupeKey:
    """The key by which a tenant's job is found under the id that it came with."""
    return DedupeKey(KeyKind.ID, tenant_id, "", external_id.hex, content)


class NewJob(msgspec.Struct, frozen=True):
    """A checked envelope, ready to be inserted. Its keys are taken in the same atomic step."""

    job: Job
    fingerprint: bytes
    delay: timedelta = timedelta(0)
    request_key: DedupeKey | None = None
    logged: bool = False
    """Whether its submission is an event."""

    def with_request(self, key: DedupeKey | None) -> "NewJob":
        return NewJob(self.job, self.fingerprint, self.delay, key, self.logged)

    @property
    def job_key(self) -> DedupeKey | None:
        job = self.job
        if not job.idempotency_key:
            return None
        return DedupeKey(
            KeyKind.JOB, job.tenant_id, job.job_type, job.idempotency_key, self.fingerprint
        )

    @property
    def external_key(self) -> DedupeKey | None:
        job = self.job
        if job.external_id is None:
            return None
        content = self.fingerprint + job.job_type.encode()
        return external_key(job.tenant_id, job.external_id, content)

    @property
    def keys(self) -> tuple[DedupeKey, ...]:
        """All keys of the job, in the order in which they decide: a repeat is known by its id or
        its request, whichever job holds the other key by now."""
        job = self.job
        if self.request_key is None and not job.idempotency_key and job.external_id is None:
            return ()  # as most
        return tuple(filter(None, (self.external_key, self.request_key, self.job_key)))
