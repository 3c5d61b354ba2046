"""Retry of deliveries: which responses are retried, after which wait, and how often."""

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Final

import msgspec

from gantline.contract.clock import as_utc
from gantline.contract.errors import Code
from gantline.contract.retry import RetryTable
from gantline.contract.webhook import WebhookSpec

SCHEDULE: Final = RetryTable(
    # As Standard Webhooks recommends: a little over three days.
    waits=tuple(timedelta(seconds=seconds) for seconds in (5, 300, 1800))
    + tuple(timedelta(hours=hours) for hours in (2, 5, 10, 14, 20, 24)),
    attempts=10,
)
JITTER: Final = 0.2

_RETRIED: Final = frozenset({408, 425, 429})
_SLOW_DOWN: Final = frozenset({429, 502, 504})
_GONE: Final = 410
_UNAVAILABLE: Final = 503
_LONGEST_RETRY_AFTER_SECONDS: Final = 86_400.0
_LONGEST_PAUSE_SECONDS: Final = 900.0
_USUAL_PAUSE_SECONDS: Final = 10.0


class WebhookResponse(msgspec.Struct, frozen=True):
    """What a receiver sent; of its body as much as came in time."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    seconds: float


class NoResponse(msgspec.Struct, frozen=True):
    """Why there is no response; the message is safe to show.

    How long it took is not said: it differs between names that are there and those that are not.
    """

    code: str
    message: str


def count_attempts(spec: WebhookSpec) -> int:
    return SCHEDULE.attempts if spec.retry_seconds is None else len(spec.retry_seconds) + 1


def choose_wait(attempt: int, spec: WebhookSpec, *, jitter: float) -> timedelta:
    """Return how long to wait after failed attempt number `attempt`; `jitter` is from 0 to 1."""
    waits = (
        [wait.total_seconds() for wait in SCHEDULE.waits]
        if spec.retry_seconds is None
        else spec.retry_seconds
    )
    seconds = waits[min(attempt, len(waits)) - 1] if waits else 0.0
    return timedelta(seconds=seconds * (1 + JITTER * jitter))


class DeliveryOutcome(Enum):
    DELIVERED = auto()
    RETRY = auto()
    REFUSED = auto()
    """Final: another attempt would get the same response."""


class DeliveryDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided about a delivery and its endpoint."""

    outcome: DeliveryOutcome
    code: str = ""
    message: str = ""
    """Safe for whoever may see the delivery: it has nothing of what the receiver sent."""
    retry_after_seconds: float = 0.0
    """The shortest wait that the receiver asks for."""
    pause_seconds: float = 0.0
    """How long to send nothing at all to this endpoint."""
    is_gone: bool = False
    is_up: bool = True
    """Whether the receiver itself has responded, not a server in front of it."""


def decide_delivery(response: WebhookResponse | NoResponse, now: datetime) -> DeliveryDecision:
    """2xx is delivered; 410 disables; what may pass is retried; the rest is final."""
    if isinstance(response, NoResponse):
        return DeliveryDecision(
            outcome=DeliveryOutcome.RETRY,
            code=response.code,
            message=response.message,
            is_up=False,
        )
    status = response.status
    message = f"The receiver answered {status}."
    if 200 <= status < 300:
        return DeliveryDecision(outcome=DeliveryOutcome.DELIVERED)
    if status in _RETRIED or status >= 500 or status < 200:
        after = _read_retry_after(response, now)
        pause = max(after, _USUAL_PAUSE_SECONDS) if status in _SLOW_DOWN else 0.0
        if status == _UNAVAILABLE:
            pause = after
        return DeliveryDecision(
            outcome=DeliveryOutcome.RETRY,
            code=Code.UPSTREAM_ERROR,
            message=message,
            retry_after_seconds=after,
            pause_seconds=min(pause, _LONGEST_PAUSE_SECONDS),
            is_up=status < 500 and status >= 200,
        )
    if 300 <= status < 400:
        message = f"The receiver answered {status}; redirects are not followed."
    return DeliveryDecision(
        outcome=DeliveryOutcome.REFUSED,
        code=Code.UPSTREAM_REFUSED,
        message=message,
        is_gone=status == _GONE,
    )


def _read_retry_after(response: WebhookResponse, now: datetime) -> float:
    """Read Retry-After, seconds or a date; a day at most."""
    text = next((value for name, value in response.headers if name == "retry-after"), "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:12]), _LONGEST_RETRY_AFTER_SECONDS)
    try:
        seconds = (as_utc(parsedate_to_datetime(text)) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_SECONDS)
