"""A rate limit: how many requests there may be in a second, and how many at once."""

import re
from typing import Final

import msgspec

from gantline.contract.errors import InvalidInput

_TEXT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)/(s|min|h)(?::(\d{1,9}))?")
_SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3600.0}
_LEAST_PER_SECOND: Final = 1 / 86_400
_MOST_PER_SECOND: Final = 100_000.0
_LARGEST_BURST: Final = 1_000_000


class RateLimit(msgspec.Struct, frozen=True, rename="camel"):
    """A bucket of `burst` tokens, refilled by `per_second`; every request takes one."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if (
            not _LEAST_PER_SECOND <= self.per_second <= _MOST_PER_SECOND
            or not 1 <= self.burst <= _LARGEST_BURST
        ):
            raise _build_error(f"{self.per_second:g}/s:{self.burst}")

    @property
    def seconds_per_token(self) -> float:
        return 1 / self.per_second

    def __str__(self) -> str:
        return f"{self.per_second:g} requests a second, {self.burst} at once"

    def allows(self, other: "RateLimit | None") -> bool:
        """Whether the other limit is at most this one; None is no limit."""
        return (
            other is not None and other.per_second <= self.per_second and other.burst <= self.burst
        )


def read_rate_limit(text: str) -> RateLimit:
    """Read `50/s`, `600/min` or `600/min:100`; without a burst it is what two seconds bring."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise _build_error(text)
    per_second = float(match[1]) / _SECONDS[match[2]]
    burst = int(match[3]) if match[3] else max(1, round(2 * per_second))
    return RateLimit(per_second, burst)


def _build_error(text: str) -> InvalidInput:
    return InvalidInput(
        f"{text[:64]!r} is not a rate limit.",
        next_step="Write 50/s or 600/min, with a burst 600/min:100.",
    )
