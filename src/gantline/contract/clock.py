"""Instants: the clock protocol, and the one exact conversion between datetimes and integers."""

from datetime import UTC, datetime, timedelta
from typing import Protocol

from gantline.runtime import monotonic, now

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """Give the time: `now` for instants that are stored, `monotonic` for measuring spans."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The host's own clock."""

    now = staticmethod(now)
    monotonic = staticmethod(monotonic)


LAST = datetime.max.replace(tzinfo=UTC)
LAST_MICROS = (LAST - EPOCH) // _MICROSECOND


def to_micros(instant: datetime) -> int:
    """Count the microseconds since 1970, without going through a float, which would round."""
    return (instant - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def later(instant: datetime, span: timedelta) -> datetime:
    """Add a span; a sum past the last possible instant becomes that instant."""
    try:
        return instant + span
    except OverflowError:
        return LAST if span > timedelta(0) else EPOCH


def span_micros(span: timedelta) -> int:
    """Count the microseconds of a span; none is longer than all of time."""
    return min(span // _MICROSECOND, LAST_MICROS)


def later_micros(now: int, span: timedelta) -> int:
    """The same as `later`, in microseconds since 1970."""
    return min(now + span_micros(span), LAST_MICROS)


def is_within_time(instant: datetime) -> bool:
    """Whether there is such an instant in UTC: on the first and the last day, not for all zones."""
    try:
        as_utc(instant)
    except OverflowError:
        return False
    return True


def as_utc(instant: datetime) -> datetime:
    """Turn any instant into aware UTC; one without a zone is taken to be UTC already."""
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
