"""Recurrences: when something recurs, as a cron expression or as an interval. Pure.

Local times come from cronsim, which follows Debian's cron. What a change of the clock does to them
is decided here, in two rules:

- Fixed times (five fields, neither minute nor hour begins with `*`) run once whatever the clock
  does: one that is skipped runs at the end of the gap, one that comes twice runs the first time.
- All others run by the wall clock: whenever it shows a time that matches, and only then.

cronsim has the second rule too, but loses runs where clocks move by less than an hour
(`0 */2 * * *` at Lord Howe); so it is asked for local times only.
"""

import copy
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple, Self
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from gantline.contract.clock import EPOCH, as_utc, is_within_time
from gantline.contract.errors import InvalidInput

EXPRESSION_LIMIT: Final = 256
ZONE_LIMIT: Final = 64
SHORTEST_INTERVAL: Final = timedelta(seconds=1)
LONGEST_INTERVAL: Final = timedelta(days=3660)

_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Files beside the zones that are none: they differ from host to host, or are copies.
_NO_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
_COPIES: Final = ("posix/", "right/")
_SECOND: Final = timedelta(seconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)
# No two clocks differ by as much.
_NEAR: Final = timedelta(days=2)
_FAR: Final = timedelta(days=4)
_NAIVE_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # a local time, of no zone


class Cron(msgspec.Struct, frozen=True, tag_field="kind", tag="cron", forbid_unknown_fields=True):
    """A cron expression of five or six fields, or a nickname like @daily, in a time zone."""

    expression: str
    timezone: str = "UTC"

    @property
    def zone(self) -> ZoneInfo:
        return zone_of(self.timezone)

    def checked(self, now: datetime) -> Self:
        """Raise InvalidInput unless it can be read and ever matches."""
        if self.next_after(now) is None:
            raise InvalidInput(
                f"The cron expression {self.expression!r} never matches.",
                next_step="Look at its day and month: February has no 30th.",
            )
        return self

    def next_after(self, instant: datetime) -> datetime | None:
        """The first instant after this one, in UTC; None where there is none for 50 years."""
        zone, times = self.zone, _local_times(self.expression)
        follow = _once_a_day if times.are_fixed else _by_the_wall_clock
        try:
            return follow(times, zone, as_utc(instant))
        except OverflowError:
            return None  # the end of time

    def latest_until(self, until: datetime, *, floor: datetime) -> datetime:
        """The last instant that is not after `until`; `floor` is one of them.

        Found by halving, so that a year of missed seconds is no more work than one of missed days.
        """
        step = _SECOND
        low = until - step
        while low >= floor and not self._comes_within(low, until):
            step *= 2
            low = until - step
        low, high = max(low, floor - _MICROSECOND), until
        while high - low > _SECOND:
            middle = low + (high - low) / 2
            low, high = (middle, high) if self._comes_within(middle, until) else (low, middle)
        return self.next_after(low) or floor

    def _comes_within(self, after: datetime, until: datetime) -> bool:
        following = self.next_after(after)
        return following is not None and following <= until

    def explain(self) -> str:
        """Say it in plain words."""
        return f"{_local_times(self.expression).simulator.explain()} ({self.timezone})"


class Every(msgspec.Struct, frozen=True, tag_field="kind", tag="every", forbid_unknown_fields=True):
    """An interval, counted from an anchor: late or missed runs do not move those after them."""

    seconds: float
    anchor: datetime = EPOCH

    @property
    def zone(self) -> ZoneInfo:
        return zone_of("UTC")

    @property
    def interval(self) -> timedelta:
        return timedelta(seconds=self.seconds)

    def checked(self, now: datetime) -> Self:
        """Raise InvalidInput unless the interval is one."""
        shortest, longest = SHORTEST_INTERVAL.total_seconds(), LONGEST_INTERVAL.total_seconds()
        if not shortest <= self.seconds <= longest:  # NaN is neither
            raise InvalidInput(
                f"An interval of {self.seconds:g} seconds is not possible.",
                next_step=f"Choose one from {shortest:g} second to {LONGEST_INTERVAL.days} days.",
            )
        if self.anchor.tzinfo is None:
            raise InvalidInput(
                "The anchor of an interval has no time zone.", next_step="Give it one, like UTC."
            )
        if not is_within_time(self.anchor):
            raise InvalidInput("The anchor of an interval is an instant that UTC cannot hold.")
        return self

    def next_after(self, instant: datetime) -> datetime | None:
        """The first instant after this one, in UTC; before the anchor that is the anchor."""
        anchor = as_utc(self.anchor)
        if instant < anchor:
            return anchor
        try:
            return anchor + ((instant - anchor) // self.interval + 1) * self.interval
        except OverflowError:
            return None

    def latest_until(self, until: datetime, *, floor: datetime) -> datetime:
        """The last instant that is not after `until`; `floor` is one of them."""
        anchor = as_utc(self.anchor)
        return max(floor, anchor + (until - anchor) // self.interval * self.interval)

    def explain(self) -> str:
        """Say it in plain words."""
        anchor = "" if self.anchor == EPOCH else f", counted from {as_utc(self.anchor).isoformat()}"
        return f"Every {_span(self.interval)}{anchor}"


Recurrence = Cron | Every


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """Find a time zone by its IANA name; raise InvalidInput where there is none."""
    try:
        if not 0 < len(name) <= ZONE_LIMIT or name in _NO_ZONES or name.startswith(_COPIES):
            raise ValueError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(
            f"There is no time zone {name[:ZONE_LIMIT]!r} here.",
            next_step="Use an IANA name like Europe/Berlin. Where the system has no time zones at "
            "all, run `pip install tzdata`.",
        ) from None


class _LocalTimes(NamedTuple):
    """An expression, read: which local times it means."""

    simulator: CronSim
    are_fixed: bool
    """Debian's rule: whether they are times of day, each of which must run exactly once."""

    def after(self, local: datetime) -> datetime | None:
        walker = copy.copy(self.simulator)
        walker.dt = local.replace(microsecond=0)
        return next(walker, None)


@lru_cache(maxsize=1024)
def _local_times(expression: str) -> _LocalTimes:
    """Read an expression; never longer than the limit, so that nothing grows when it is read."""
    if len(expression) > EXPRESSION_LIMIT:
        raise InvalidInput(
            f"The cron expression has {len(expression)} characters; "
            f"the limit is {EXPRESSION_LIMIT}."
        )
    text = _NICKNAMES.get(expression.strip().lower(), expression)
    try:
        if not text.isascii() or not text.isprintable():
            raise CronSimError("Bad character")
        simulator = CronSim(text, _NAIVE_EPOCH)
    except CronSimError as error:
        raise InvalidInput(
            f"The cron expression {expression!r} cannot be read: {error}.",
            next_step="Write five fields (minute hour day month weekday), six with seconds first, "
            "or @hourly, @daily, @weekly, @monthly, @yearly.",
        ) from None
    _, minute, hour, *_ = simulator.parts
    has_stars = minute.startswith("*") or hour.startswith("*")
    return _LocalTimes(simulator, are_fixed=len(text.split()) == 5 and not has_stars)


def _once_a_day(times: _LocalTimes, zone: ZoneInfo, instant: datetime) -> datetime | None:
    local = instant.astimezone(zone).replace(tzinfo=None)
    while (found := times.after(local)) is not None:
        if (at := _first_that_exists(found, zone)) > instant:
            return at
        local = found  # it came already, before the clock was put back
    return None


def _first_that_exists(local: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which clocks first show this time, or go past it."""
    while True:
        at = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if at.astimezone(zone).replace(tzinfo=None) == local:
            return at
        local += timedelta(minutes=1)


def _by_the_wall_clock(times: _LocalTimes, zone: ZoneInfo, instant: datetime) -> datetime | None:
    """Go from one change of the clock to the next; between two, local times run evenly."""
    offset = _offset(zone, instant)
    local = (instant + offset).replace(tzinfo=None)
    found = times.after(local)
    while found is not None:
        at = found.replace(tzinfo=UTC) - offset
        is_far = at - instant > _FAR
        change = _first_change(zone, instant, instant + _NEAR if is_far else at)
        if change is None and not is_far:
            return at
        if change is None:
            # Until it is near, the clock shows no time that matches, however often it is changed.
            instant = found.replace(tzinfo=UTC) - _NEAR
            offset = _offset(zone, instant)
            local = (instant + offset).replace(tzinfo=None)
            continue
        instant, offset = change, _offset(zone, change)
        begin = (change + offset).replace(tzinfo=None) - _SECOND
        if begin < local or found <= begin:  # set back to before `local`, or forward past `found`
            local = begin
            found = times.after(local)
    return None


def _offset(zone: tzinfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def _first_change(zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """The first instant in (after, until] at which clocks are changed, to the second.

    Looked for day by day, so the two are no further apart than a few days.
    """
    low, until = after.replace(microsecond=0), until.replace(microsecond=0)
    while low < until:
        high = low + min(_DAY, until - low)
        if _offset(zone, low) != _offset(zone, high):
            return _change_between(zone, low, high)
        low = high
    return None


def _change_between(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Found by halving."""
    offset = _offset(zone, low)
    while high - low > _SECOND:
        middle = (low + (high - low) / 2).replace(microsecond=0)
        low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
    return high


def _span(interval: timedelta) -> str:
    """Say a span in its largest whole unit."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count, rest = divmod(interval.total_seconds(), size)
        if count and not rest:
            return unit if count == 1 else f"{count:g} {unit}s"
    seconds = interval.total_seconds()
    return "second" if seconds == 1 else f"{seconds:g} seconds"
