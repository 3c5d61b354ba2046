"""What a command does to a store is written down before it is done, as a server would."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from gantline.auth.action import Action
from gantline.contract.audit import ALLOWED, AuditEntry, AuditSink
from gantline.contract.clock import Clock

_CLIENT: Final = "cli"


class CliAudit:
    """The entries of the user of this host. Raising keeps the command from doing it."""

    def __init__(self, sink: AuditSink, *, actor: str, tenant_id: str, clock: Clock) -> None:
        self._sink = sink
        self._actor = actor
        self._tenant_id = tenant_id
        self._clock = clock

    async def jobs(self, operation: str, action: Action, job_ids: Sequence[UUID]) -> None:
        """One entry for each job; they are written together."""
        await asyncio.gather(
            *(self._record(operation, action, job_id=job_id) for job_id in job_ids)
        )

    async def done(
        self,
        operation: str,
        action: Action,
        what: str,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        await self._record(operation, action, what=what, details=details or {})

    async def _record(self, operation: str, action: Action, **about: Any) -> None:
        await self._sink.record(
            AuditEntry(
                at=self._clock.now(),
                actor=self._actor,
                actor_tenant=self._tenant_id,
                action=action,
                operation=operation,
                outcome=ALLOWED,
                tenant_id=self._tenant_id,
                client=_CLIENT,
                **about,
            )
        )
