"""The limits of a store, for users who can reach it: a part of StoreBackend."""

from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gantline.api.limit_documents import (
    GateDocument,
    GroupDocument,
    LimitDocument,
    LimitsToSet,
)
from gantline.api.limit_views import (
    gate_documents,
    group_document,
    limit_document,
    limit_documents,
    override_of,
)
from gantline.auth.action import Action
from gantline.contract.job import DEFAULT_QUEUE
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint
from gantline.flow.limits import Limits
from gantline.flow.rules import Rule

if TYPE_CHECKING:
    from gantline.cli.session import Cli, CliAudit

_PAGE: Final = 1000


class StoreLimits:
    """Reads and decides here; acts as the user of this host."""

    _cli: "Cli"
    _store: JobStore
    _audit: "CliAudit"

    @cached_property
    def _limits(self) -> Limits:
        return Limits(self._store)

    async def limits(self) -> list[LimitDocument]:
        await self._limits.refresh(max_age_seconds=0)
        return limit_documents(self._limits)

    async def limits_of(self, job_type: str) -> LimitDocument:
        await self._limits.refresh(max_age_seconds=0)
        return limit_document(job_type, self._limits)

    async def set_limits(self, job_type: str, **asked: Any) -> LimitDocument:
        sent = LimitsToSet(**asked)
        await self._limits.refresh(max_age_seconds=0)
        before = self._limits.rules.get(job_type, Rule()).holding(job_type)
        override = override_of(sent, before=before)
        await self._audited_limits("setLimits", job_type, msgspec.to_builtins(sent))
        await self._limits.set(job_type, override, by=self._cli.actor)
        return await self._changed(job_type)

    async def clear_limits(self, job_type: str, *, declared: bool = False) -> LimitDocument:
        await self._audited_limits("clearLimits", job_type, {"declared": declared})
        await self._limits.clear(job_type, by=self._cli.actor, declared=declared)
        return await self._changed(job_type)

    async def gates(self) -> list[GateDocument]:
        await self._limits.refresh(max_age_seconds=0)
        return await gate_documents(self._store, self._limits, await self._store.ping())

    async def groups(
        self, job_type: str, *, queue: str | None = None
    ) -> AsyncIterator[GroupDocument]:
        queue, after = queue or DEFAULT_QUEUE, ""
        while True:
            page = await self._store.groups(
                queue, job_type, tenant_id=self._cli.scope, limit=_PAGE, after=after
            )
            for state in page.items:
                yield group_document(queue, job_type, state)
            if not (after := page.next):
                return

    async def _changed(self, job_type: str) -> LimitDocument:
        await self._cli.hint(self._store, Hint.SWITCHED)
        return limit_document(job_type, self._limits)

    async def _audited_limits(self, operation: str, job_type: str, details: dict[str, Any]) -> None:
        await self._audit.done(operation, Action.MANAGE_TYPES, f"type:{job_type}", details)
