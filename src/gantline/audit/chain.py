"""Where the chains are kept: records of the store, a block of events each, newest first."""

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from gantline.audit.event import FIRST_PREVIOUS, AuditEvent
from gantline.contract.errors import StoreCorrupt
from gantline.contract.records import Record, RecordWrite
from gantline.contract.store import JobStore

NAMESPACE: Final = "audit"
MOST_IN_A_BLOCK: Final = 100
_DIGITS: Final = 16
_LAST: Final = 10**_DIGITS - 1
_PAGE: Final = 100

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(list[AuditEvent])


class Block(msgspec.Struct, frozen=True):
    """Events that were written together, oldest first, and the record that holds them."""

    record: Record
    events: list[AuditEvent]

    @property
    def last(self) -> AuditEvent:
        return self.events[-1]


class Unreadable(msgspec.Struct, frozen=True):
    """A record, or a line of a file, that does not hold what it should."""

    where: str


class AuditChains:
    """The chains of all tenants, to be read.

    A record is called by its tenant and the version of its first event, counted downwards: so the
    first record of a tenant is its newest. Who wants to append must take the version behind the
    newest, and so wants the same name as everybody else who saw that newest: one of them gets it.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def tenants(self) -> list[str]:
        """Every tenant that has a chain; the installation's own is called by the empty name."""
        found: list[str] = []
        after = ""
        while records := await self._store.read_records(NAMESPACE, after=after, limit=1):
            key = records[0].key
            name, slash, _ = key.rpartition("/")
            if slash:
                found.append(_unescaped(name))
            # The character behind the slash: behind all of this tenant's. A name that is none of
            # ours must not lead back.
            after = max(name + "0", key)
        return found

    async def head(self, tenant_id: str) -> AuditEvent | None:
        """The newest event; raise StoreCorrupt where it cannot be read."""
        block = await self.block_at(tenant_id, _LAST - 1)
        return block.last if block else None

    async def block_at(self, tenant_id: str, version: int) -> Block | None:
        """The block that a version is in, or else the next older one."""
        after = _key(tenant_id, version + 1)
        prefix = _prefix(tenant_id)
        for record in await self._store.read_records(
            NAMESPACE, prefix=prefix, after=after, limit=1
        ):
            block = _block(record)
            if isinstance(block, Unreadable):
                raise StoreCorrupt(
                    f"The audit record {record.key} cannot be read.",
                    next_step="See what else is wrong: `gantline audit verify`.",
                )
            return block
        return None

    async def blocks(
        self, tenant_id: str, *, below: int | None = None
    ) -> AsyncIterator[Block | Unreadable]:
        """The blocks that begin below a version, newest first."""
        prefix = _prefix(tenant_id)
        after = _key(tenant_id, below) if below is not None else ""
        while records := await self._store.read_records(
            NAMESPACE, prefix=prefix, after=after, limit=_PAGE
        ):
            for record in records:
                yield _block(record)
            after = records[-1].key

    async def events(
        self, tenant_id: str, *, below: int | None = None
    ) -> AsyncIterator[AuditEvent | Unreadable]:
        """The events below a version, newest first; all where none is named."""
        async for block in self.blocks(tenant_id, below=below):
            if isinstance(block, Unreadable):
                yield block
                continue
            for event in reversed(block.events):
                if below is None or event.version < below:
                    yield event


def write_of(events: list[AuditEvent]) -> RecordWrite:
    """The write that appends a block, if nobody else has appended meanwhile."""
    key = _key(events[0].tenant_id, events[0].version)
    return RecordWrite(NAMESPACE, key, _encoder.encode(events), expected=0)


def behind(head: AuditEvent | None) -> tuple[int, str]:
    """The version and the previous hash of what comes behind the head."""
    return (head.version + 1, head.hash) if head else (1, FIRST_PREVIOUS)


def _block(record: Record) -> Block | Unreadable:
    try:
        events = _decoder.decode(record.value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        events = []
    # A time without a zone compares to none of ours.
    if not events or any(event.time.tzinfo is None for event in events):
        return Unreadable(f"the record {record.key}")
    return Block(record, events)


def _prefix(tenant_id: str) -> str:
    return tenant_id.replace("%", "%25").replace("/", "%2F") + "/"


def _unescaped(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")


def _key(tenant_id: str, version: int) -> str:
    return f"{_prefix(tenant_id)}{_LAST - version:0{_DIGITS}d}"
