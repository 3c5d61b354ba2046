"""Retention: removes what is old enough, and leaves an event in the chain that says so."""

import logging
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

import msgspec

from gantline.audit.appender import Appender
from gantline.audit.chain import AuditChains, Block, Unreadable
from gantline.audit.event import Draft
from gantline.audit.findings import Finding, Removed
from gantline.audit.verifier import PRUNED, Verifier
from gantline.contract.errors import InvalidInput
from gantline.contract.records import RecordWrite
from gantline.contract.store import JobStore

_log = logging.getLogger("gantline.audit")

DEFAULT_RETENTION: Final = timedelta(days=400)
YOUNGEST: Final = timedelta(hours=1)
"""What is younger is not removed: somebody may be about to append behind it."""
_SLACK: Final = timedelta(days=1)
_DELETED_AT_ONCE: Final = 100


class AuditPruned(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was removed of one chain; nothing where the findings forbid it."""

    tenant_id: str
    count: int
    through: int | None = None
    findings: list[Finding] = []


class AuditPruner:
    """Remove old events, whole blocks at a time.

    First an event is appended that says up to where, and with which hash the removed part ended;
    so the chain verifies from there on, and this event is as safe as any other. Then the blocks go,
    oldest first: what dies on the way leaves a chain that verifies too.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._chains = AuditChains(store)
        self._appender = Appender(store)

    async def prune(self, tenant_id: str, *, before: datetime, actor: str) -> AuditPruned:
        """Remove what is older; nothing of a chain that does not verify, which is evidence."""
        if before > await self._store.ping() - YOUNGEST:
            raise InvalidInput(
                "What is younger than an hour cannot be removed.", next_step="Name an earlier time."
            )
        last = await self._newest_before(tenant_id, before)
        if last is None:
            return AuditPruned(tenant_id=tenant_id, count=0)
        old, findings = await self._verified(tenant_id, last)
        if findings:  # once more: somebody else may have pruned meanwhile
            old, findings = await self._verified(tenant_id, last)
        if findings:
            return AuditPruned(tenant_id=tenant_id, count=0, findings=findings)
        removed = Removed(
            through=last.last.version,
            hash=last.last.hash,
            count=sum(len(block.events) for block in old),
            before=before,
            actor=actor,
        )
        await self._appender.append(tenant_id, _draft(removed))
        await self._delete(old)
        return AuditPruned(tenant_id=tenant_id, count=removed.count, through=removed.through)

    async def is_there_anything(self, tenant_id: str, *, before: datetime) -> bool:
        """Whether `prune` would find something to remove; one look where nothing ever was."""
        first = await self._chains.block_at(tenant_id, 1)
        if first is not None:
            return first.last.time < before
        return await self._newest_before(tenant_id, before) is not None

    async def _newest_before(self, tenant_id: str, before: datetime) -> Block | None:
        """The newest block that is old enough; times only grow along a chain."""
        head = await self._chains.head(tenant_id)
        low, high = 0, head.version if head else 0
        found: Block | None = None
        while low < high:
            middle = (low + high + 1) // 2
            block = await self._chains.block_at(tenant_id, middle)
            if block is None:
                low = middle
            elif block.last.time < before:
                found, low = block, max(middle, block.last.version)
            else:
                high = min(middle, block.events[0].version) - 1
        return found

    async def _verified(self, tenant_id: str, last: Block) -> tuple[list[Block], list[Finding]]:
        """Verify all of a chain; give the blocks up to the last that is to go."""
        verifier = Verifier(tenant_id)
        old: list[Block] = []
        async for block in self._chains.blocks(tenant_id):
            if isinstance(block, Unreadable):
                verifier.add(block)
                continue
            if block.last.version <= last.last.version:
                old.append(block)
            for event in reversed(block.events):
                verifier.add(event)
        return old, verifier.finish().findings

    async def _delete(self, blocks: list[Block]) -> None:
        oldest_first = [
            RecordWrite(record.namespace, record.key, None, expected=record.version)
            for record in (block.record for block in reversed(blocks))
        ]
        for start in range(0, len(oldest_first), _DELETED_AT_ONCE):
            await self._store.write_records(oldest_first[start : start + _DELETED_AT_ONCE])


class AuditRetention:
    """Keep the chains of all tenants for so long; a chore of the maintenance."""

    def __init__(self, store: JobStore, keep: timedelta = DEFAULT_RETENTION) -> None:
        if keep < YOUNGEST:
            raise InvalidInput("The audit trail is kept for an hour at least.")
        self._store = store
        self._keep = keep
        self._pruner = AuditPruner(store)

    async def run_once(self) -> int:
        """Prune what is a day overdue, so that a chain gets one such event a day at most."""
        cut = await self._store.ping() - self._keep
        return sum(
            [await self._prune(one, cut) for one in await AuditChains(self._store).tenants()]
        )

    async def _prune(self, tenant_id: str, cut: datetime) -> int:
        if not await self._pruner.is_there_anything(tenant_id, before=cut - _SLACK):
            return 0
        pruned = await self._pruner.prune(tenant_id, before=cut, actor="maintenance")
        if pruned.findings:
            _log.error(
                "the audit chain of %r does not verify (%d findings), so nothing of it is removed; "
                "see `gantline audit verify`",
                tenant_id,
                len(pruned.findings),
            )
        return pruned.count


def _draft(removed: Removed) -> Draft:
    payload = {"id": uuid4().hex, "outcome": "allowed", "details": msgspec.to_builtins(removed)}
    return Draft(aggregate="audit", type=PRUNED, actor=removed.actor, payload=payload)
