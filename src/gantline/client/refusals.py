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
from gantline.contract import errors
from gantline.contract.errors import Code, GantlineError, Problem

CORRELATION: Final = "x-correlation-id"
# What a server says must not be able to write to the terminal of whoever reads it.
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_LONGEST_TEXT: Final = 1000
_DEFAULT_RETRY_AFTER_SECONDS: Final = 1
_TOO_MANY: Final = 429

_decoder: Final = msgspec.json.Decoder(ProblemDocument)

_PLAIN: Final[Mapping[str, Callable[[str], GantlineError]]] = MappingProxyType(
    {
        ApiCode.INVALID_REQUEST: errors.InvalidInput,
        ApiCode.UNKNOWN_JOB_TYPE: errors.UnknownJobType,
        ApiCode.BODY_TOO_LARGE: errors.PayloadTooLarge,
        ApiCode.IDEMPOTENCY_KEY_REUSED: errors.RequestKeyReused,
        ApiCode.NOT_FOUND: errors.NotThere,
        ApiCode.WEBHOOK_NOT_FOUND: errors.WebhookNotFound,
        ApiCode.WEBHOOKS_OFF: errors.WebhooksOff,
        ApiCode.REQUEST_TIMEOUT: errors.ServerFailed,
        ApiCode.INTERNAL_ERROR: errors.ServerFailed,
        ApiCode.OVERLOADED: errors.ServerFailed,
        Code.INVALID_FORMAT: errors.InvalidFormat,
        Code.PAYLOAD_TOO_LARGE: errors.PayloadTooLarge,
        Code.UNAUTHENTICATED: errors.NotAuthenticated,
        Code.INVALID_CREDENTIALS: errors.InvalidCredentials,
        Code.FORBIDDEN: errors.Forbidden,
        Code.IDEMPOTENCY_CONFLICT: errors.SubmitConflict,
        Code.JOB_ID_CONFLICT: errors.JobIdConflict,
        Code.SCHEDULE_CONFLICT: errors.ScheduleConflict,
        Code.ILLEGAL_TRANSITION: errors.IllegalTransition,
        Code.VERSION_MISMATCH: errors.VersionMismatch,
        Code.JOB_TYPE_DISABLED: errors.JobTypeDisabled,
        Code.QUEUE_FULL: errors.QueueFull,
        Code.STORE_CLOSED: errors.StoreClosed,
        Code.STORE_UNAVAILABLE: errors.StoreUnavailable,
        Code.IDENTITY_PROVIDER_UNAVAILABLE: errors.IdentityProviderUnavailable,
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
        return errors.RateLimited(detail, retry_after_seconds=after or _DEFAULT_RETRY_AFTER_SECONDS)
    if code == Code.VALIDATION_ERROR:
        problems = [Problem(_text(one.pointer or "#"), _text(one.detail)) for one in problem.errors]
        return errors.InvalidPayload(detail, problems)
    if job_id is not None and code in (Code.JOB_NOT_FOUND, ApiCode.JOB_PURGED):
        return (
            errors.JobNotFound(job_id) if code == Code.JOB_NOT_FOUND else errors.JobPurged(job_id)
        )
    make = _PLAIN.get(code)
    if make is None:
        return errors.RequestRefused(detail, error_code=_text(code))
    error = make(detail)
    if isinstance(error, errors.SubmitRefused) and after is not None:
        error.retry_after_seconds = after
    return error


def _without_problem(reply: Reply, after: int | None) -> GantlineError:
    """What a proxy answers, or a server that is not a Gantline at all."""
    status = reply.status
    match status:
        case 401:
            return errors.NotAuthenticated("The server wants to know who is asking (401).")
        case 403:
            return errors.Forbidden("The server does not allow this (403).")
        case 429:
            after = after or _DEFAULT_RETRY_AFTER_SECONDS
            return errors.RateLimited("Too many requests (429).", retry_after_seconds=after)
        case _ if status >= 500:
            return errors.ServerFailed(f"The server answered {status}, and does not say why.")
        case _ if 300 <= status < 400:
            return errors.BadAnswer(
                f"The server sends us elsewhere ({status}), where the API key may not go.",
                next_step="Name the URL at which the API itself is served.",
            )
        case _:
            return errors.BadAnswer(
                f"The server answered {status} with what is not of this API.",
                next_step="Is the URL that of a Gantline server?",
            )


def retry_after_seconds(reply: Reply) -> int | None:
    """What Retry-After says, in seconds; None where it says nothing that we understand."""
    text = reply.headers.get("retry-after", "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _text(text: str) -> str:
    return _UNPRINTABLE.sub(" ", text)[:_LONGEST_TEXT]
