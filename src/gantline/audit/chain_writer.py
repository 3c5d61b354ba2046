"""The writer of the audit trail: appends events to the chains of their tenants."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gantline.audit.chain import (
    MOST_IN_A_BLOCK,
    AuditChains,
    AuditEvent,
    NewAuditEvent,
    chain_event,
    make_write,
    next_link,
)
from gantline.contract.audit import ALLOWED, DETAILS_LIMIT, AuditEntry
from gantline.contract.errors import StoreBusy, StoreUnavailable
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, Conflict
from gantline.contract.store import JobStore
from gantline.contract.text import storable
from gantline.manager.batcher import Batcher
from gantline.runtime import new_uuid, random

ACCESS: Final = "access"
"""The aggregate of refusals."""
_TEXT_LIMIT: Final = 512

_MOST_ROUNDS: Final = 100
_PAUSE_BETWEEN_SECONDS: Final = 0.005
_ROUNDS_WITHOUT_PAUSE: Final = 5
_FIRST_PAUSE_SECONDS: Final = 0.001
_LONGEST_PAUSE_SECONDS: Final = 0.02
_WRITE_ATTEMPTS: Final = 3
_MOST_WAITING: Final = 10_000
_MOST_APPENDERS: Final = 1_000
_BLOCKS_LOOKED_AT: Final = 20

_KEPT: Final = (
    "action",
    "actor_tenant",
    "client",
    "correlation_id",
    "job_type",
    "operation",
    "outcome",
    "subject_id",
    "tenant_id",
    "what",
)


def choose_chain(entry: AuditEntry) -> str:
    """Return the tenant in whose chain an entry belongs.

    What was done belongs to the tenant that it was done to. What was refused belongs to the tenant
    of the actor: nobody can write into the chain of a tenant that is not open to him.
    """
    if entry.outcome == ALLOWED and entry.tenant_id:
        return entry.tenant_id
    return entry.actor_tenant


def build_event(entry: AuditEntry) -> NewAuditEvent:
    """Build what is kept of an entry. The id makes each event unique, so that no store takes it for
    the repeat of another one."""
    shown = _hide_unknown_job(entry)
    payload: dict[str, Any] = {"id": entry.event_id or new_uuid().hex}
    for name in _KEPT:
        if text := storable(getattr(shown, name), _TEXT_LIMIT):
            payload[_to_camel(name)] = text
    if shown.job_id is not None:
        payload["jobId"] = str(shown.job_id)
    if shown.details:
        payload["details"] = _limit_details(shown.details)
    return NewAuditEvent(
        aggregate=storable(_choose_aggregate(shown), _TEXT_LIMIT),
        type=storable(shown.operation or shown.action, _TEXT_LIMIT),
        actor=storable(shown.actor, _TEXT_LIMIT),
        payload=payload,
        repeated_since=entry.at if entry.event_id else None,
    )


def _hide_unknown_job(entry: AuditEntry) -> AuditEntry:
    """Keep only the id of a job that the actor may not know of: he can read this entry."""
    if entry.outcome == "hidden" and entry.job_id is not None:
        return msgspec.structs.replace(entry, tenant_id="", job_type="", subject_id="")
    return entry


def _choose_aggregate(entry: AuditEntry) -> str:
    if entry.outcome != ALLOWED:
        return ACCESS
    if entry.job_id is not None:
        return f"job:{entry.job_id}"
    return entry.what or "tenant"


def _limit_details(details: Any) -> Any:
    """Return plain JSON data, or a note that there was too much of it."""
    try:
        body = msgspec.json.encode(details)
    except UnicodeEncodeError:
        return {"omitted": "is no text"}
    if len(body) > DETAILS_LIMIT:
        return {"omitted": f"{len(body)} bytes"}
    return msgspec.json.decode(body)


def _to_camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _id_of(event: NewAuditEvent | AuditEvent) -> str:
    return str(event.payload.get("id"))


class ChainWriter:
    """Appends to chains; all events of a chain that wait are appended in one write.

    Each chain by itself, so that none waits for the many events of another tenant's.
    """

    def __init__(self, store: JobStore, *, most_waiting: int = _MOST_WAITING) -> None:
        self._store = store
        self._most_waiting = most_waiting
        self._appenders: dict[tuple[asyncio.AbstractEventLoop, str], _Appender] = {}

    async def append(self, tenant_id: str, event: NewAuditEvent) -> AuditEvent:
        """Append one durably; raise StoreError where that failed or may have failed."""
        appender = self._appender(tenant_id)
        if appender.waiting >= self._most_waiting:
            raise StoreUnavailable(
                f"{appender.waiting} entries of the tenant wait to be audited already.",
                next_step="Try again later.",
            )
        return await appender.append(event)

    async def drain(self) -> None:
        """Wait until all events that were passed in are appended, or have failed."""
        loop = asyncio.get_running_loop()
        for key in [key for key in self._appenders if key[0] is loop]:
            await self._appenders.pop(key).drained()

    def _appender(self, tenant_id: str) -> "_Appender":
        key = (asyncio.get_running_loop(), tenant_id)
        if key not in self._appenders:
            if len(self._appenders) >= _MOST_APPENDERS:
                in_use = {key: one for key, one in self._appenders.items() if one.waiting}
                self._appenders = in_use
            self._appenders[key] = _Appender(self._store, tenant_id)
        return self._appenders[key]


class _Appender:
    """Appends to one chain.

    Each block is written under the key that only the next block can have, so of two writers that
    saw the same head one loses, reads the new head and tries again.
    """

    def __init__(self, store: JobStore, tenant_id: str) -> None:
        self._store = store
        self._chains = AuditChains(store)
        self._tenant_id = tenant_id
        self._batcher = Batcher(self._append_block, most=MOST_IN_A_BLOCK)
        self._ended_at = 0.0
        self.waiting = 0

    async def append(self, event: NewAuditEvent) -> AuditEvent:
        self.waiting += 1
        try:
            return await self._batcher.add(event)
        finally:
            self.waiting -= 1

    async def drained(self) -> None:
        await self._batcher.drained()

    async def _append_block(self, new: Sequence[NewAuditEvent]) -> list[AuditEvent]:
        await self._give_way()
        for number in range(_MOST_ROUNDS):
            if number:
                await asyncio.sleep(_choose_pause(number) if number > _ROUNDS_WITHOUT_PAUSE else 0)
            there = await self._find_repeats(new)
            block = await self._build_block([one for one in new if _id_of(one) not in there])
            results = await self._write([make_write(block)]) if block else [Applied(0)]
            if isinstance(results[0], Applied):  # else another writer has appended meanwhile
                self._ended_at = asyncio.get_running_loop().time()
                there |= {_id_of(event): event for event in block}
                return [there[_id_of(one)] for one in new]
        raise StoreBusy("Others kept writing to the audit chain.", next_step="Try again.")

    async def _give_way(self) -> None:
        """Pause between blocks: else other processes could hardly ever append."""
        since = asyncio.get_running_loop().time() - self._ended_at
        if 0 <= since < _PAUSE_BETWEEN_SECONDS:
            await asyncio.sleep(_PAUSE_BETWEEN_SECONDS - since)

    async def _find_repeats(self, new: Iterable[NewAuditEvent]) -> dict[str, AuditEvent]:
        """Find, by their ids, those that are in the newest blocks already.

        Between a look and the write of a block no other writer can append: the write is refused.
        """
        repeated = [(one.repeated_since, _id_of(one)) for one in new if one.repeated_since]
        since = min((since for since, _ in repeated), default=None)
        found: dict[str, AuditEvent] = {}
        block = await self._chains.newest_block(self._tenant_id) if since else None
        for _ in range(_BLOCKS_LOOKED_AT):
            if block is None or since is None or block.last.time < since:
                break
            found |= {_id_of(event): event for event in block.events}
            block = await self._chains.block_at(self._tenant_id, block.events[0].version - 1)
        return {id_: found[id_] for _, id_ in repeated if id_ in found}

    async def _build_block(self, new: Sequence[NewAuditEvent]) -> list[AuditEvent]:
        now = await self._store.ping()
        # Read each time: after a cached head, pruning may have freed the next key.
        head = await self._chains.head(self._tenant_id)
        block: list[AuditEvent] = []
        for event in new:
            version, previous_hash = next_link(head)
            head = chain_event(
                event,
                tenant_id=self._tenant_id,
                version=version,
                time=max(now, head.time) if head else now,
                previous_hash=previous_hash,
            )
            block.append(head)
        return block

    async def _write(self, writes: list[RecordWrite]) -> list[Applied | Conflict]:
        """Write again where the result was lost: it counts as applied if it was."""
        for _ in range(_WRITE_ATTEMPTS - 1):
            try:
                return await self._store.write_records(writes)
            except StoreUnavailable:
                continue
        return await self._store.write_records(writes)


def _choose_pause(number: int) -> float:
    """Return a backoff with jitter. The first rounds have none: a writer that waits while another
    does not loses again."""
    doublings = number - _ROUNDS_WITHOUT_PAUSE
    longest = min(_FIRST_PAUSE_SECONDS * 2.0**doublings, _LONGEST_PAUSE_SECONDS)
    return random() * longest
