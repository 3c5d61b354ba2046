"""Envelopes from outside: their members, and what is said of those that are ignored."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from gantline.contract.errors import InvalidEnvelope, InvalidFormat, Problem
from gantline.contract.job import Job
from gantline.contract.payload import encode_payload
from gantline.contract.pointer import pointer_to

MEMBERS: Final = frozenset(Job.__struct_encode_fields__) - {"externalId"} | {"delaySeconds"}
"""What is taken of an envelope; the external id is ours to say."""

_MOST_NAMED: Final = 20
_MOST_OF_A_NAME: Final = 64
# Clocks differ; and how long a job may be put off is counted from its createdAt.
_MOST_AHEAD: Final = timedelta(days=1)

AnyEnvelope = bytes | str | Mapping[str, Any] | Job
"""JSON, data that can be JSON, or a job, which is taken as the envelope that it writes."""


def read_members(envelope: AnyEnvelope) -> dict[str, msgspec.Raw]:
    """Read the members of an envelope, still encoded; raise InvalidFormat or InvalidPayload."""
    if isinstance(envelope, Mapping):
        known = {name: value for name, value in envelope.items() if name in MEMBERS}
        encoded = {name: encode_payload(value, limit=2**31).body for name, value in known.items()}
        return {str(name): msgspec.Raw(encoded.get(name, b"null")) for name in envelope}
    text = envelope.to_json() if isinstance(envelope, Job) else envelope
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidFormat(
            f"This is not a job envelope: {error}.",
            next_step="Send the Job Contract as a JSON object with at least jobType.",
        ) from None


def ignored(names: Iterable[str], known: frozenset[str] = MEMBERS) -> tuple[Problem, ...]:
    """What is said of members that are not known: not too much, and nothing that does harm."""
    unknown = [name for name in names if name not in known]
    detail = "is not known here and was ignored"
    problems = [Problem(pointer_to([_shown(name)]), detail) for name in unknown[:_MOST_NAMED]]
    if more := len(unknown) - len(problems):
        problems.append(Problem("#", f"has {more} more that are not known and were ignored"))
    return tuple(problems)


def _shown(name: str) -> str:
    shown = repr(name[: _MOST_OF_A_NAME + 1])[1:-1]
    return shown if len(shown) <= _MOST_OF_A_NAME else f"{shown[:_MOST_OF_A_NAME]}…"


def check_created_at(created_at: datetime, now: datetime) -> None:
    """Raise InvalidEnvelope for an instant that is too far ahead."""
    if created_at - now > _MOST_AHEAD:
        raise InvalidEnvelope([Problem("#/createdAt", "is in the future")])
