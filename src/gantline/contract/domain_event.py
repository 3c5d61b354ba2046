"""Domain events: what a handler says has happened, or wants audited; part of its job's end.

A row of the log has those of its run as JSON, in the order in which they were emitted.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from gantline.contract.audit import DETAILS_LIMIT
from gantline.contract.codec import MsgspecCodec
from gantline.contract.errors import InvalidInput
from gantline.contract.status import Event
from gantline.contract.text import name_problem

MOST_EMITTED: Final = 20
EMITTED_LIMIT: Final = 16 * 1024
"""All that a run emits has so many bytes at most, names included."""
ALL_EVENTS: Final = "job.*"
"""All events of jobs; no domain event."""
ALL_DOMAIN_EVENTS: Final = "domain.*"

TYPE_PATTERN: Final = "^[A-Za-z0-9._-]{1,80}$"
_NAME: Final = re.compile(TYPE_PATTERN)
_RULE: Final = "Write 1 to 80 letters, digits, dots, hyphens and underscores of ASCII"
_RESERVED: Final = ("job.", "webhook.", "gantline.")
# What event streams call something else, and what browsers make of a name.
_OF_STREAMS: Final = frozenset({*Event, "state", "progress", "reset", "message", "open", "error"})
_ID_LIMIT: Final = 512

_codec: Final = MsgspecCodec[Any](Any)


class Emitted(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One of what a run emitted, as it is stored."""

    type: str
    aggregate: str
    aggregate_id: str
    payload: msgspec.Raw
    is_audit: bool = False
    """Whether it is an entry for the audit trail, and no event."""

    @classmethod
    def of(
        cls, kind: str, aggregate: str, about: str, payload: Any, *, is_audit: bool
    ) -> "Emitted":
        """Raise InvalidInput for what cannot be emitted; `about` is the id of the aggregate."""
        check_domain_type(kind)
        if not _NAME.fullmatch(aggregate):
            cause = f"{aggregate[:100]!r} does not name a kind of aggregate."
            raise InvalidInput(cause, next_step=f"{_RULE}.")
        problem = name_problem(about, _ID_LIMIT) if about else "is empty, as the job's subject is"
        if problem:
            raise InvalidInput(
                f"The aggregate_id of {kind} {problem}.", next_step="Give another aggregate_id=."
            )
        body = _codec.encode(payload, limit=DETAILS_LIMIT if is_audit else EMITTED_LIMIT).body
        if is_audit and body[:1] != b"{":
            raise InvalidInput(f"The payload of the audit entry {kind} is no JSON object.")
        fields = {"type": kind, "aggregate": aggregate, "aggregate_id": about}
        return cls(**fields, payload=msgspec.Raw(body), is_audit=is_audit)


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[Emitted]).decode


def encode_emitted(emitted: Sequence[Emitted]) -> bytes | None:
    """Encode what a run has emitted; raise InvalidInput where it is too much."""
    if len(emitted) > MOST_EMITTED:
        raise InvalidInput(f"A run emits at most {MOST_EMITTED} events and audit entries.")
    body = _encode(emitted) if emitted else None
    if body is not None and len(body) > EMITTED_LIMIT:
        raise InvalidInput(
            f"What the run emits has {len(body)} bytes; the limit is {EMITTED_LIMIT}.",
            next_step="Store the data elsewhere and emit its identifier.",
        )
    return body


def read_emitted(body: bytes | None) -> Sequence[Emitted]:
    """Read what a row of the log has of it."""
    return () if body is None else _decode(body)


def check_domain_type(name: str) -> None:
    """Raise InvalidInput for what cannot be the type of a domain event."""
    if not _NAME.fullmatch(name) or name.startswith(_RESERVED) or name in _OF_STREAMS:
        begins = f"that does not begin with {', '.join(_RESERVED)} and is not used by event streams"
        cause = f"{name[:100]!r} cannot be the type of a domain event."
        raise InvalidInput(cause, next_step=f"{_RULE}, {begins}, as completed is.")


def includes(types: Collection[str], event_type: str) -> bool:
    """Whether a choice of types includes one, by its name or as one of all."""
    every = ALL_EVENTS if event_type.startswith("job.") else ALL_DOMAIN_EVENTS
    return event_type in types or every in types
