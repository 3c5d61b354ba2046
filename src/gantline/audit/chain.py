"""The hash chain of the audit trail: its events, their hashes, and the records that keep them."""

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from gantline.contract.errors import StoreCorrupt
from gantline.contract.records import Record, RecordWrite
from gantline.contract.store import JobStore

NAMESPACE: Final = "audit"
FIRST_PREVIOUS: Final = "0" * 64
"""The previous hash of the first event of a chain."""
MOST_IN_A_BLOCK: Final = 100
JOB: Final = "job:"
"""What the actor of an entry that a job has made begins with."""
_DIGITS: Final = 16
_LAST: Final = 10**_DIGITS - 1
_PAGE: Final = 100

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""With a zone: a time without one cannot be compared with ours."""

_encoder: Final = msgspec.json.Encoder()
_canonical_json: Final = msgspec.json.Encoder(order="sorted")


class NewAuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is not in a chain yet: without version, time and hashes."""

    aggregate: str
    type: str
    actor: str
    payload: dict[str, Any]
    """Has an `id`, which no other event of the chain has."""
    repeated_since: datetime | None = None
    """If it is in the chain already, then with a time from this on; None: it is written once."""


class SealedEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the hash of an event covers: all but its payload, which has a hash of its own."""

    tenant_id: str
    aggregate: str
    version: int
    type: str
    time: Instant
    actor: str
    payload_hash: str
    previous_hash: str

    @property
    def hash(self) -> str:
        return _digest(self)


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of a tenant's audit chain.

    `hash` is the SHA-256 of the canonical JSON (keys sorted, no spaces, UTF-8) of `actor`,
    `aggregate`, `payloadHash`, `previousHash`, `tenantId`, `time`, `type` and `version`;
    `payloadHash` that of `payload`. `version` counts the events of the tenant from 1 on, and
    `previousHash` is the hash of the version before.
    """

    tenant_id: str
    aggregate: str
    """What it is about: `job:<id>`, `queue:<name>`, `type:<name>`, `key:<id>`, `access`."""
    version: int
    type: str
    """What was done: `cancelJob`, `pauseQueue`, `createKey`."""
    time: Instant
    """By the store's clock; never before that of the version before."""
    actor: str
    payload: dict[str, Any]
    """Names, ids and numbers; never a job's payload and never a secret."""
    payload_hash: str
    previous_hash: str
    hash: str

    @property
    def is_sound(self) -> bool:
        """Whether its hashes match its content. Whether it fits its chain is another check."""
        return self.payload_hash == _digest(self.payload) and self.hash == self.sealed.hash

    @property
    def sealed(self) -> SealedEvent:
        return SealedEvent(
            tenant_id=self.tenant_id,
            aggregate=self.aggregate,
            version=self.version,
            type=self.type,
            time=self.time,
            actor=self.actor,
            payload_hash=self.payload_hash,
            previous_hash=self.previous_hash,
        )


def chain_event(
    new: NewAuditEvent, *, tenant_id: str, version: int, time: datetime, previous_hash: str
) -> AuditEvent:
    """Make the event that comes after the one of `previous_hash`."""
    event = AuditEvent(
        tenant_id=tenant_id,
        aggregate=new.aggregate,
        version=version,
        type=new.type,
        time=time,
        actor=new.actor,
        payload=new.payload,
        payload_hash=_digest(new.payload),
        previous_hash=previous_hash,
        hash="",
    )
    return msgspec.structs.replace(event, hash=event.sealed.hash)


def next_link(head: AuditEvent | None) -> tuple[int, str]:
    """Return the version and the previous hash of the event that comes after the head."""
    return (head.version + 1, head.hash) if head else (1, FIRST_PREVIOUS)


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical_json.encode(value)).hexdigest()


DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decoder: Final = msgspec.json.Decoder(list[AuditEvent])
_MEMBERS: Final = frozenset(one.encode_name for one in msgspec.structs.fields(AuditEvent))


class FaultyEntry(msgspec.Struct, frozen=True):
    """A record, or a line of a file, that does not hold what it should."""

    where: str
    problem: str = "cannot be read"
    is_lost: bool = True
    """Whether its events are not known; else they come as well."""


class Block(msgspec.Struct, frozen=True):
    """Events that were written together, oldest first, and the record that holds them."""

    record: Record
    events: list[AuditEvent]

    @property
    def last(self) -> AuditEvent:
        return self.events[-1]

    @property
    def fault(self) -> FaultyEntry | None:
        return find_fault(f"the record {self.record.key}", self.record.value, self.events)


def find_fault(where: str, body: bytes, events: Sequence[AuditEvent]) -> FaultyEntry | None:
    """Find members that no hash covers: those that no event has, and the first of two of a name.

    Other readers of the JSON would see them, and we would not.
    """
    as_written = _encoder.encode(events if body[:1] == b"[" else events[0])
    if body == as_written or not _has_other_members(body):
        return None
    return FaultyEntry(where, "has members that no event has, or one twice", is_lost=False)


def _has_other_members(body: bytes) -> bool:
    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(members := dict(pairs)) < len(pairs):
            raise ValueError("a member is there twice")
        return members

    try:
        data = json.loads(body, object_pairs_hook=read_object)
    except (ValueError, RecursionError):
        return True
    events = data if isinstance(data, list) else [data]
    return any(event.keys() - _MEMBERS for event in events)


class AuditChains:
    """Reads the chains of all tenants.

    The key of a record is its tenant and the version of its first event, counted downwards: so the
    first record of a tenant is its newest. A writer must use the version after the newest, and so
    the same key as every other writer that saw the same newest: only one of them succeeds.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def tenants(self) -> list[str]:
        """List the tenants that have a chain; the installation's own has the empty name."""
        found: list[str] = []
        after = ""
        while records := await self._store.read_records(NAMESPACE, after=after, limit=1):
            key = records[0].key
            name, slash, _ = key.rpartition("/")
            if slash:
                found.append(_unescape(name))
            # "0" is the character after the slash: so this is after all keys of this tenant. A key
            # that is not ours must not lead back.
            after = max(name + "0", key)
        return found

    async def head(self, tenant_id: str) -> AuditEvent | None:
        """Read the newest event; raise StoreCorrupt where it cannot be read."""
        block = await self.newest_block(tenant_id)
        return block.last if block else None

    async def newest_block(self, tenant_id: str) -> Block | None:
        """Read the newest block; raise StoreCorrupt where it cannot be read."""
        return await self.block_at(tenant_id, _LAST - 1)

    async def block_at(self, tenant_id: str, version: int) -> Block | None:
        """Read the block that a version is in, or else the next older one."""
        after = _key(tenant_id, version + 1)
        prefix = _prefix(tenant_id)
        for record in await self._store.read_records(
            NAMESPACE, prefix=prefix, after=after, limit=1
        ):
            block = _read_block(record)
            if isinstance(block, FaultyEntry):
                raise StoreCorrupt(
                    f"The audit record {record.key} cannot be read.",
                    next_step="See what else is wrong: `gantline audit verify`.",
                )
            return block
        return None

    async def blocks(
        self, tenant_id: str, *, below: int | None = None
    ) -> AsyncIterator[Block | FaultyEntry]:
        """Read the blocks that begin below a version, newest first."""
        prefix = _prefix(tenant_id)
        after = _key(tenant_id, below) if below is not None else ""
        while records := await self._store.read_records(
            NAMESPACE, prefix=prefix, after=after, limit=_PAGE
        ):
            for record in records:
                yield _read_block(record)
            after = records[-1].key

    async def events(
        self, tenant_id: str, *, below: int | None = None
    ) -> AsyncIterator[AuditEvent | FaultyEntry]:
        """Read the events below a version, newest first; all where none is given."""
        async for block in self.blocks(tenant_id, below=below):
            if isinstance(block, FaultyEntry):
                yield block
                continue
            if fault := block.fault:
                yield fault
            for event in reversed(block.events):
                if below is None or event.version < below:
                    yield event


def make_write(events: list[AuditEvent]) -> RecordWrite:
    """Make the write that appends a block, unless another writer has appended meanwhile."""
    key = _key(events[0].tenant_id, events[0].version)
    return RecordWrite(NAMESPACE, key, _encoder.encode(events), expected=0)


def _read_block(record: Record) -> Block | FaultyEntry:
    try:
        events = _decoder.decode(record.value)
    except DECODE_ERRORS:
        events = []
    return Block(record, events) if events else FaultyEntry(f"the record {record.key}")


def _prefix(tenant_id: str) -> str:
    return tenant_id.replace("%", "%25").replace("/", "%2F") + "/"


def _unescape(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")


def _key(tenant_id: str, version: int) -> str:
    return f"{_prefix(tenant_id)}{_LAST - version:0{_DIGITS}d}"


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Every field that is given must match. Chains are read newest first."""

    aggregate: str | None = None
    actor: str | None = None
    action: str | None = None
    """The event's type (`cancelJob`), or the right that it needed (`jobs:cancel`)."""
    since: datetime | None = None

    def matches(self, event: AuditEvent) -> bool:
        return (
            self.aggregate in (None, event.aggregate)
            and self.actor in (None, event.actor)
            and self.action in (None, event.type, event.payload.get("action"))
            and not self.is_past(event)
        )

    def is_past(self, event: AuditEvent) -> bool:
        """Whether this and all older events are too old: times only grow along a chain."""
        return self.since is not None and event.time < self.since


EVERYTHING: Final = AuditFilter()
