"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FakeClock:
    """Returns the time that the test has set."""

    def __init__(self, start: datetime = _START) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, span: timedelta | float) -> None:
        """Let time pass: a timedelta, or seconds."""
        span = span if isinstance(span, timedelta) else timedelta(seconds=span)
        self._monotonic += span.total_seconds()
        self._now += span

    def shift(self, span: timedelta) -> None:
        """Move the wall clock alone, as an administrator or NTP would; no time passes."""
        self._now += span
