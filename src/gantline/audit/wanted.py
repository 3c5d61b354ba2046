"""Which audit events are wanted."""

from datetime import datetime
from typing import Final

import msgspec

from gantline.audit.event import AuditEvent


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Every field that is given must match. Chains are read newest first."""

    aggregate: str | None = None
    actor: str | None = None
    action: str | None = None
    """The event's type (`cancelJob`), or the right that it needed (`jobs:cancel`)."""
    since: datetime | None = None

    def wants(self, event: AuditEvent) -> bool:
        return (
            self.aggregate in (None, event.aggregate)
            and self.actor in (None, event.actor)
            and self.action in (None, event.type, event.payload.get("action"))
            and not self.is_past(event)
        )

    def is_past(self, event: AuditEvent) -> bool:
        """Whether all that comes behind is too old: times only grow along a chain."""
        return self.since is not None and event.time < self.since


EVERYTHING: Final = AuditFilter()
