"""From an answer that is an error to the exception that is raised."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

import msgspec

from gantline.api.documents import ProblemDocument
from gantline.api.problems import ApiCode
from gantline.client.http import Reply, Request
from gantline.contract.errors import (
    BadAnswer,
    Code,
    Forbidden,
    GantlineError,
    IdentityProviderUnavailable,
    IllegalTransition,
    InvalidCredentials,
    InvalidFormat,
    InvalidInput,
    InvalidPayload,
    JobIdConflict,
    JobNotFound,
    JobPurged,
    JobTypeDisabled,
    NotAuthenticated,
    NotThere,
    PayloadTooLarge,
    Problem,
    QueueFull,
    RateLimited,
    RequestKeyReused,
    RequestRefused,
    ScheduleConflict,
    ServerFailed,
    StoreClosed,
    StoreUnavailable,
    SubmitConflict,
    SubmitRefused,
    UnknownJobType,
    VersionMismatch,
    WebhookNotFound,
    WebhooksOff,
)

CORRELATION: Final = "x-correlation-id"
# What a server says must not be able to write to the terminal of whoever reads it.
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_LONGEST_TEXT: Final = 1000
_DEFAULT_RETRY_AFTER_SECONDS: Final = 1
_TOO_MANY: Final = 429

_decoder: Final = msgspec.json.Decoder(ProblemDocument)

_PLAIN: Final[Mapping[str, Callable[[str], GantlineError]]] = MappingProxyType(
    {
        ApiCode.INVALID_REQUEST: InvalidInput,
        ApiCode.UNKNOWN_JOB_TYPE: UnknownJobType,
        ApiCode.BODY_TOO_LARGE: PayloadTooLarge,
        ApiCode.IDEMPOTENCY_KEY_REUSED: RequestKeyReused,
        ApiCode.NOT_FOUND: NotThere,
        ApiCode.WEBHOOK_NOT_FOUND: WebhookNotFound,
        ApiCode.WEBHOOKS_OFF: WebhooksOff,
        ApiCode.REQUEST_TIMEOUT: ServerFailed,
        ApiCode.INTERNAL_ERROR: ServerFailed,
        ApiCode.OVERLOADED: ServerFailed,
        Code.INVALID_FORMAT: InvalidFormat,
        Code.PAYLOAD_TOO_LARGE: PayloadTooLarge,
        Code.UNAUTHENTICATED: NotAuthenticated,
        Code.INVALID_CREDENTIALS: InvalidCredentials,
        Code.FORBIDDEN: Forbidden,
        Code.IDEMPOTENCY_CONFLICT: SubmitConflict,
        Code.JOB_ID_CONFLICT: JobIdConflict,
        Code.SCHEDULE_CONFLICT: ScheduleConflict,
        Code.ILLEGAL_TRANSITION: IllegalTransition,
        Code.VERSION_MISMATCH: VersionMismatch,
        Code.JOB_TYPE_DISABLED: JobTypeDisabled,
        Code.QUEUE_FULL: QueueFull,
        Code.STORE_CLOSED: StoreClosed,
        Code.STORE_UNAVAILABLE: StoreUnavailable,
        Code.IDENTITY_PROVIDER_UNAVAILABLE: IdentityProviderUnavailable,
    }
)


def problem_in(reply: Reply) -> ProblemDocument | None:
    """The problem that the API answered; None where something else answered."""
    media_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/problem+json":
        return None
    try:
        return _decoder.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def refusal(request: Request, reply: Reply) -> GantlineError:
    """The exception for an answer that is not what was asked for."""
    problem = problem_in(reply)
    after = retry_after_seconds(reply)
    if problem is None:
        error = _without_problem(reply, after)
    else:
        error = error_of(problem, job_id=request.job_id, after=after)
    sent = request.headers.get(CORRELATION, "")
    error.correlation_id = _text(reply.headers.get(CORRELATION, sent))
    return error


def error_of(
    problem: ProblemDocument, *, job_id: UUID | None = None, after: int | None = None
) -> GantlineError:
    """The exception for a problem; also for those that a batch answers item by item."""
    error = _error_of(problem, job_id, after)
    error.correlation_id = _text(problem.correlation_id)
    return error


def _error_of(problem: ProblemDocument, job_id: UUID | None, after: int | None) -> GantlineError:
    code, detail = problem.error_code, _text(problem.detail)
    if problem.status == _TOO_MANY:
        return RateLimited(detail, retry_after_seconds=after or _DEFAULT_RETRY_AFTER_SECONDS)
    if code == Code.VALIDATION_ERROR:
        problems = [Problem(_text(one.pointer or "#"), _text(one.detail)) for one in problem.errors]
        return InvalidPayload(detail, problems)
    if job_id is not None and code in (Code.JOB_NOT_FOUND, ApiCode.JOB_PURGED):
        return JobNotFound(job_id) if code == Code.JOB_NOT_FOUND else JobPurged(job_id)
    make = _PLAIN.get(code)
    if make is None:
        return RequestRefused(detail, error_code=_text(code))
    error = make(detail)
    if isinstance(error, SubmitRefused) and after is not None:
        error.retry_after_seconds = after
    return error


def _without_problem(reply: Reply, after: int | None) -> GantlineError:
    """What a proxy answers, or a server that is not a Gantline at all."""
    status = reply.status
    match status:
        case 401:
            return NotAuthenticated("The server wants to know who is asking (401).")
        case 403:
            return Forbidden("The server does not allow this (403).")
        case 429:
            after = after or _DEFAULT_RETRY_AFTER_SECONDS
            return RateLimited("Too many requests (429).", retry_after_seconds=after)
        case _ if status >= 500:
            return ServerFailed(f"The server answered {status}, and does not say why.")
        case _ if 300 <= status < 400:
            return BadAnswer(
                f"The server sends us elsewhere ({status}), where the API key may not go.",
                next_step="Name the URL at which the API itself is served.",
            )
        case _:
            return BadAnswer(
                f"The server answered {status} with what is not of this API.",
                next_step="Is the URL that of a Gantline server?",
            )


def retry_after_seconds(reply: Reply) -> int | None:
    """What Retry-After says, in seconds; None where it says nothing that we understand."""
    text = reply.headers.get("retry-after", "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _text(text: str) -> str:
    return _UNPRINTABLE.sub(" ", text)[:_LONGEST_TEXT]
