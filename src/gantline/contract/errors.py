"""Everything Gantline raises, and the stable codes that clients may rely on.

GantlineError
├── InvalidInput            VALIDATION_ERROR: what was handed in breaks the contract
│   ├── InvalidEnvelope     VALIDATION_ERROR, with one problem per field
│   ├── InvalidPayload      VALIDATION_ERROR, with one problem per field of the payload
│   ├── InvalidFormat       INVALID_FORMAT: not an envelope at all
│   ├── UnknownJobType      UNKNOWN_JOB_TYPE: a server has no such type
│   ├── PayloadTooLarge     PAYLOAD_TOO_LARGE
│   └── ResultNotStorable   RESULT_NOT_STORABLE: what a handler returned
├── SubmitConflict          IDEMPOTENCY_CONFLICT
│   ├── JobIdConflict       JOB_ID_CONFLICT
│   ├── KeyTaken            IDEMPOTENCY_CONFLICT: of a redrive
│   └── RequestKeyReused    IDEMPOTENCY_KEY_REUSED: for another request
├── SubmitRefused
│   ├── QueueFull           QUEUE_FULL: too many are waiting; try later
│   ├── JobTypeDisabled     JOB_TYPE_DISABLED: its kill switch is on
│   └── StoreClosed         STORE_CLOSED: its jobs are being moved to another store
├── RateLimited             RATE_LIMITED: too many requests; try later (429)
├── JobNotFound             JOB_NOT_FOUND
│   └── JobPurged           JOB_PURGED: it was there, and has ended
├── NotThere                NOT_FOUND: no such tenant, queue, type or schedule
├── ScheduleConflict        SCHEDULE_CONFLICT: the name is taken, or code has declared it
├── RequestRefused          any other code of a server, a newer one for example: see `error_code`
├── IllegalTransition       ILLEGAL_TRANSITION: the job's status does not allow that
├── SessionNotRegistered    SESSION_NOT_REGISTERED: only a registered worker claims
├── RunOver                 RUN_OVER: the run is no longer the job's current one
├── VersionMismatch         VERSION_MISMATCH: the job changed since it was read
├── NotAuthenticated        UNAUTHENTICATED: there are no credentials (401)
│   └── InvalidCredentials  INVALID_CREDENTIALS: a key or token that is not valid (401)
├── Forbidden               FORBIDDEN: known, but not allowed to do that (403)
├── KeyNotFound             KEY_NOT_FOUND: no such API key
├── IdentityProviderUnavailable  IDENTITY_PROVIDER_UNAVAILABLE: tokens cannot be checked (503)
├── AuthMisconfigured       AUTH_MISCONFIGURED: no pepper, no authenticator, a bad key set
├── WebhookNotFound         WEBHOOK_NOT_FOUND: no such endpoint
├── WebhooksOff             WEBHOOKS_OFF: there is no key for their secrets
├── WebhookNotVerified      WEBHOOK_NOT_VERIFIED: raised to receivers, by `gantline.webhooks.verify`
├── StoreError
│   ├── StoreMisconfigured  STORE_MISCONFIGURED: URL, path, rights, unsupported location
│   ├── StoreUnavailable    STORE_UNAVAILABLE: gone, full or unreachable; retry may help
│   │   └── StoreBusy       STORE_BUSY: another client holds the lock for too long
│   ├── StoreCorrupt        STORE_CORRUPT
│   └── SchemaMismatch      SCHEMA_MISMATCH: written by a newer or an altered Gantline
├── ServerError             raised by clients; the others too, by the errorCode of the answer
│   ├── ServerUnreachable   SERVER_UNREACHABLE: nobody answered, or not in time
│   ├── ServerFailed        INTERNAL_ERROR: it broke, or is overloaded
│   └── BadAnswer           BAD_ANSWER: what came is not what the API answers
└── HandlerSignal           raised by handlers to choose an outcome
    ├── Permanent
    ├── Retry
    ├── Snooze
    └── Throttled
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, NamedTuple
from uuid import UUID


class Code(StrEnum):
    """The stable error codes. Handlers may use their own beside them, in the same shape."""

    VALIDATION_ERROR = "VALIDATION_ERROR"
    INVALID_FORMAT = "INVALID_FORMAT"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    RESULT_NOT_STORABLE = "RESULT_NOT_STORABLE"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    JOB_ID_CONFLICT = "JOB_ID_CONFLICT"
    JOB_NOT_FOUND = "JOB_NOT_FOUND"
    JOB_TYPE_DISABLED = "JOB_TYPE_DISABLED"
    QUEUE_FULL = "QUEUE_FULL"
    STORE_CLOSED = "STORE_CLOSED"
    RATE_LIMITED = "RATE_LIMITED"
    SCHEDULE_CONFLICT = "SCHEDULE_CONFLICT"
    ILLEGAL_TRANSITION = "ILLEGAL_TRANSITION"
    VERSION_MISMATCH = "VERSION_MISMATCH"
    RUN_OVER = "RUN_OVER"
    SESSION_NOT_REGISTERED = "SESSION_NOT_REGISTERED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    INVALID_CREDENTIALS = "INVALID_CREDENTIALS"
    FORBIDDEN = "FORBIDDEN"
    KEY_NOT_FOUND = "KEY_NOT_FOUND"
    IDENTITY_PROVIDER_UNAVAILABLE = "IDENTITY_PROVIDER_UNAVAILABLE"
    AUTH_MISCONFIGURED = "AUTH_MISCONFIGURED"
    NO_HANDLER = "NO_HANDLER"
    LEASE_EXPIRED = "LEASE_EXPIRED"
    SNOOZED_TOO_OFTEN = "SNOOZED_TOO_OFTEN"
    FOLLOW_UP_CONFLICT = "FOLLOW_UP_CONFLICT"
    TIMEOUT = "TIMEOUT"
    NETWORK_ERROR = "NETWORK_ERROR"
    UPSTREAM_ERROR = "UPSTREAM_ERROR"
    UPSTREAM_REFUSED = "UPSTREAM_REFUSED"
    DB_UNAVAILABLE = "DB_UNAVAILABLE"
    QUEUE_UNAVAILABLE = "QUEUE_UNAVAILABLE"
    CONFIGURATION_ERROR = "CONFIGURATION_ERROR"
    HANDLER_ERROR = "HANDLER_ERROR"
    STORE_ERROR = "STORE_ERROR"
    STORE_MISCONFIGURED = "STORE_MISCONFIGURED"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    STORE_BUSY = "STORE_BUSY"
    STORE_CORRUPT = "STORE_CORRUPT"
    SCHEMA_MISMATCH = "SCHEMA_MISMATCH"


class GantlineError(Exception):
    """The root. `code` is stable, the text names the cause, `next_step` what to do about it."""

    code: ClassVar[str] = Code.STORE_ERROR
    correlation_id: str = ""
    """Under which a server has it in its log; empty where no server was asked."""

    def __init__(self, cause: str, *, next_step: str = "") -> None:
        super().__init__(f"{cause} {next_step}".rstrip() if next_step else cause)
        self.cause = cause
        self.next_step = next_step


class Problem(NamedTuple):
    """One thing that is wrong with what was handed in: where (a JSON pointer) and what."""

    pointer: str
    detail: str


class InvalidInput(GantlineError, ValueError):
    code: ClassVar[str] = Code.VALIDATION_ERROR
    line: str = ""
    """The file and the line of the declaration that is refused."""

    def name_line(self, line: str) -> None:
        """Begin the text with the line, unless it says one already."""
        if not self.line:
            self.line, self.cause = line, f"{line}: {self.cause}"
            self.args = (f"{line}: {self}",)


class InvalidEnvelope(InvalidInput):
    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(f"{pointer}: {detail}" for pointer, detail in problems))
        self.problems = tuple(problems)


class InvalidPayload(InvalidInput):
    """The pointers of its problems start at the payload, wherever that was sent."""

    def __init__(self, cause: str, problems: Sequence[Problem], *, next_step: str = "") -> None:
        super().__init__(cause, next_step=next_step)
        self.problems = tuple(problems)


class InvalidFormat(InvalidInput):
    code = Code.INVALID_FORMAT


class UnknownJobType(InvalidInput):
    code = "UNKNOWN_JOB_TYPE"


class PayloadTooLarge(InvalidInput):
    code = Code.PAYLOAD_TOO_LARGE


class ResultNotStorable(InvalidInput):
    """What a handler returned is not JSON, not of its declared type, or too large."""

    code = Code.RESULT_NOT_STORABLE


class SubmitConflict(GantlineError):
    """Another job already has this id or idempotency key and is not the same job.

    The text is constant on purpose: it must not reveal another caller's job.
    """

    code: ClassVar[str] = Code.IDEMPOTENCY_CONFLICT

    @classmethod
    def of(cls, by: str | None) -> "SubmitConflict":
        """`by` is what a store's Conflict says."""
        return cls.of_id() if by in (None, "id") else cls.of_key()

    @classmethod
    def of_key(cls) -> "SubmitConflict":
        return cls(
            "The idempotency key was used before with another payload.",
            next_step="Send the same payload again, or use a new key.",
        )

    @classmethod
    def of_id(cls) -> "JobIdConflict":
        return JobIdConflict("The job id is taken by another job.", next_step="Use a new id.")


class KeyTaken(SubmitConflict):
    """A job cannot be redriven, since another one has its key by now: `holder`.

    The text names it only where it `is_shown`: to those who may see that job.
    """

    def __init__(self, holder: UUID | None, *, is_shown: bool = False) -> None:
        other = f"The job {holder}" if holder and is_shown else "Another job"
        super().__init__(
            f"{other} has the idempotency key of this one by now.",
            next_step="Look whether it has done the work; if it fails, this one can be redriven.",
        )
        self.holder = holder


class JobIdConflict(SubmitConflict):
    code = Code.JOB_ID_CONFLICT


class RequestKeyReused(SubmitConflict):
    code = "IDEMPOTENCY_KEY_REUSED"


class SubmitRefused(GantlineError):
    """Not now: the same submit may be accepted later."""

    code = Code.QUEUE_FULL
    retry_after_seconds: int = 5


class QueueFull(SubmitRefused):
    code = Code.QUEUE_FULL


class JobTypeDisabled(SubmitRefused):
    code = Code.JOB_TYPE_DISABLED


class StoreClosed(SubmitRefused):
    """Whatever would change a job is refused. Callers need not know where the jobs are moved to."""

    code = Code.STORE_CLOSED


class RateLimited(GantlineError):
    """Not so fast: the same request may be made again after a while."""

    code = Code.RATE_LIMITED

    def __init__(self, cause: str, *, retry_after_seconds: int) -> None:
        super().__init__(cause)
        self.retry_after_seconds = retry_after_seconds


class JobNotFound(GantlineError):
    code: ClassVar[str] = Code.JOB_NOT_FOUND

    def __init__(self, job_id: UUID, *, whose: str = "", next_step: str = "") -> None:
        of = f" of {whose}" if whose else ""
        super().__init__(f"There is no job {job_id}{of}.", next_step=next_step)
        self.job_id = job_id


class JobPurged(JobNotFound):
    code = "JOB_PURGED"


class NotThere(GantlineError):
    code = "NOT_FOUND"


class ScheduleConflict(GantlineError):
    code = Code.SCHEDULE_CONFLICT


class RequestRefused(GantlineError):
    code = "REQUEST_REFUSED"

    def __init__(self, cause: str, *, error_code: str) -> None:
        super().__init__(cause)
        self.error_code = error_code


class IllegalTransition(GantlineError):
    code = Code.ILLEGAL_TRANSITION


class SessionNotRegistered(GantlineError):
    """Nothing was claimed. A worker registers again, and claims again."""

    code = Code.SESSION_NOT_REGISTERED

    def __init__(self, session: str) -> None:
        super().__init__(
            f"The session {session} is not registered, or its registration is over.",
            next_step="Register it, then claim again.",
        )


class RunOver(GantlineError):
    code = Code.RUN_OVER


class VersionMismatch(GantlineError):
    code = Code.VERSION_MISMATCH


class NotAuthenticated(GantlineError):
    code = Code.UNAUTHENTICATED


class InvalidCredentials(NotAuthenticated):
    """Its text is shown to the caller: it says what to do, never what was sent or what is stored.

    `internal` says more, for the log; it holds no secret either.
    """

    code = Code.INVALID_CREDENTIALS

    def __init__(self, cause: str, *, next_step: str = "", internal: str = "") -> None:
        super().__init__(cause, next_step=next_step)
        self.internal = internal


class Forbidden(GantlineError):
    code = Code.FORBIDDEN


class KeyNotFound(GantlineError):
    code = Code.KEY_NOT_FOUND


class IdentityProviderUnavailable(GantlineError):
    code = Code.IDENTITY_PROVIDER_UNAVAILABLE


class AuthMisconfigured(GantlineError):
    code = Code.AUTH_MISCONFIGURED


class WebhookNotFound(GantlineError):
    code = "WEBHOOK_NOT_FOUND"


class WebhooksOff(GantlineError):
    code = "WEBHOOKS_OFF"


class WebhookNotVerified(GantlineError):
    code = "WEBHOOK_NOT_VERIFIED"


class StoreError(GantlineError):
    code = Code.STORE_ERROR


class StoreMisconfigured(StoreError):
    code = Code.STORE_MISCONFIGURED


class StoreUnavailable(StoreError):
    code = Code.STORE_UNAVAILABLE


class StoreBusy(StoreUnavailable):
    code = Code.STORE_BUSY


class StoreCorrupt(StoreError):
    code = Code.STORE_CORRUPT


class SchemaMismatch(StoreError):
    code = Code.SCHEMA_MISMATCH


class ServerError(GantlineError):
    """A server, or the connection to it, does not work as it should."""

    code = "SERVER_ERROR"


class ServerUnreachable(ServerError):
    code = "SERVER_UNREACHABLE"


class ServerFailed(ServerError):
    code = "INTERNAL_ERROR"


class BadAnswer(ServerError):
    code = "BAD_ANSWER"


class HandlerSignal(GantlineError):
    code = Code.HANDLER_ERROR
    detail: str = ""


class Permanent(HandlerSignal):
    """Raise in a handler to fail the job for good, with a code and a message for clients.

    `detail` is for operators only.
    """

    def __init__(self, code: str, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.error_code = code
        self.detail = detail


class Retry(HandlerSignal):
    """Raise in a handler to have the job run again; counts as a failed attempt."""

    def __init__(
        self,
        message: str = "The handler asked for another attempt.",
        *,
        after: timedelta | float | None = None,
        code: str = Code.HANDLER_ERROR,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.after = None if after is None else _span(after)
        self.error_code = code
        self.detail = detail


class Snooze(HandlerSignal):
    """Raise in a handler to have the job run later; costs no attempt."""

    def __init__(self, delay: timedelta | float) -> None:
        super().__init__("The handler snoozed the job.")
        self.delay = _span(delay)


class Throttled(HandlerSignal):
    """Raise in a handler when another service asks to wait; costs no attempt.

    The job runs later, and until then its gate is closed: no other job of a type that has that gate
    starts. `closes` names another gate than that of the job's own type. After a day at the latest
    the job runs again, and may say so again.
    """

    def __init__(self, *, after: timedelta | float, closes: str = "") -> None:
        super().__init__("Another service asked the handler to wait.")
        self.after = _span(after)
        self.closes = closes


def _span(value: timedelta | float) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(seconds=value)
