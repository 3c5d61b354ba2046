"""Envelopes from outside: which of their members are taken, and what is said of the others."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gantline.contract.bounds import Priority
from gantline.contract.errors import InvalidEnvelope, InvalidFormat, Problem
from gantline.contract.job import MAX_DELAY, Job, with_own_id
from gantline.contract.payload import encode_payload
from gantline.contract.pointer import pointer_to, problem_from

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Subject = Annotated[str, Meta(max_length=512)]
Attempts = Annotated[int, Meta(ge=1, le=1000)]
IdempotencyKey = Annotated[str, Meta(max_length=512)]
Delay = Annotated[float, Meta(ge=0, le=MAX_DELAY.total_seconds())]

_UNREADABLE: Final = (msgspec.DecodeError, ValueError, RecursionError)
IGNORED: Final = "is not known here and was ignored"
_MOST_NAMED: Final = 20
_MOST_OF_A_NAME: Final = 64
# Clocks differ; and how long a job may be put off is counted from its createdAt.
_MOST_AHEAD: Final = timedelta(days=1)
_OPTIONS: Final = {
    "job_id": "job_id",
    "subject_id": "subject",
    "correlation_id": "correlation_id",
    "idempotency_key": "idempotency_key",
    "attempt": "attempt",
    "max_attempts": "max_attempts",
    "created_at": "created_at",
    "tenant_id": "tenant",
    "queue": "queue",
    "priority": "priority",
    "scheduled_at": "at",
    "delay_seconds": "delay",
    "created_by": "owner",
    "parent_job_id": "parent",
    "trace_context": "trace_context",
}


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What may be said of a job from outside. None is not said: then it is as its type has it."""

    job_type: Name
    payload: msgspec.Raw | UnsetType = UNSET
    job_id: UUID | None = None
    subject_id: Subject | None = None
    correlation_id: Annotated[str, Meta(max_length=256)] | None = None
    idempotency_key: IdempotencyKey | None = None
    attempt: Attempts | None = None
    max_attempts: Attempts | None = None
    created_at: Annotated[datetime, Meta(tz=True)] | None = None
    tenant_id: Name | None = None
    queue: Name | None = None
    priority: Priority | None = None
    scheduled_at: Annotated[datetime, Meta(tz=True)] | None = None
    delay_seconds: Delay | None = None
    payload_version: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    created_by: Annotated[str, Meta(max_length=256)] | None = None
    parent_job_id: UUID | None = None
    trace_context: dict[str, str] | None = None

    @property
    def body(self) -> bytes:
        """The payload as JSON."""
        return bytes(self.payload) if isinstance(self.payload, msgspec.Raw) else b"null"

    def options(self) -> dict[str, Any]:
        """What it says, as the options of `JobType.prepare`; raise InvalidEnvelope."""
        if self.scheduled_at is not None and self.delay_seconds is not None:
            detail = "is there beside scheduledAt; send one of them"
            raise InvalidEnvelope([Problem("#/delaySeconds", detail)])
        said = ((option, getattr(self, name)) for name, option in _OPTIONS.items())
        return {option: value for option, value in said if value is not None}

    def job(self, **defaults: Any) -> Job:
        """The job of a type that is not declared here: what it does not say, the contract has."""
        said = {name: getattr(self, name, None) for name in Job.__struct_fields__}
        given = {name: value for name, value in said.items() if value not in (None, UNSET)}
        job = Job(**(defaults | given))
        return job if self.job_id is None else with_own_id(job)


MEMBERS: Final = frozenset(Envelope.__struct_encode_fields__)

AnyEnvelope = bytes | str | Mapping[str, Any] | Job
"""JSON, data that can be JSON, or a job, which is taken as the envelope that it writes."""


def read_envelope(envelope: AnyEnvelope) -> tuple[Envelope, tuple[Problem, ...]]:
    """Read an envelope, and what was ignored of it; raise InvalidFormat or InvalidEnvelope."""
    members = read_members(envelope)
    known = {name: value for name, value in members.items() if name in MEMBERS}
    try:
        return msgspec.json.decode(msgspec.json.encode(known), type=Envelope), ignored(members)
    except msgspec.ValidationError as error:
        raise InvalidEnvelope([problem_from(str(error))]) from None
    except _UNREADABLE as error:
        raise _no_envelope(error) from None


def read_members(envelope: AnyEnvelope) -> dict[str, msgspec.Raw]:
    """Read the members of an envelope, still encoded; raise InvalidFormat."""
    if isinstance(envelope, Mapping):
        known = {name: value for name, value in envelope.items() if name in MEMBERS}
        encoded = {name: encode_payload(value, limit=2**31).body for name, value in known.items()}
        return {str(name): msgspec.Raw(encoded.get(name, b"null")) for name in envelope}
    text = envelope.to_json() if isinstance(envelope, Job) else envelope
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except _UNREADABLE as error:
        raise _no_envelope(error) from None


def _no_envelope(error: Exception) -> InvalidFormat:
    return InvalidFormat(
        f"This is not a job envelope: {error}.",
        next_step="Send the Job Contract as a JSON object with at least jobType.",
    )


def ignored(names: Iterable[str], known: frozenset[str] = MEMBERS) -> tuple[Problem, ...]:
    """What is said of members that are not known: not too much, and nothing that does harm."""
    unknown = [name for name in names if name not in known]
    problems = [Problem(pointer_to([_shown(name)]), IGNORED) for name in unknown[:_MOST_NAMED]]
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
