"""How a run ended, as the worker or the reaper saw it. `decide` says what follows from it.

Those with a tag are also what a handler's process answers.
"""

from datetime import timedelta

import msgspec

from gantline.contract import text
from gantline.contract.errors import Code
from gantline.contract.records import RecordWrite
from gantline.contract.submission import DedupeKey, NewJob


class ErrorInfo(msgspec.Struct, frozen=True):
    """An error in two texts: `message` is safe for clients, `detail` is for operators only."""

    code: str
    message: str
    detail: str = ""

    def __post_init__(self) -> None:
        # A store must never refuse an error, or the job that raised it would run for ever.
        for field, value in (
            ("code", text.error_code(str(self.code))),
            ("message", text.storable(str(self.message), text.ERROR_MESSAGE_LIMIT)),
            ("detail", text.storable(str(self.detail), text.ERROR_DETAIL_LIMIT)),
        ):
            msgspec.structs.force_setattr(self, field, value)


class Success(msgspec.Struct, frozen=True, tag=True):
    """The handler returned. What it wants written with the completion comes along."""

    result: bytes | None = None
    result_omitted: str | None = None
    follow_ups: tuple[NewJob, ...] = ()
    once: tuple[DedupeKey, ...] = ()
    records: tuple[RecordWrite, ...] = ()
    emitted: bytes | None = None
    """Domain events and audit entries, as `encode_emitted` has them."""


class Failure(msgspec.Struct, frozen=True, tag=True):
    """The handler raised. `retry_after` is asked for by the cause, such as an HTTP Retry-After."""

    error: ErrorInfo
    retryable: bool = True
    retry_after: timedelta | None = None
    too_many: bool = False
    """An HTTP 429: another service has had too many requests, and said until when to wait."""


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """The handler asked to run later."""

    delay: timedelta
    closes: str | None = None
    """Where it was throttled: the gate that it names, or "" for that of its type."""


class Released(msgspec.Struct, frozen=True):
    """The worker shut down and gives the run back."""


class LeaseLost(msgspec.Struct, frozen=True):
    """Nobody renewed the lease in time: the worker is taken to have crashed."""

    counts: bool = True
    """Whether the crash may be this job's fault; not where several workers ended together."""
    times_alone: int = 0
    """In how many crashes it was the only run of its worker, this one included; 0: not in this."""


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """The handler was stopped because a cancel had been requested."""


class Unreadable(msgspec.Struct, frozen=True):
    """The envelope or the payload could not be decoded at all."""

    detail: str = ""


class TypeDisabled(msgspec.Struct, frozen=True):
    """The kill switch of the job's type is on."""


Outcome = Success | Failure | Snoozed | Released | LeaseLost | Stopped | Unreadable | TypeDisabled

LEASE_EXPIRED = ErrorInfo(Code.LEASE_EXPIRED, "The worker stopped responding while it ran the job.")
NO_HANDLER = ErrorInfo(Code.NO_HANDLER, "No worker handles this type of job.")
TYPE_DISABLED = ErrorInfo(Code.JOB_TYPE_DISABLED, "This type of job is switched off.")
SNOOZED_TOO_OFTEN = ErrorInfo(Code.SNOOZED_TOO_OFTEN, "The job was put off too many times.")
