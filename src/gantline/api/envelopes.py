"""The envelope reader: what may be said of a job from outside.

One for HTTP, the clients, the command line and Python; SQL has its rule in a migration.
"""

from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gantline.api.documents import Instant
from gantline.contract.bounds import Priority
from gantline.contract.envelope import (
    MEMBERS,
    AnyEnvelope,
    ignored,
    read_members,
)
from gantline.contract.errors import InvalidEnvelope, InvalidFormat, Problem
from gantline.contract.job import MAX_DELAY, Job, with_own_id
from gantline.contract.pointer import problem_from

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Subject = Annotated[str, Meta(max_length=512)]
Attempts = Annotated[int, Meta(ge=1, le=1000)]
IdempotencyKey = Annotated[str, Meta(max_length=512)]
Group = Annotated[str, Meta(max_length=256)]
Delay = Annotated[float, Meta(ge=0, le=MAX_DELAY.total_seconds())]

_NO_OPTIONS: Final = frozenset({"job_type", "payload", "payload_version"})
_OPTIONS: Final = {
    "subject_id": "subject",
    "tenant_id": "tenant",
    "scheduled_at": "at",
    "delay_seconds": "delay",
    "created_by": "owner",
    "parent_job_id": "parent",
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
    created_at: Instant | None = None
    tenant_id: Name | None = None
    queue: Name | None = None
    priority: Priority | None = None
    scheduled_at: Instant | None = None
    expires_at: Instant | None = None
    delay_seconds: Delay | None = None
    payload_version: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    created_by: Annotated[str, Meta(max_length=256)] | None = None
    parent_job_id: UUID | None = None
    trace_context: dict[str, str] | None = None
    group: Group | None = None

    @property
    def body(self) -> bytes:
        """The payload as JSON."""
        return bytes(self.payload) if isinstance(self.payload, msgspec.Raw) else b"null"

    def options(self) -> dict[str, Any]:
        """What it says, as the options of `JobType.prepare`; raise InvalidEnvelope."""
        if self.scheduled_at is not None and self.delay_seconds is not None:
            detail = "is there beside scheduledAt; send one of them"
            raise InvalidEnvelope([Problem("#/delaySeconds", detail)])
        names = (name for name in self.__struct_fields__ if name not in _NO_OPTIONS)
        said = ((_OPTIONS.get(name, name), getattr(self, name)) for name in names)
        return {option: value for option, value in said if value is not None}

    def job(self, **defaults: Any) -> Job:
        """The job of a type that is not declared here: what it does not say, the contract has."""
        said = {name: getattr(self, name, None) for name in Job.__struct_fields__}
        given = {name: value for name, value in said.items() if value not in (None, UNSET)}
        job = Job(**(defaults | given))
        return job if self.job_id is None else with_own_id(job)


def read_envelope(envelope: AnyEnvelope) -> tuple[Envelope, tuple[Problem, ...]]:
    """Read an envelope, and what was ignored of it; raise InvalidInput."""
    members = read_members(envelope)
    known = {name: value for name, value in members.items() if name in MEMBERS}
    try:
        return msgspec.json.decode(msgspec.json.encode(known), type=Envelope), ignored(members)
    except msgspec.ValidationError as error:
        raise InvalidEnvelope([problem_from(str(error))]) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidFormat(f"This is not a job envelope: {error}.") from None
