"""An exchange: a request until its answer, repeated where that cannot do anything twice."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from gantline.client.http import Reply, Request, Unanswered
from gantline.client.refusals import CORRELATION, problem_in, refusal, retry_after_seconds
from gantline.contract.errors import GantlineError, InvalidInput, ServerUnreachable
from gantline.runtime import monotonic, random

IDEMPOTENCY_KEY: Final = "idempotency-key"
# What a proxy answers while the server behind it is away.
_OF_PROXIES: Final = frozenset({502, 503, 504})
_TOO_MANY: Final = 429


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """How often to try, and how long to wait in between.

    Repeated is what cannot do anything twice: reading, and submitting, which has an
    Idempotency-Key. Everything else only where the server has certainly done nothing: it could not
    be reached, or it said that there were too many requests.
    """

    attempts: int = 4
    first_pause_seconds: float = 0.25
    """Doubled each time, up to the longest; half of it is by chance."""
    longest_pause_seconds: float = 10.0
    """Where Retry-After asks for a longer pause, the error is raised at once."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 <= self.first_pause_seconds <= self.longest_pause_seconds:
            raise InvalidInput(
                "Retries need at least one attempt, and pauses that grow.",
                next_step="Retries(attempts=1) never tries again.",
            )

    def pause(self, attempt: int, asked: int | None, chance: float) -> float | None:
        """How long to wait after this attempt; None: do not try again."""
        if attempt >= self.attempts:
            return None
        if asked is not None:
            seconds = asked + chance * self.first_pause_seconds
            return seconds if asked <= self.longest_pause_seconds else None
        longest = min(self.first_pause_seconds * 2.0 ** (attempt - 1), self.longest_pause_seconds)
        return longest * (1 + chance) / 2


async def exchange(
    request: Request,
    retries: Retries,
    send: Callable[[Request], Awaitable[Reply | Unanswered]],
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    chance: Callable[[], float] = random,
    monotonic: Callable[[], float] = monotonic,
) -> Reply:
    """Send until there is an answer that is no error; raise what the last one said.

    The time limit of the request is for all attempts and the pauses between them.
    """
    end, attempt = monotonic() + request.timeout_seconds, 0
    while True:
        attempt += 1
        left = end - monotonic()
        answer = await send(msgspec.structs.replace(request, timeout_seconds=left))
        if isinstance(answer, Reply) and answer.status < 300:
            return answer
        left = end - monotonic()
        await pause(pause_before_again(request, answer, attempt, retries, chance(), left=left))


def pause_before_again(
    request: Request,
    answer: Reply | Unanswered,
    attempt: int,
    retries: Retries,
    chance: float,
    *,
    left: float = math.inf,
) -> float:
    """How long to wait before the request is made again; raise its error where it is not, or
    where no time would be left for it."""
    asked = retry_after_seconds(answer) if isinstance(answer, Reply) else None
    pause = retries.pause(attempt, asked, chance) if _may_repeat(request, answer) else None
    if pause is None or pause >= left:
        raise _error(request, answer, attempt)
    return pause


def _may_repeat(request: Request, answer: Reply | Unanswered) -> bool:
    is_safe = request.method == "GET" or IDEMPOTENCY_KEY in request.headers
    if isinstance(answer, Unanswered):
        return is_safe or not answer.may_have_arrived
    if answer.status == _TOO_MANY:
        return True
    problem = problem_in(answer)
    retryable = answer.status in _OF_PROXIES if problem is None else problem.retryable
    return is_safe and retryable


def _error(request: Request, answer: Reply | Unanswered, attempts: int) -> GantlineError:
    if isinstance(answer, Reply):
        return refusal(request, answer)
    return _unreachable(request, answer, attempts)


def _unreachable(request: Request, answer: Unanswered, attempts: int) -> ServerUnreachable:
    often = "" if attempts == 1 else f" in {attempts} attempts"
    if not answer.may_have_arrived:
        advice = "Is the URL right, and does a server run there?"
    elif request.method != "GET":
        advice = "It is not known whether the request was carried out."
    else:
        advice = ""
    cause = f"The server did not answer{often}: {answer.reason}."
    error = ServerUnreachable(cause, next_step=advice)
    error.correlation_id = request.headers.get(CORRELATION, "")
    return error
