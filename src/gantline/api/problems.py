"""Problems: every error that the API answers, with its status, its title and its advice."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from gantline.api.documents import ErrorDetail
from gantline.contract.errors import (
    Code,
    GantlineError,
    InvalidEnvelope,
    InvalidPayload,
    RateLimited,
    StoreError,
    SubmitRefused,
)

PROBLEM_PATH: Final = "/api/problems/"


class ApiCode(StrEnum):
    """The codes of errors that only the API knows; the others are in `contract.errors`."""

    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    INVALID_REQUEST = "INVALID_REQUEST"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    BODY_TOO_LARGE = "BODY_TOO_LARGE"
    UNKNOWN_JOB_TYPE = "UNKNOWN_JOB_TYPE"
    IDEMPOTENCY_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED"
    JOB_PURGED = "JOB_PURGED"
    BODY_TIMEOUT = "BODY_TIMEOUT"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    STREAM_TOKENS_OFF = "STREAM_TOKENS_OFF"
    WEBHOOK_NOT_FOUND = "WEBHOOK_NOT_FOUND"
    WEBHOOKS_OFF = "WEBHOOKS_OFF"
    TOO_MANY_STREAMS = "TOO_MANY_STREAMS"
    TOO_MANY_AT_ONCE = "TOO_MANY_AT_ONCE"
    OVERLOADED = "OVERLOADED"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class Kind(NamedTuple):
    """One type of problem. All but `code` is for people, and constant."""

    code: str
    status: int
    title: str
    advice: str
    retry_after_seconds: int | None = None

    @property
    def slug(self) -> str:
        return self.code.lower().replace("_", "-")

    @property
    def retryable(self) -> bool:
        return self.retry_after_seconds is not None


# By hand, since it is a table: code, status, title; advice, after how many seconds to try again.
# fmt: off
_KINDS: Final = (
    Kind(ApiCode.INVALID_REQUEST, 400, "The request cannot be understood",
         "A parameter, a header or the path is not what this endpoint takes; `errors` names it."),
    Kind(Code.INVALID_FORMAT, 400, "The body is not JSON",
         "Send one JSON value in UTF-8, not nested deeper than 64 levels."),
    Kind(Code.UNAUTHENTICATED, 401, "It is not known who is asking",
         "Send credentials; `WWW-Authenticate` says which kind."),
    Kind(Code.INVALID_CREDENTIALS, 401, "The credentials are not good",
         "They are malformed, expired, revoked or unknown. Use others."),
    Kind(Code.FORBIDDEN, 403, "This is not allowed",
         "The credentials are good, but not for this. Ask an administrator of the tenant."),
    Kind(ApiCode.NOT_FOUND, 404, "There is no such thing here",
         "Look at the path, or list first."),
    Kind(Code.JOB_NOT_FOUND, 404, "There is no such job",
         "It never existed, has been removed, or belongs to somebody else."),
    Kind(ApiCode.STREAM_TOKENS_OFF, 404, "This server gives no stream tokens",
         "They need a pepper that all API processes share: make one with `gantline key pepper`, "
         "and set GANTLINE_KEY_PEPPER. A client that is known by a cookie needs no token."),
    Kind(ApiCode.WEBHOOK_NOT_FOUND, 404, "There is no such webhook",
         "It never existed, was deleted, or belongs to another tenant."),
    Kind(ApiCode.WEBHOOKS_OFF, 404, "This server has no webhooks",
         "They need a key for their secrets, which workers have too: make one with "
         "`gantline key pepper`, and set GANTLINE_WEBHOOK_KEY."),
    Kind(ApiCode.METHOD_NOT_ALLOWED, 405, "This method is not for this path",
         "`Allow` says which methods are."),
    Kind(ApiCode.BODY_TIMEOUT, 408, "The body did not arrive in time",
         "Send it at once."),
    Kind(Code.IDEMPOTENCY_CONFLICT, 409, "The job's idempotency key is taken",
         "Another job has it: one with another payload, or one that you may not read. Send the "
         "payload that you sent before, or another key."),
    Kind(Code.JOB_ID_CONFLICT, 409, "The job id is taken",
         "Another job has this id. Leave the id out, or make a new one."),
    Kind(Code.ILLEGAL_TRANSITION, 409, "The job's status does not allow this",
         "Read the job's status: a job that has ended cannot be cancelled, only a failed, "
         "poisoned or cancelled one can be redriven, and only an ended one can be deleted."),
    Kind(Code.SCHEDULE_CONFLICT, 409, "The schedule cannot be made or changed so",
         "Its name is taken, or code has declared it: then change it there, or pause it."),
    Kind(ApiCode.JOB_PURGED, 410, "The job has been purged",
         "It was accepted and has ended; its record was removed after its retention."),
    Kind(Code.VERSION_MISMATCH, 412, "It has changed since it was read",
         "Read it again, and repeat the request with the new ETag if it still makes sense."),
    Kind(ApiCode.BODY_TOO_LARGE, 413, "The body is too large",
         "Send identifiers, not data; split a batch."),
    Kind(Code.PAYLOAD_TOO_LARGE, 413, "The payload is too large",
         "Store the data elsewhere and pass its identifier."),
    Kind(ApiCode.UNSUPPORTED_MEDIA_TYPE, 415, "The body is not declared to be JSON",
         "Send `Content-Type: application/json`."),
    Kind(Code.VALIDATION_ERROR, 422, "What was sent is not valid",
         "`errors` says where and why. The JSON Schema of a payload is at /api/job-types."),
    Kind(ApiCode.UNKNOWN_JOB_TYPE, 422, "There is no such type of job",
         "The types that there are, are listed at /api/job-types."),
    Kind(ApiCode.IDEMPOTENCY_KEY_REUSED, 422, "The Idempotency-Key was used for another request",
         "Repeat the very same request, or use a new key."),
    Kind(ApiCode.TOO_MANY_STREAMS, 429, "Too many event streams are open",
         "Close some, or follow many jobs by one stream: /api/events?jobId=…&jobId=….", 10),
    Kind(ApiCode.TOO_MANY_AT_ONCE, 429, "Too much of yours is under way",
         "Each principal and each tenant has a share of the server. Wait for answers before you "
         "send more, and send each body at once.", 1),
    Kind(Code.RATE_LIMITED, 429, "Too many requests",
         "`Retry-After` says when to come again; `RateLimit-Remaining` how many there may "
         "still be.", 1),
    Kind(ApiCode.INTERNAL_ERROR, 500, "Something went wrong here",
         "It is in the server's log under the correlation id."),
    Kind(Code.JOB_TYPE_DISABLED, 503, "This type of job is switched off",
         "An operator has stopped it for now. Try again "
         "later.", SubmitRefused.retry_after_seconds),
    Kind(Code.QUEUE_FULL, 503, "Too many jobs are waiting",
         "Try again later, and send less.", SubmitRefused.retry_after_seconds),
    Kind(Code.STORE_CLOSED, 503, "The jobs are being moved to another store",
         "They can be read, but not changed. Try again later.", SubmitRefused.retry_after_seconds),
    Kind(ApiCode.OVERLOADED, 503, "Too many requests are under way",
         "Try again later, and send less at once.", 1),
    Kind(Code.STORE_UNAVAILABLE, 503, "The store cannot be reached",
         "Try again; with the same Idempotency-Key or job id nothing is done twice.", 2),
    Kind(Code.IDENTITY_PROVIDER_UNAVAILABLE, 503, "Credentials cannot be checked now",
         "Try again later.", 5),
    Kind(ApiCode.REQUEST_TIMEOUT, 503, "The request took too long",
         "Try again; with the same Idempotency-Key or job id nothing is done twice.", 2),
)
# fmt: on
KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.code: kind for kind in _KINDS})
_STORE_DOWN: Final = "The store does not answer as it should."


class Refused(Exception):
    """Raised by operations to answer with a problem."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[ErrorDetail] = (),
        headers: Mapping[str, str] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = KINDS[code]
        self.detail = detail
        self.errors = list(errors)
        self.headers = headers or {}
        self.retry_after_seconds = retry_after_seconds or self.kind.retry_after_seconds


def invalid_parameter(name: str, detail: str) -> Refused:
    """A query parameter, a path value or a header that is not what it must be."""
    error = ErrorDetail(parameter=name, detail=detail)
    return Refused(ApiCode.INVALID_REQUEST, f"{name} {detail}.", errors=[error])


def refused_for(error: GantlineError, *, within: str = "#/payload") -> Refused:
    """The problem for an error of ours; `within` is where in the body the payload is."""
    if isinstance(error, StoreError):
        # Its text names hosts and files, for operators.
        return Refused(Code.STORE_UNAVAILABLE, _STORE_DOWN)
    kind = KINDS.get(error.code)
    if kind is None:
        return Refused(ApiCode.INTERNAL_ERROR, "The request could not be handled.")
    after = error.retry_after_seconds if isinstance(error, RateLimited) else None
    return Refused(
        error.code, str(error), errors=_errors_of(error, within), retry_after_seconds=after
    )


def _errors_of(error: GantlineError, within: str) -> list[ErrorDetail]:
    match error:
        case InvalidPayload():
            found = [(within + pointer[1:], detail) for pointer, detail in error.problems]
        case InvalidEnvelope():
            found = list(error.problems)
        case _:
            return []
    return [ErrorDetail(pointer=pointer, detail=detail) for pointer, detail in found]
