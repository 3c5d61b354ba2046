"""The error classifier: what is worth another attempt, and what a client is told."""

import asyncio
import socket
import sqlite3
import urllib.error
from datetime import timedelta
from email.message import Message
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantline.contract.classify import classify, exception_name
from gantline.contract.errors import (
    Code,
    InvalidEnvelope,
    InvalidInput,
    PayloadTooLarge,
    Permanent,
    Problem,
    Retry,
    Snooze,
)
from gantline.contract.outcome import ErrorInfo, Failure, Snoozed
from gantline.contract.text import ERROR_DETAIL_LIMIT

# Other work on the machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SECRET = "password=hunter2"  # noqa: S105 – what must not come out


def raised(error: BaseException) -> BaseException:
    """Raise and catch, so that the error has a trace like a handler's."""
    try:
        raise error
    except BaseException as caught:
        return caught


def failure(error: BaseException) -> Failure:
    outcome = classify(raised(error))
    assert isinstance(outcome, Failure)
    return outcome


def foreign(module: str, name: str, *bases: type[BaseException]) -> type[BaseException]:
    """Make an exception class that looks as if it came from a library we do not have."""
    return type(name, bases or (Exception,), {"__module__": module})


class Response:
    def __init__(self, status_code: object, headers: object = None) -> None:
        self.status_code = status_code
        self.headers = headers


class WithResponse(Exception):
    """The shape of httpx and requests."""

    def __init__(self, status: object, headers: object = None) -> None:
        super().__init__(SECRET)
        self.response = Response(status, headers)


class WithStatus(Exception):
    """The shape of aiohttp."""

    def __init__(self, status: object, headers: object = None) -> None:
        super().__init__(SECRET)
        self.status = status
        self.headers = headers


class WithCode(Exception):
    """The shape of urllib."""

    def __init__(self, status: object, headers: object = None) -> None:
        super().__init__(SECRET)
        self.code = status
        self.headers = headers


def urllib_error(status: int, headers: dict[str, str] | None = None) -> urllib.error.HTTPError:
    message = Message()
    for name, value in (headers or {}).items():
        message[name] = value
    return urllib.error.HTTPError("http://example.org", status, SECRET, message, None)


HTTP_SHAPES = [WithResponse, WithStatus, WithCode, urllib_error]


# -- a handler's own signals --------------------------------------------------------------------


def test_permanent_is_not_retried_and_speaks_to_the_client() -> None:
    outcome = failure(Permanent("card declined", "The card was declined."))
    assert not outcome.retryable
    assert (outcome.error.code, outcome.error.message) == (
        "CARD_DECLINED",
        "The card was declined.",
    )
    assert outcome.error.detail == ""


def test_retry_is_retried_when_it_asks_to_be() -> None:
    outcome = failure(Retry("Not yet.", after=timedelta(seconds=90), code="NOT_YET"))
    assert outcome.retryable
    assert outcome.retry_after == timedelta(seconds=90)
    assert (outcome.error.code, outcome.error.message) == ("NOT_YET", "Not yet.")


def test_retry_leaves_the_wait_to_the_strategy_by_default() -> None:
    outcome = failure(Retry())
    assert outcome.retryable
    assert outcome.retry_after is None
    assert outcome.error.code == Code.HANDLER_ERROR


@pytest.mark.parametrize("signal", [lambda after: Retry(after=after), Snooze])
def test_a_wait_that_is_no_span_is_an_error_where_it_is_written(signal: Any) -> None:
    with pytest.raises(TypeError, match="str"):
        signal("5")


def test_snooze_is_not_a_failure() -> None:
    assert classify(Snooze(timedelta(minutes=5))) == Snoozed(timedelta(minutes=5))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("Wrong."), Code.VALIDATION_ERROR),
        (InvalidEnvelope([Problem("#/queue", "is empty")]), Code.VALIDATION_ERROR),
        (PayloadTooLarge("Too large."), Code.PAYLOAD_TOO_LARGE),
    ],
)
def test_our_own_refusal_of_input_is_permanent(error: InvalidInput, code: str) -> None:
    outcome = failure(error)
    assert not outcome.retryable
    assert outcome.error.code == code
    assert outcome.error.message == str(error)


def test_a_subclass_of_a_signal_is_that_signal() -> None:
    class Declined(Permanent):
        pass

    assert not failure(Declined("DECLINED", "No.")).retryable


# -- HTTP ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", HTTP_SHAPES)
@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_a_service_that_is_busy_or_broken_is_tried_again(shape: Any, status: int) -> None:
    outcome = failure(shape(status))
    assert outcome.retryable
    assert outcome.error.code == Code.UPSTREAM_ERROR
    assert outcome.error.message == f"Another service answered {status}."


@pytest.mark.parametrize("shape", HTTP_SHAPES)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 412, 422, 499])
def test_a_service_that_refuses_is_not_tried_again(shape: Any, status: int) -> None:
    outcome = failure(shape(status, {"retry-after": "5"}))
    assert not outcome.retryable
    assert outcome.retry_after is None
    assert outcome.error.code == Code.UPSTREAM_REFUSED
    assert outcome.error.message == f"Another service answered {status}."


@pytest.mark.parametrize("shape", HTTP_SHAPES)
def test_a_retry_after_in_seconds_is_honoured(shape: Any) -> None:
    assert failure(shape(429, {"retry-after": "120"})).retry_after == timedelta(minutes=2)
    assert failure(shape(503, {"retry-after": "0"})).retry_after == timedelta(0)
    assert failure(shape(503)).retry_after is None


def test_the_name_of_the_header_has_any_case() -> None:
    assert failure(urllib_error(503, {"Retry-After": "7"})).retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("1.5", timedelta(seconds=1.5)),
        (30, timedelta(seconds=30)),
        ("86400", timedelta(days=1)),
        ("86401", timedelta(days=1)),
        ("1e300", timedelta(days=1)),
        ("inf", timedelta(days=1)),
        ("nan", None),
        ("-1", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None),
    ],
)
def test_a_retry_after_is_a_day_at_most_and_ignored_where_it_makes_no_sense(
    value: object, wait: timedelta | None
) -> None:
    outcome = failure(WithResponse(503, {"retry-after": value}))
    assert outcome.retryable
    assert outcome.retry_after == wait


@pytest.mark.parametrize("status", [True, False, 200, 302, 399, 600, 1006, -1, "503", None, 503.0])
@pytest.mark.parametrize("shape", [WithResponse, WithStatus, WithCode])
def test_what_is_no_http_error_status_is_not_taken_for_one(shape: Any, status: object) -> None:
    assert failure(shape(status)).error.code == Code.HANDLER_ERROR


def test_the_response_has_the_first_word() -> None:
    error = WithResponse(503)
    error.code = 404  # type: ignore[attr-defined]
    assert failure(error).error.message == "Another service answered 503."


class Touchy(Exception):
    """httpx has properties that raise where there is nothing to tell."""

    @property
    def response(self) -> object:
        raise RuntimeError("there is no response")


def test_an_attribute_that_raises_harms_nobody() -> None:
    assert failure(Touchy()).error.code == Code.HANDLER_ERROR


class TouchyHeaders(dict[str, str]):
    def __getitem__(self, name: str) -> str:
        raise RuntimeError("no headers")


def test_headers_that_raise_harm_nobody() -> None:
    assert failure(WithResponse(503, TouchyHeaders())).error.code == Code.UPSTREAM_ERROR


# -- the table ----------------------------------------------------------------------------------


def decoding_error() -> Exception:
    try:
        msgspec.json.decode(b'"x"', type=int)
    except msgspec.ValidationError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (TimeoutError(), Code.TIMEOUT, True),
        (ConnectionError(), Code.NETWORK_ERROR, True),
        (ConnectionResetError(), Code.NETWORK_ERROR, True),
        (ConnectionRefusedError(), Code.NETWORK_ERROR, True),
        (BrokenPipeError(), Code.NETWORK_ERROR, True),
        (socket.gaierror(-2, "unknown"), Code.NETWORK_ERROR, True),
        (sqlite3.OperationalError("database is locked"), Code.DB_UNAVAILABLE, True),
        (sqlite3.IntegrityError(), Code.HANDLER_ERROR, True),
        (decoding_error(), Code.VALIDATION_ERROR, False),
        (msgspec.DecodeError(), Code.HANDLER_ERROR, True),
        (ImportError(), Code.CONFIGURATION_ERROR, False),
        (ModuleNotFoundError(), Code.CONFIGURATION_ERROR, False),
        (ValueError(), Code.HANDLER_ERROR, True),
        (KeyError(), Code.HANDLER_ERROR, True),
        (OSError(), Code.HANDLER_ERROR, True),
        (Exception(), Code.HANDLER_ERROR, True),
        (asyncio.CancelledError(), Code.HANDLER_ERROR, True),
        (ExceptionGroup("both", [ValueError(), TimeoutError()]), Code.HANDLER_ERROR, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_the_table_of_errors_that_are_at_hand(
    error: BaseException, code: str, retryable: bool
) -> None:
    outcome = failure(error)
    assert (outcome.error.code, outcome.retryable, outcome.retry_after) == (code, retryable, None)


@pytest.mark.parametrize(
    ("module", "name", "code", "retryable"),
    [
        ("pydantic_core._pydantic_core", "ValidationError", Code.VALIDATION_ERROR, False),
        ("psycopg", "OperationalError", Code.DB_UNAVAILABLE, True),
        ("psycopg.errors", "OperationalError", Code.DB_UNAVAILABLE, True),
        ("sqlalchemy.exc", "OperationalError", Code.DB_UNAVAILABLE, True),
        ("redis.exceptions", "ConnectionError", Code.QUEUE_UNAVAILABLE, True),
        ("aiormq.exceptions", "AMQPConnectionError", Code.QUEUE_UNAVAILABLE, True),
        ("httpx", "TimeoutException", Code.TIMEOUT, True),
        ("httpx", "TransportError", Code.NETWORK_ERROR, True),
        ("aiohttp.client_exceptions", "ClientConnectionError", Code.NETWORK_ERROR, True),
        ("requests.exceptions", "Timeout", Code.TIMEOUT, True),
        ("requests.exceptions", "ConnectionError", Code.NETWORK_ERROR, True),
        ("somewhere", "OperationalError", Code.HANDLER_ERROR, True),
        ("psycopg", "SomethingElse", Code.HANDLER_ERROR, True),
    ],
)
def test_the_table_of_other_libraries(module: str, name: str, code: str, retryable: bool) -> None:
    family = foreign(module, name)
    child = foreign("elsewhere", "Child", family)
    for kind in (family, child):
        outcome = failure(kind())
        assert (outcome.error.code, outcome.retryable) == (code, retryable)


def test_the_exact_cause_wins_over_the_wide_one() -> None:
    wide = foreign("httpx", "TransportError")
    exact = foreign("httpx", "TimeoutException", wide)
    assert failure(exact()).error.code == Code.TIMEOUT


# -- two voices ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError(SECRET),
        TimeoutError(SECRET),
        ConnectionError(SECRET),
        sqlite3.OperationalError(SECRET),
        msgspec.ValidationError(SECRET),
        ImportError(SECRET),
        WithResponse(404),
        WithStatus(503),
        urllib_error(500),
    ],
    ids=type,
)
def test_the_client_never_sees_the_text_of_an_exception(error: BaseException) -> None:
    outcome = failure(error)
    assert SECRET not in outcome.error.message
    assert "Traceback" not in outcome.error.message
    assert SECRET in outcome.error.detail


@unhurried
@given(st.text(min_size=20))
def test_no_text_of_an_unknown_error_reaches_the_client(text: str) -> None:
    assert failure(RuntimeError(text)).error.message == "The job failed unexpectedly."


def test_the_operator_sees_the_trace() -> None:
    detail = failure(ValueError("oops")).error.detail
    assert detail.startswith("Traceback")
    assert "in raised" in detail
    assert detail.endswith("ValueError: oops\n")


def test_the_operator_sees_the_cause_too() -> None:
    error = ValueError("outer")
    error.__cause__ = raised(KeyError("inner"))
    detail = failure(error).error.detail
    assert "inner" in detail
    assert "outer" in detail


def test_the_detail_is_capped() -> None:
    detail = failure(ValueError("x" * 100_000)).error.detail
    assert len(detail) <= ERROR_DETAIL_LIMIT


def test_of_a_deep_trace_the_place_of_the_error_is_kept() -> None:
    def dive(depth: int) -> None:
        if depth == 0:
            innermost()
        dive(depth - 1)

    def innermost() -> None:
        raise ValueError("here")

    try:
        dive(300)
    except ValueError as error:
        detail = failure(error).error.detail
    assert "in innermost" in detail
    assert "ValueError: here" in detail


class OddlyNamed(Exception):
    pass


def chained() -> Exception:
    error = ValueError("outer")
    error.__cause__ = raised(KeyError("inner"))
    return error


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ValueError("oops"), "ValueError"),
        (ValueError(), "ValueError"),
        (ValueError("several\nlines: of\nKeyError: text"), "ValueError"),
        (ValueError("x" * 100_000), "ValueError"),
        (OddlyNamed("oops"), f"{__name__}.OddlyNamed"),
        (chained(), "ValueError"),
        (ExceptionGroup("several", [KeyError("a"), ValueError("b")]), "ExceptionGroup"),
        (Permanent("CODE", "said"), ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_class_of_an_exception_is_read_from_its_trace(error: Exception, name: str) -> None:
    assert exception_name(failure(error).error) == name


def test_a_detail_that_is_no_trace_names_no_exception() -> None:
    assert exception_name(ErrorInfo("CODE", "said", "KeyError: not ours")) == ""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Raising(Exception):
    """Its notes cannot be listed, so that not even the trace can be made."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError("no notes")


@pytest.mark.parametrize("kind", [Mute, Raising])
def test_an_exception_that_cannot_be_shown_is_classified_all_the_same(
    kind: type[Exception],
) -> None:
    outcome = failure(kind())
    assert outcome.retryable
    assert outcome.error.code == Code.HANDLER_ERROR
    assert kind.__name__ in outcome.error.detail


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_the_detail_can_always_be_stored(text: str) -> None:
    detail = failure(ValueError(text)).error.detail
    assert "\0" not in detail
    detail.encode()
