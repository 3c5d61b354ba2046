"""The Job Contract: the one envelope in which every piece of work travels."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from gantline.contract import payload as rules
from gantline.contract.bounds import SHORTEST, check_span
from gantline.contract.clock import as_utc
from gantline.contract.errors import InvalidEnvelope, InvalidFormat, InvalidInput, Problem
from gantline.contract.job_id import new_job_id
from gantline.contract.text import name_problem
from gantline.runtime import now

DEFAULT_TENANT: Final = "default"
DEFAULT_QUEUE: Final = "default"
DELIVERY_QUEUE: Final = "webhooks"
RESERVED_NAMES: Final = "gantline."
"""What the names of Gantline's own job types and queues begin with, but for DELIVERY_QUEUE."""
DEFAULT_PRIORITY: Final = 2
DEFAULT_MAX_ATTEMPTS: Final = 3
MAX_DELAY: Final = timedelta(days=3650)
BROKER_KEY_LIMIT: Final = 128

_NAME_LIMITS: Final = {
    "job_type": 128,
    "tenant_id": 128,
    "queue": 128,
    "subject_id": 512,
    "correlation_id": 256,
    "idempotency_key": 512,
    "created_by": 256,
    "group": 256,
}
_LEAST_LIMIT: Final = min(_NAME_LIMITS.values())
_MAY_BE_EMPTY: Final = frozenset(
    {"subject_id", "correlation_id", "idempotency_key", "created_by", "group"}
)
_TRACE_LIMIT: Final = 1024


class Job(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a job is, as it was submitted; it never changes afterwards.

    The first nine fields are the contract that other systems share and are always written (their
    defaults are factories, which `omit_defaults` leaves alone); ours are written only when they
    differ from the default, so that an envelope of theirs reads and writes back key for key.
    An empty `subject_id` or `idempotency_key` means there is none.
    """

    job_id: UUID = msgspec.field(default_factory=new_job_id)
    job_type: str
    subject_id: str = msgspec.field(default_factory=str)
    correlation_id: str = msgspec.field(default_factory=str)
    idempotency_key: str = msgspec.field(default_factory=str)
    attempt: int = msgspec.field(default_factory=lambda: 1)
    max_attempts: int = msgspec.field(default_factory=lambda: DEFAULT_MAX_ATTEMPTS)
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    created_at: datetime = msgspec.field(default_factory=lambda: now())

    tenant_id: str = DEFAULT_TENANT
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    scheduled_at: datetime | None = None
    expires_at: datetime | None = None
    """If no run of it has begun by then, none begins: it is Cancelled instead."""
    payload_version: int = 1
    created_by: str = ""
    parent_job_id: UUID | None = None
    trace_context: dict[str, str] | None = None
    external_id: UUID | None = None
    """The id that it came with, from outside: a key of its tenant. `job_id` is always ours."""
    group: str = ""
    """Whose turn it takes, within its tenant; without one the tenant is the group."""

    @property
    def attempts_used(self) -> int:
        """How many attempts were used before this envelope reached us."""
        return self.attempt - 1

    @property
    def fingerprint(self) -> bytes:
        return rules.fingerprint(self.data(), self.payload_version)

    def data(self) -> Any:
        """Decode the payload into plain data."""
        return msgspec.json.decode(self.payload)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @property
    def broker_message_id(self) -> str:
        """The idempotency key, hashed where it is too long for a broker; else the job id."""
        key = self.idempotency_key
        if len(key) > BROKER_KEY_LIMIT:
            return hashlib.sha256(key.encode()).hexdigest()
        return key or str(self.job_id)


def read_job(text: bytes | str) -> Job:
    """Read an envelope tolerantly: unknown keys are skipped, null means not given.

    Raises InvalidFormat when it is no envelope at all. What the values may be is `check_job`'s.
    """
    try:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        # Without the nulls: a payload of null is the default as well.
        given = {key: value for key, value in fields.items() if bytes(value) != b"null"}
        job = msgspec.json.decode(msgspec.json.encode(given), type=Job, strict=False)
        job = with_aware_instants(job)
    # ValueError is also what msgspec raises for an instant in the year 10000.
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidFormat(
            f"This is not a job envelope: {error}.",
            next_step="Send the Job Contract as a JSON object with at least jobType.",
        ) from None
    return job


def with_own_id(job: Job) -> Job:
    """A job from outside under a new id of ours; the one that it came with is its external id."""
    return msgspec.structs.replace(job, job_id=new_job_id(), external_id=job.job_id)


def with_aware_instants(job: Job) -> Job:
    """The same job with its instants in UTC; raise InvalidEnvelope where UTC cannot hold them."""
    if job.created_at.tzinfo is UTC and job.scheduled_at is None and job.expires_at is None:
        return job  # as most are: made here and now
    try:
        return msgspec.structs.replace(
            job,
            created_at=as_utc(job.created_at),
            scheduled_at=job.scheduled_at and as_utc(job.scheduled_at),
            expires_at=job.expires_at and as_utc(job.expires_at),
        )
    except OverflowError:
        raise InvalidEnvelope(
            [Problem("#/createdAt", "is an instant that UTC cannot hold")]
        ) from None


def key_of_owner(owner: str, key: str) -> str:
    """Make an idempotency key that only this owner's jobs can have; of no key none."""
    return f"{owner.replace('%', '%25').replace('/', '%2F')}/{key}" if key else ""


def check_expires_in(span: timedelta | None) -> None:
    """Raise InvalidInput for a time in which no job could start, or that is longer than any."""
    check_span("expires_in", span, least=SHORTEST, most=MAX_DELAY)


def check_queue(queue: str) -> None:
    """Raise InvalidInput for a queue of Gantline's own jobs, which nobody else's may wait in."""
    if _is_reserved(queue):
        raise InvalidInput(
            f"The queue {queue!r} is one of Gantline's own.", next_step="Name another one."
        )


def _is_reserved(queue: str) -> bool:
    return queue == DELIVERY_QUEUE or queue.startswith(RESERVED_NAMES)


def check_job(
    job: Job, *, payload_limit: int = rules.DEFAULT_PAYLOAD_LIMIT, data: Any = msgspec.UNSET
) -> Any:
    """Hold an envelope to the contract; raise InvalidEnvelope, InvalidInput or PayloadTooLarge.

    Return the payload's data: `data`, where it was encoded and so checked here, else it is decoded.
    """
    problems = [*_name_problems(job), *_number_problems(job), *_trace_problems(job)]
    if _is_reserved(job.queue):
        problems.append(Problem("#/queue", "is one of Gantline's own; name another one"))
    if problems:
        raise InvalidEnvelope(problems)
    if data is not msgspec.UNSET:
        return data
    return rules.check_encoded(bytes(job.payload), limit=payload_limit)


def _name_problems(job: Job) -> list[Problem]:
    needed = (job.job_type, job.tenant_id, job.queue)
    others = (job.subject_id, job.correlation_id, job.idempotency_key, job.created_by, job.group)
    text = "".join(needed + others)
    # What is that short together is short enough, whichever it is. So in 0.6 instead of 4 µs.
    if all(needed) and not name_problem(text, _LEAST_LIMIT):
        return []
    problems = []
    for field, limit in _NAME_LIMITS.items():
        value: str = getattr(job, field)
        if not value and field not in _MAY_BE_EMPTY:
            problems.append(Problem(_pointer(field), "is empty"))
        elif detail := name_problem(value, limit):
            problems.append(Problem(_pointer(field), detail))
    return problems


def _number_problems(job: Job) -> list[Problem]:
    if job.scheduled_at is not None or job.expires_at is not None:
        for field, at in (("scheduled_at", job.scheduled_at), ("expires_at", job.expires_at)):
            if at is not None and at - job.created_at > MAX_DELAY:
                detail = f"is more than {MAX_DELAY.days} days after createdAt"
                return [Problem(_pointer(field), detail)]
    if (
        0 <= job.priority <= 3
        and 1 <= job.attempt <= job.max_attempts <= 1000
        and 1 <= job.payload_version < 2**31
    ):
        return []
    bounds = (
        ("priority", job.priority, 0, 3),
        ("max_attempts", job.max_attempts, 1, 1000),
        ("attempt", job.attempt, 1, max(1, job.max_attempts)),
        ("payload_version", job.payload_version, 1, 2**31 - 1),
    )
    return [
        Problem(_pointer(field), f"is {value}; it must be from {low} to {high}")
        for field, value, low, high in bounds
        if not low <= value <= high
    ]


def _trace_problems(job: Job) -> list[Problem]:
    if job.trace_context is None:
        return []
    try:
        size = len(msgspec.json.encode(job.trace_context))
    except UnicodeEncodeError:
        return [Problem(_pointer("trace_context"), "contains a lone surrogate")]
    if size > _TRACE_LIMIT:
        return [Problem(_pointer("trace_context"), f"is larger than {_TRACE_LIMIT} bytes")]
    return []


def _pointer(field: str) -> str:
    head, *rest = field.split("_")
    return "#/" + head + "".join(part.capitalize() for part in rest)
