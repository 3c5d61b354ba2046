"""Retention: removes old events, and appends an event that says so."""

import logging
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gantline.audit.chain import AuditChains, Block, FaultyEntry, NewAuditEvent
from gantline.audit.chain_writer import ChainWriter
from gantline.audit.verification import PRUNED, SHORTEST_AGE, Finding, Removed, Verifier
from gantline.contract.errors import InvalidInput
from gantline.contract.records import RecordWrite
from gantline.contract.store import JobStore
from gantline.runtime import new_uuid

_log = logging.getLogger("gantline.audit")

DEFAULT_RETENTION: Final = timedelta(days=400)
_OVERDUE: Final = timedelta(days=1)
_DELETED_AT_ONCE: Final = 100


class AuditPruned(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was removed of one chain; nothing where the findings forbid it."""

    tenant_id: str
    count: int
    through: int | None = None
    findings: list[Finding] = []


class AuditPruner:
    """Removes old events, whole blocks at a time.

    First an event is appended that says through which version, and with which hash, events are
    removed; so the chain verifies from there on. Then the blocks are deleted, oldest first: a crash
    on the way leaves a chain that verifies too.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._chains = AuditChains(store)
        self._writer = ChainWriter(store)

    async def prune(self, tenant_id: str, *, before: datetime, actor: str) -> AuditPruned:
        """Remove what is older; nothing of a chain that does not verify: that one is evidence."""
        if before > await self._store.ping() - SHORTEST_AGE:
            raise InvalidInput(
                "What is younger than an hour cannot be removed.", next_step="Name an earlier time."
            )
        last = await self._newest_before(tenant_id, before)
        if last is None:
            return AuditPruned(tenant_id=tenant_id, count=0)
        old, findings = await self._verify(tenant_id, last)
        if findings:  # once more: another process may have pruned meanwhile
            old, findings = await self._verify(tenant_id, last)
        if findings:
            return AuditPruned(tenant_id=tenant_id, count=0, findings=findings)
        removed = Removed(
            last=last.last.sealed,
            count=sum(len(block.events) for block in old),
            before=before,
            actor=actor,
        )
        await self._writer.append(tenant_id, _build_event(removed))
        await self._delete(old)
        return AuditPruned(tenant_id=tenant_id, count=removed.count, through=removed.through)

    async def has_anything_before(self, tenant_id: str, *, before: datetime) -> bool:
        """Whether `prune` would remove something; one read where nothing was ever removed."""
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

    async def _verify(self, tenant_id: str, last: Block) -> tuple[list[Block], list[Finding]]:
        """Verify all of a chain; return the blocks up to the last that is to be removed."""
        verifier = Verifier(tenant_id, now=await self._store.ping())
        old: list[Block] = []
        async for block in self._chains.blocks(tenant_id):
            if isinstance(block, FaultyEntry):
                verifier.add(block)
                continue
            if fault := block.fault:
                verifier.add(fault)
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
    """Prunes the chains of all tenants; a part of the maintenance."""

    def __init__(self, store: JobStore, keep: timedelta = DEFAULT_RETENTION) -> None:
        if keep < SHORTEST_AGE:
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
        if not await self._pruner.has_anything_before(tenant_id, before=cut - _OVERDUE):
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


def _build_event(removed: Removed) -> NewAuditEvent:
    payload = {"id": new_uuid().hex, "outcome": "allowed", "details": msgspec.to_builtins(removed)}
    return NewAuditEvent(aggregate="audit", type=PRUNED, actor=removed.actor, payload=payload)
