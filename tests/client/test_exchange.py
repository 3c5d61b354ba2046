"""What is tried again and what is not, told by playing the server by hand."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from gantline.api.documents import ProblemDocument
from gantline.api.problems import KINDS, Kind
from gantline.client.exchange import Retries, exchange
from gantline.client.http import Reply, Request, Unanswered
from gantline.client.refusals import error_of, refusal
from gantline.contract.errors import (
    BadAnswer,
    Forbidden,
    GantlineError,
    InvalidInput,
    JobNotFound,
    JobTypeDisabled,
    NotAuthenticated,
    QueueFull,
    RateLimited,
    RequestRefused,
    ServerError,
    ServerFailed,
    ServerUnreachable,
    StoreUnavailable,
)

LOST = Unanswered(reason="the connection broke", may_have_arrived=True)
NEVER_SENT = Unanswered(reason="connection refused", may_have_arrived=False)
OK = Reply(status=200, headers={}, body=b"{}")


def request(method: str = "GET", **headers: str) -> Request:
    sent = {"x-correlation-id": "c-1"} | {
        name.replace("_", "-"): text for name, text in headers.items()
    }
    return Request(method=method, path="/api/x", headers=sent, timeout_seconds=60)


def problem(code: str, **headers: str) -> Reply:
    kind = KINDS[code]
    document = ProblemDocument(
        type="/api/problems/x",
        title=kind.title,
        status=kind.status,
        detail="It is so.",
        instance="/api/x",
        error_code=code,
        correlation_id="c-2",
        retryable=kind.retryable,
    )
    return Reply(
        status=kind.status,
        headers={"content-type": "application/problem+json", "x-correlation-id": "c-2"}
        | {name.replace("_", "-"): text for name, text in headers.items()},
        body=msgspec.json.encode(document),
    )


def of_a_proxy(status: int, **headers: str) -> Reply:
    return Reply(status=status, headers={"content-type": "text/html", **headers}, body=b"<html>")


def play(
    sent: Request,
    answers: Sequence[Reply | Unanswered],
    *,
    seconds_to_answer: float = 0,
    **retries: Any,
) -> tuple[Reply | GantlineError, list[float], int]:
    """What comes out, the pauses, and how often it was sent; the last answer is for ever."""
    pauses: list[float] = []
    times = 0
    now = 1000.0

    async def send(request: Request) -> Reply | Unanswered:
        nonlocal times, now
        left = 1000.0 + sent.timeout_seconds - now
        # The same key, the same correlation id; and no more than the time that is left.
        assert request == msgspec.structs.replace(sent, timeout_seconds=left)
        times += 1
        now += seconds_to_answer
        return answers[min(times, len(answers)) - 1]

    async def pause(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += seconds

    flow = exchange(
        sent,
        Retries(**retries),
        send,
        pause=pause,
        chance=lambda: 1.0,
        monotonic=lambda: now,
    )
    try:
        return asyncio.run(flow), pauses, times
    except GantlineError as error:
        return error, pauses, times


KEYED = request("POST", idempotency_key='"k"')


@pytest.mark.parametrize("sent", [request(), KEYED])
@pytest.mark.parametrize(
    "answer", [LOST, NEVER_SENT, of_a_proxy(502), of_a_proxy(504), problem("STORE_UNAVAILABLE")]
)
def test_what_does_nothing_twice_is_tried_again(sent: Request, answer: Reply | Unanswered) -> None:
    outcome, pauses, times = play(sent, [answer, answer, OK])
    assert outcome is OK
    assert (len(pauses), times) == (2, 3)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (LOST, ServerUnreachable),
        (of_a_proxy(502), ServerFailed),
        (problem("STORE_UNAVAILABLE"), StoreUnavailable),
        (problem("REQUEST_TIMEOUT"), ServerFailed),
    ],
)
def test_what_may_have_been_done_is_not_done_again(
    method: str, answer: Reply | Unanswered, error: type[GantlineError]
) -> None:
    outcome, pauses, times = play(request(method), [answer])
    assert type(outcome) is error
    assert (pauses, times) == ([], 1)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("answer", [NEVER_SENT, of_a_proxy(429)])
def test_what_has_certainly_done_nothing_is_tried_again(
    method: str, answer: Reply | Unanswered
) -> None:
    outcome, _, times = play(request(method), [answer, OK])
    assert (outcome, times) == (OK, 2)


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if not kind.retryable])
def test_what_will_fail_again_is_not_tried_again(kind: Kind) -> None:
    outcome, pauses, times = play(request(), [problem(kind.code)])
    assert isinstance(outcome, GantlineError)
    assert (pauses, times) == ([], 1)


def test_attempts_are_bounded_and_pauses_grow_up_to_the_longest() -> None:
    outcome, pauses, times = play(request(), [LOST], attempts=6, longest_pause_seconds=1)
    assert isinstance(outcome, ServerUnreachable)
    assert times == 6
    assert pauses == [0.25, 0.5, 1, 1, 1]
    assert "in 6 attempts" in str(outcome)


def test_half_of_a_pause_is_by_chance() -> None:
    assert Retries().pause(1, None, 0.0) == 0.125
    assert Retries().pause(1, None, 1.0) == 0.25


def test_retry_after_is_honoured() -> None:
    full = problem("QUEUE_FULL", retry_after="7")
    outcome, pauses, _ = play(KEYED, [full, OK])
    assert outcome is OK
    assert 7 <= pauses[0] <= 7.25


@pytest.mark.parametrize("after", ["11", "999999999"])
def test_who_is_asked_to_wait_too_long_gets_the_error_at_once(after: str) -> None:
    outcome, pauses, times = play(KEYED, [problem("QUEUE_FULL", retry_after=after)])
    assert isinstance(outcome, QueueFull)
    assert (pauses, times, outcome.retry_after_seconds) == ([], 1, int(after))


@pytest.mark.parametrize("after", ["", "soon", "-1", "1.5", "٣", "9" * 30, "Wed, 21 Oct 2026"])
def test_a_retry_after_that_is_not_understood_is_none(after: str) -> None:
    outcome, pauses, _ = play(request(), [of_a_proxy(503, **{"retry-after": after}), OK])
    assert (outcome, pauses) == (OK, [0.25])


def test_all_attempts_together_keep_the_time_limit() -> None:
    outcome, pauses, times = play(request(), [LOST], seconds_to_answer=25)
    assert isinstance(outcome, ServerUnreachable)
    assert (pauses, times) == ([0.25, 0.5], 3)  # after 75.75 s of 60: the last was cut short


def test_what_could_be_tried_again_only_after_the_time_limit_is_raised_at_once() -> None:
    hasty = msgspec.structs.replace(KEYED, timeout_seconds=5)
    outcome, pauses, times = play(hasty, [problem("JOB_TYPE_DISABLED", retry_after="5")])
    assert isinstance(outcome, JobTypeDisabled)
    assert (pauses, times) == ([], 1)


def test_one_attempt_never_tries_again() -> None:
    assert play(request(), [LOST], attempts=1)[1:] == ([], 1)


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"first_pause_seconds": -1}, {"longest_pause_seconds": 0}]
)
def test_retries_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Retries(**wrong)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.code)
def test_every_problem_has_its_exception(kind: Kind) -> None:
    sent = msgspec.structs.replace(request(), job_id=uuid4())
    error = refusal(sent, problem(kind.code, retry_after="3"))
    assert error.correlation_id == "c-2"
    if kind.code in ("JOB_NOT_FOUND", "JOB_PURGED"):
        assert isinstance(error, JobNotFound)
        assert error.job_id == sent.job_id
    else:
        assert str(error).startswith("It is so.")
    if kind.status >= 500 and not isinstance(error, ServerError):
        assert error.code == kind.code
    if isinstance(error, RequestRefused):
        # What only a broken client would be told, or one that asks for stream tokens.
        assert kind.status in (405, 408, 415, 421) or kind.code == "STREAM_TOKENS_OFF"


def test_a_code_that_is_not_known_keeps_its_name() -> None:
    document = msgspec.json.decode(problem("FORBIDDEN").body, type=ProblemDocument)
    error = error_of(msgspec.structs.replace(document, error_code="OF_TOMORROW"))
    assert isinstance(error, RequestRefused)
    assert (error.error_code, error.correlation_id) == ("OF_TOMORROW", "c-2")


def test_a_limit_says_when_to_come_again() -> None:
    error = refusal(request(), of_a_proxy(429, **{"retry-after": "9"}))
    assert isinstance(error, RateLimited)
    assert error.retry_after_seconds == 9


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (301, BadAnswer),
        (400, BadAnswer),
        (401, NotAuthenticated),
        (403, Forbidden),
        (404, BadAnswer),
        (500, ServerFailed),
        (503, ServerFailed),
    ],
)
def test_who_answers_in_the_servers_place_is_told_from_it(
    status: int, error: type[GantlineError]
) -> None:
    found = refusal(request(), of_a_proxy(status))
    assert type(found) is error
    assert found.correlation_id == "c-1"
    assert str(status) in str(found) or isinstance(found, NotAuthenticated)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"detail":1}', b"\xff", b"[" * 100_000])
def test_a_broken_problem_is_no_problem(body: bytes) -> None:
    reply = Reply(status=409, headers={"content-type": "application/problem+json"}, body=body)
    assert isinstance(refusal(request(), reply), BadAnswer)


def test_a_server_cannot_write_to_the_terminal() -> None:
    document = msgspec.json.decode(problem("FORBIDDEN").body, type=ProblemDocument)
    evil = msgspec.structs.replace(
        document, detail="\x1b[2J\x9b1mgone\n" + "x" * 5000, correlation_id="\x1b]0;"
    )
    error = error_of(evil)
    assert str(error).isprintable()
    assert error.correlation_id.isprintable()
    assert len(str(error)) <= 1000
