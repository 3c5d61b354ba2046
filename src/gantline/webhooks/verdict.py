"""The verdict: what follows from a receiver's answer. Pure."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Final

import msgspec

from gantline.contract.clock import as_utc
from gantline.contract.errors import Code
from gantline.webhooks.sender import Answer, NoAnswer

_TRY_AGAIN: Final = frozenset({408, 425, 429})
_SLOW_DOWN: Final = frozenset({429, 502, 504})
_GONE: Final = 410
_UNAVAILABLE: Final = 503
_LONGEST_RETRY_AFTER_SECONDS: Final = 86_400.0
_LONGEST_HOLD_SECONDS: Final = 900.0
_USUAL_HOLD_SECONDS: Final = 10.0


class Outcome(Enum):
    DELIVERED = auto()
    RETRY = auto()
    REFUSED = auto()
    """For good: another try would be answered the same."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a delivery, and of its endpoint."""

    outcome: Outcome
    code: str = ""
    message: str = ""
    """Safe for whoever may see that there is a delivery: nothing of what the receiver said."""
    retry_after_seconds: float = 0.0
    """The least that the receiver wants to be left alone."""
    hold_seconds: float = 0.0
    """How long to send nothing at all to this endpoint."""
    is_gone: bool = False
    is_up: bool = True
    """Whether there is somebody who answers as he means it."""


def judge(answer: Answer | NoAnswer, now: datetime) -> Verdict:
    """2xx is delivered; 410 means never again; what may pass is tried again; the rest is final."""
    if isinstance(answer, NoAnswer):
        return Verdict(outcome=Outcome.RETRY, code=answer.code, message=answer.message, is_up=False)
    status = answer.status
    message = f"The receiver answered {status}."
    if 200 <= status < 300:
        return Verdict(outcome=Outcome.DELIVERED)
    if status in _TRY_AGAIN or status >= 500 or status < 200:
        after = _retry_after(answer, now)
        hold = max(after, _USUAL_HOLD_SECONDS) if status in _SLOW_DOWN else 0.0
        if status == _UNAVAILABLE:
            hold = after
        return Verdict(
            outcome=Outcome.RETRY,
            code=Code.UPSTREAM_ERROR,
            message=message,
            retry_after_seconds=after,
            hold_seconds=min(hold, _LONGEST_HOLD_SECONDS),
            is_up=status < 500 and status >= 200,
        )
    if 300 <= status < 400:
        message = f"The receiver answered {status}; redirects are not followed."
    return Verdict(
        outcome=Outcome.REFUSED,
        code=Code.UPSTREAM_REFUSED,
        message=message,
        is_gone=status == _GONE,
    )


def _retry_after(answer: Answer, now: datetime) -> float:
    """What Retry-After asks for, as seconds or as a date, but a day at most."""
    text = next((value for name, value in answer.headers if name == "retry-after"), "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:12]), _LONGEST_RETRY_AFTER_SECONDS)
    try:
        seconds = (as_utc(parsedate_to_datetime(text)) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_SECONDS)
