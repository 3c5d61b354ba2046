"""The error classifier: which exceptions are worth another attempt, and what clients see of them.

Libraries are recognised by the shape of their exceptions, so that none has to be imported.
"""

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from gantline.contract.errors import (
    Code,
    HandlerSignal,
    InvalidInput,
    Permanent,
    ResultNotStorable,
    Retry,
    Snooze,
    StoreError,
    Throttled,
)
from gantline.contract.outcome import ErrorInfo, Failure, Snoozed

ErrorClassifier = Callable[[BaseException], BaseException | None]
"""Given what a handler raised, it returns what that counts as: a signal, as Permanent, or another
exception; None leaves it to the rules here."""

_log = logging.getLogger("gantline.worker")

_RETRYABLE_HTTP: Final = frozenset({408, 425, 429})
_MAX_RETRY_AFTER: Final = timedelta(days=1)
_TRACE_BEGINS: Final = (
    "Traceback (most recent call last):",
    "  + Exception Group Traceback (most recent call last):",
)
_OF_A_GROUP: Final = "  | "

_Rule = tuple[Code, bool, str]
"""The code, whether it is retryable, and the message."""

_INVALID: Final[_Rule] = (Code.VALIDATION_ERROR, False, "The payload is not valid.")
_NOT_READY: Final = "The worker is not set up for this job."
_NO_DATABASE: Final[_Rule] = (Code.DB_UNAVAILABLE, True, "The database is unavailable.")
_NO_QUEUE: Final[_Rule] = (Code.QUEUE_UNAVAILABLE, True, "The queue is unavailable.")
_TOO_SLOW: Final[_Rule] = (Code.TIMEOUT, True, "Another service took too long.")
_UNEXPECTED: Final = "The job failed unexpectedly."
_UNREACHABLE: Final[_Rule] = (Code.NETWORK_ERROR, True, "Another service is unreachable.")

# By module and class. Looked up for all base classes of the exception, so a base class covers its
# subclasses. First the exact causes, then the wide ones.
_TABLE: Final[Mapping[tuple[str, str], _Rule]] = {
    ("msgspec", "ValidationError"): _INVALID,
    ("pydantic_core._pydantic_core", "ValidationError"): _INVALID,
    ("sqlite3", "OperationalError"): _NO_DATABASE,
    ("psycopg", "OperationalError"): _NO_DATABASE,
    ("psycopg.errors", "OperationalError"): _NO_DATABASE,
    ("sqlalchemy.exc", "OperationalError"): _NO_DATABASE,
    ("redis.exceptions", "ConnectionError"): _NO_QUEUE,
    ("aiormq.exceptions", "AMQPConnectionError"): _NO_QUEUE,
    ("httpx", "TimeoutException"): _TOO_SLOW,
    ("httpx", "TransportError"): _UNREACHABLE,
    ("aiohttp.client_exceptions", "ClientConnectionError"): _UNREACHABLE,
    ("requests.exceptions", "Timeout"): _TOO_SLOW,
    ("requests.exceptions", "ConnectionError"): _UNREACHABLE,
    ("builtins", "TimeoutError"): (Code.TIMEOUT, True, "The job took too long."),
    ("builtins", "ConnectionError"): _UNREACHABLE,
    ("urllib.error", "URLError"): _UNREACHABLE,
    ("redis.exceptions", "TimeoutError"): _NO_QUEUE,
    ("socket", "gaierror"): _UNREACHABLE,
    ("builtins", "ImportError"): (Code.CONFIGURATION_ERROR, False, _NOT_READY),
}


def classify(error: BaseException, by: ErrorClassifier | None = None) -> Failure | Snoozed:
    """Turn what a handler raised into an outcome. Unknown errors are worth another attempt.

    `by` is asked first, but not about a handler's own signal, nor about a result: the work is done.
    Never raises, since a run without an outcome would hold its slot for ever.
    """
    try:
        return _classified(error, by)
    except BaseException:  # an error of a user's own, or its parts, may raise anything
        return Failure(ErrorInfo(Code.HANDLER_ERROR, _UNEXPECTED, type(error).__name__))


def _classified(error: BaseException, by: ErrorClassifier | None) -> Failure | Snoozed:
    if by is not None and (counts_as := _asked(by, error)) is not None:
        return _traced(classify(counts_as), error)
    if isinstance(error, BaseExceptionGroup):
        return _of_group(error, by)
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Throttled():
            return Snoozed(error.after, error.closes)
        case Permanent():
            return Failure(_info(error, error.error_code, str(error)), retryable=False)
        case Retry():
            return Failure(_info(error, error.error_code, str(error)), retry_after=error.after)
        case InvalidInput():
            return Failure(_info(error, error.code, str(error)), retryable=False)
        case StoreError():
            return Failure(_info(error, error.code, "The job store is unavailable."))
    if (status := _http_status(error)) is not None:
        return _of_http(error, status)
    for family in type(error).__mro__:
        if found := _TABLE.get((family.__module__, family.__name__)):
            code, retryable, message = found
            return Failure(_info(error, code, message), retryable=retryable)
    return Failure(_info(error, Code.HANDLER_ERROR, _UNEXPECTED))


def not_started(error: Exception) -> Failure:
    """What follows where a job could not even be begun: it would break again."""
    return Failure(_info(error, Code.CONFIGURATION_ERROR, _NOT_READY), retryable=False)


def _asked(by: ErrorClassifier, error: BaseException) -> BaseException | None:
    try:
        return None if isinstance(error, HandlerSignal | ResultNotStorable) else by(error)
    except BaseException:
        _log.exception("the classifier of errors failed; using the default rules")
        return None


def _of_group(
    group: BaseExceptionGroup[BaseException], by: ErrorClassifier | None
) -> Failure | Snoozed:
    """Choose one of several errors: a signal, in this order; else one that is not retryable."""
    errors = list(_members(group))
    if by is not None:
        errors = [_asked(by, error) or error for error in errors]
    for signal in (Permanent, Retry, Throttled, Snooze):
        if found := next((error for error in errors if isinstance(error, signal)), None):
            return classify(found) if by is None else _traced(classify(found), group)
    outcomes = [outcome for outcome in map(classify, errors) if isinstance(outcome, Failure)]
    deciding = min(outcomes, key=lambda outcome: (outcome.retryable, outcome.retry_after is None))
    error = ErrorInfo(deciding.error.code, deciding.error.message, _trace(group))
    return msgspec.structs.replace(deciding, error=error)


def _members(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _members(error)
        else:
            yield error


def _info(error: BaseException, code: str, message: str) -> ErrorInfo:
    """A handler's own signal has its own detail; anything else keeps its trace for operators."""
    if isinstance(error, HandlerSignal):
        return ErrorInfo(code, message, error.detail)
    return ErrorInfo(code, message, _trace(error))


def _traced(outcome: Failure | Snoozed, error: BaseException) -> Failure | Snoozed:
    """With the trace of what was raised, where the outcome has nothing for operators yet."""
    if isinstance(outcome, Snoozed) or outcome.error.detail:
        return outcome
    info = ErrorInfo(outcome.error.code, outcome.error.message, _trace(error))
    return msgspec.structs.replace(outcome, error=info)


def _trace(error: BaseException) -> str:
    # The end of a trace says most, and the detail is cut at its end: so keep the last frames.
    try:
        return "".join(traceback.format_exception(error, limit=-12, chain=True))
    except BaseException as broken:  # a user's __str__ may raise anything
        return f"{type(error).__name__} (cannot be shown: {type(broken).__name__})"


def exception_name(error: ErrorInfo) -> str:
    """The class of the exception that caused an error, read from its trace; empty without one."""
    lines = [line.removeprefix(_OF_A_GROUP) for line in error.detail.split("\n")]
    traces = [at for at, line in enumerate(lines) if line in _TRACE_BEGINS]
    # After its header and its frames, which are indented, a trace names the exception. The message
    # may have many lines, so the last line is not the one to read.
    for line in lines[traces[-1] + 1 :] if traces else ():
        if not line.startswith(" "):
            return line.partition(":")[0]
    return ""


def _http_status(error: BaseException) -> int | None:
    """httpx and requests have `.response.status_code`, aiohttp `.status`, urllib `.code`."""
    if not isinstance(error, Exception):
        return None  # SystemExit has a code too
    response = _attribute(error, "response")
    for holder, name in ((response, "status_code"), (error, "status"), (error, "code")):
        status = _attribute(holder, name)
        if isinstance(status, int) and 400 <= status <= 599:
            return status
    return None


def _attribute(holder: object, name: str) -> Any:
    """Read an attribute of an object that is not ours: it may be a property that raises."""
    try:
        return getattr(holder, name, None)
    except Exception:
        return None


def _of_http(error: BaseException, status: int) -> Failure:
    if status >= 500 or status in _RETRYABLE_HTTP:
        info = _info(error, Code.UPSTREAM_ERROR, f"Another service answered {status}.")
        after = _retry_after(error)
        return Failure(info, retry_after=after, too_many=status == 429 and after is not None)
    info = _info(error, Code.UPSTREAM_REFUSED, f"Another service answered {status}.")
    return Failure(info, retryable=False)


def _retry_after(error: BaseException) -> timedelta | None:
    """The seconds of a Retry-After header; its date form is left to the backoff."""
    source = _attribute(error, "response")
    headers = _attribute(error if source is None else source, "headers")
    try:
        # Most libraries look names up in any case; a plain dictionary does not.
        seconds = float(headers.get("Retry-After") or headers.get("retry-after"))
    except Exception:
        return None
    if not seconds >= 0:
        return None
    return min(timedelta(seconds=min(seconds, 1e9)), _MAX_RETRY_AFTER)
