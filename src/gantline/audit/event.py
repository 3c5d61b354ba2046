"""An audit event: one entry of a tenant's chain, and the hash that ties it to the one before."""

import hashlib
from datetime import datetime
from typing import Any, Final

import msgspec

FIRST_PREVIOUS: Final = "0" * 64
"""What the first event of a chain has for the hash of the one before."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be kept, before it has its place in the chain."""

    aggregate: str
    type: str
    actor: str
    payload: dict[str, Any]


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
    time: datetime
    """By the store's clock; never before that of the version before."""
    actor: str
    payload: dict[str, Any]
    """Names, ids and numbers; never a job's payload and never a secret."""
    payload_hash: str
    previous_hash: str
    hash: str

    @property
    def is_sound(self) -> bool:
        """Whether it is as it was written, as far as that can be told from it alone."""
        return self.payload_hash == _digest(self.payload) and self.hash == self._sealing()

    def _sealing(self) -> str:
        return _digest(
            {
                "tenantId": self.tenant_id,
                "aggregate": self.aggregate,
                "version": self.version,
                "type": self.type,
                "time": self.time,
                "actor": self.actor,
                "payloadHash": self.payload_hash,
                "previousHash": self.previous_hash,
            }
        )


def sealed(
    draft: Draft, *, tenant_id: str, version: int, time: datetime, previous_hash: str
) -> AuditEvent:
    """Give a draft its place behind the event of `previous_hash`."""
    event = AuditEvent(
        tenant_id=tenant_id,
        aggregate=draft.aggregate,
        version=version,
        type=draft.type,
        time=time,
        actor=draft.actor,
        payload=draft.payload,
        payload_hash=_digest(draft.payload),
        previous_hash=previous_hash,
        hash="",
    )
    return msgspec.structs.replace(event, hash=event._sealing())


_canonical: Final = msgspec.json.Encoder(order="sorted")


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical.encode(value)).hexdigest()
