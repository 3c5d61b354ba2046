"""The audit port: what a principal did or was refused. Shared by `auth` and `audit`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

ALLOWED = "allowed"
"""The outcome of what was not refused."""
DETAILS_LIMIT: Final = 4096
"""How many bytes the details of an entry have at most."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that was allowed, or refused. Holds names and ids, never a payload or a secret."""

    at: datetime
    actor: str
    """The principal's id; empty where it is not known."""
    actor_tenant: str = ""
    action: str
    """The right that it needs; where the principal is not known, what was asked for."""
    operation: str = ""
    """What exactly was asked for: `cancelJob`, `pauseQueue`."""
    outcome: str
    """`allowed`, `forbidden`, `hidden` (answered with 404) or `unauthenticated`."""
    tenant_id: str = ""
    """Of what was acted on, where it is known."""
    job_id: UUID | None = None
    job_type: str = ""
    subject_id: str = ""
    what: str = ""
    """What was acted on where it is no job: `queue:documents`, `key:abc`."""
    correlation_id: str = ""
    client: str = ""
    event_id: str = ""
    """Of an entry that a job has made: it may come again, with the same id."""
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """How: a filter, a limit, a count. JSON data, as small as the rest."""


class AuditSink(Protocol):
    """Keep audit entries."""

    async def record(self, entry: AuditEntry) -> None:
        """Keep an entry. Raising refuses the action: what cannot be audited is not done."""
        ...
