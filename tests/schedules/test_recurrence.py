"""When recurrences come round: tables over real zones, whose clocks have done all of this.

Each row of a table is a zone, an expression, an instant, and the runs behind it as the clocks of
that zone show them.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from time import thread_time
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from gantline import InvalidInput
from gantline.contract.clock import EPOCH
from gantline.schedules.recurrence import (
    EXPRESSION_LIMIT,
    Cron,
    Every,
    Recurrence,
    _LocalTimes,
    _offset,
)

NOW = datetime(2026, 11, 15, tzinfo=UTC)
Row = tuple[str, str, str, list[str]]


def runs(recurrence: Recurrence, after: datetime, count: int) -> list[datetime]:
    found = []
    at: datetime | None = after
    for _ in range(count):
        assert at is not None
        at = recurrence.next_after(at)
        assert at is not None
        found.append(at)
    assert all(one < other for one, other in pairwise([after, *found]))
    return found


def check(zone: str, expression: str, after: str, expected: list[str]) -> None:
    found = runs(Cron(expression, zone), datetime.fromisoformat(after), len(expected))
    shown = [at.astimezone(ZoneInfo(zone)).isoformat(" ", "minutes") for at in found]
    assert shown == expected


THE_CLOCK_IS_PUT_FORWARD: list[Row] = [
    # A fixed time in the gap runs at its end, and once.
    (
        *("Europe/Berlin", "30 2 * * *", "2026-03-28 12:00+01:00"),
        ["2026-03-29 03:00+02:00", "2026-03-30 02:30+02:00"],
    ),
    (
        *("Europe/Berlin", "0,15,30 2 * * *", "2026-03-28 12:00+01:00"),
        ["2026-03-29 03:00+02:00", "2026-03-30 02:00+02:00"],
    ),
    (
        *("Europe/Berlin", "30 2,3 * * *", "2026-03-28 12:00+01:00"),
        ["2026-03-29 03:00+02:00", "2026-03-29 03:30+02:00", "2026-03-30 02:30+02:00"],
    ),
    # By the wall clock, what the clock does not show does not run.
    (
        *("Europe/Berlin", "*/30 * * * *", "2026-03-29 01:20+01:00"),
        ["2026-03-29 01:30+01:00", "2026-03-29 03:00+02:00", "2026-03-29 03:30+02:00"],
    ),
    (
        *("Europe/Berlin", "30 */2 * * *", "2026-03-29 00:10+01:00"),
        ["2026-03-29 00:30+01:00", "2026-03-29 04:30+02:00"],
    ),
    # Six fields are always by the wall clock.
    (
        *("Europe/Berlin", "0 30 2 * * *", "2026-03-28 12:00+01:00"),
        ["2026-03-30 02:30+02:00"],
    ),
    (
        *("America/New_York", "30 2 * * *", "2026-03-07 12:00-05:00"),
        ["2026-03-08 03:00-04:00", "2026-03-09 02:30-04:00"],
    ),
    # The Southern hemisphere, in its spring.
    (
        *("Australia/Sydney", "15 2 * * *", "2026-10-03 12:00+10:00"),
        ["2026-10-04 03:00+11:00", "2026-10-05 02:15+11:00"],
    ),
    # Half an hour only.
    (
        *("Australia/Lord_Howe", "15 2 * * *", "2026-10-03 12:00+10:30"),
        ["2026-10-04 02:30+11:00", "2026-10-05 02:15+11:00"],
    ),
    (
        *("Australia/Lord_Howe", "*/15 * * * *", "2026-10-04 01:40+10:30"),
        ["2026-10-04 01:45+10:30", "2026-10-04 02:30+11:00", "2026-10-04 02:45+11:00"],
    ),
    (
        *("Australia/Lord_Howe", "0 * * * *", "2026-10-04 00:30+10:30"),
        ["2026-10-04 01:00+10:30", "2026-10-04 03:00+11:00", "2026-10-04 04:00+11:00"],
    ),
    # A day whose midnight does not exist.
    (
        *("America/Santiago", "0 0 * * *", "2026-09-05 12:00-04:00"),
        ["2026-09-06 01:00-03:00", "2026-09-07 00:00-03:00"],
    ),
    (
        *("America/Santiago", "@daily", "2026-09-05 12:00-04:00"),
        ["2026-09-06 01:00-03:00", "2026-09-07 00:00-03:00"],
    ),
    (
        *("Africa/Cairo", "0 0 * * FRI", "2026-04-22 12:00+02:00"),
        ["2026-04-24 01:00+03:00", "2026-05-01 00:00+03:00"],
    ),
    (
        *("America/Sao_Paulo", "0 0 4 * *", "2018-10-31 12:00-03:00"),
        ["2018-11-04 01:00-02:00", "2018-12-04 00:00-02:00"],
    ),
    # A day that there was not: Samoa went from the 29th to the 31st of December 2011.
    (
        *("Pacific/Apia", "0 6 * * *", "2011-12-28 12:00-10:00"),
        ["2011-12-29 06:00-10:00", "2011-12-31 00:00+14:00", "2011-12-31 06:00+14:00"],
    ),
    (
        *("Pacific/Apia", "0 */12 * * *", "2011-12-29 11:00-10:00"),
        ["2011-12-29 12:00-10:00", "2011-12-31 00:00+14:00", "2011-12-31 12:00+14:00"],
    ),
]


@pytest.mark.parametrize("row", THE_CLOCK_IS_PUT_FORWARD, ids=lambda row: f"{row[0]} {row[1]}")
def test_when_the_clock_is_put_forward(row: Row) -> None:
    check(*row)


THE_CLOCK_IS_PUT_BACK: list[Row] = [
    # A fixed time that comes twice runs the first time.
    (
        *("Europe/Berlin", "30 2 * * *", "2026-10-24 12:00+02:00"),
        ["2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00"],
    ),
    # Also when asked between the two.
    (
        *("Europe/Berlin", "30 2 * * *", "2026-10-25 02:10+01:00"),
        ["2026-10-26 02:30+01:00"],
    ),
    # By the wall clock it runs each time.
    (
        *("Europe/Berlin", "30 * * * *", "2026-10-25 01:40+02:00"),
        ["2026-10-25 02:30+02:00", "2026-10-25 02:30+01:00", "2026-10-25 03:30+01:00"],
    ),
    (
        *("Europe/Berlin", "0 30 2 * * *", "2026-10-24 12:00+02:00"),
        ["2026-10-25 02:30+02:00", "2026-10-25 02:30+01:00", "2026-10-26 02:30+01:00"],
    ),
    (
        *("America/New_York", "0 1 * * SUN", "2026-10-31 12:00-04:00"),
        ["2026-11-01 01:00-04:00", "2026-11-08 01:00-05:00"],
    ),
    (
        *("Australia/Sydney", "*/30 2 * * *", "2026-04-05 00:00+11:00"),
        [
            *("2026-04-05 02:00+11:00", "2026-04-05 02:30+11:00"),
            *("2026-04-05 02:00+10:00", "2026-04-05 02:30+10:00"),
        ],
    ),
    (
        *("Australia/Lord_Howe", "45 1 * * *", "2026-04-04 12:00+11:00"),
        ["2026-04-05 01:45+11:00", "2026-04-06 01:45+10:30"],
    ),
    (
        *("Australia/Lord_Howe", "*/15 1 * * *", "2026-04-05 01:20+11:00"),
        [
            *("2026-04-05 01:30+11:00", "2026-04-05 01:45+11:00"),
            *("2026-04-05 01:30+10:30", "2026-04-05 01:45+10:30"),
        ],
    ),
    # cronsim itself would lose this one, and run the next half an hour's but once.
    (
        *("Australia/Lord_Howe", "0 */2 * * *", "2026-04-05 00:00+11:00"),
        ["2026-04-05 02:00+10:30", "2026-04-05 04:00+10:30"],
    ),
    (
        *("Australia/Lord_Howe", "30 * * * *", "2026-04-05 00:40+11:00"),
        ["2026-04-05 01:30+11:00", "2026-04-05 01:30+10:30", "2026-04-05 02:30+10:30"],
    ),
    # A day with two last hours: midnight comes once.
    (
        *("America/Santiago", "0 0 * * *", "2026-04-03 12:00-03:00"),
        ["2026-04-04 00:00-03:00", "2026-04-05 00:00-04:00"],
    ),
    (
        *("America/Santiago", "30 23 * * *", "2026-04-04 12:00-03:00"),
        ["2026-04-04 23:30-03:00", "2026-04-05 23:30-04:00"],
    ),
    # Morocco puts its clocks back for Ramadan, and forward behind it.
    (
        *("Africa/Casablanca", "30 2 * * *", "2026-02-14 12:00+01:00"),
        ["2026-02-15 02:30+01:00", "2026-02-16 02:30+00:00"],
    ),
]


@pytest.mark.parametrize("row", THE_CLOCK_IS_PUT_BACK, ids=lambda row: f"{row[0]} {row[1]}")
def test_when_the_clock_is_put_back(row: Row) -> None:
    check(*row)


RULES_HAVE_CHANGED: list[Row] = [
    # Turkey stayed on summer time in 2016: no hour comes twice in October.
    (
        *("Europe/Istanbul", "30 3 * * SUN", "2016-10-24 00:00+03:00"),
        ["2016-10-30 03:30+03:00", "2016-11-06 03:30+03:00"],
    ),
    (
        *("Europe/Istanbul", "30 3 * * SUN", "2015-11-02 00:00+03:00"),
        ["2015-11-08 03:30+03:00", "2015-11-15 03:30+02:00"],
    ),
    # Brazil has had no summer time since 2019.
    (
        *("America/Sao_Paulo", "0 0 * * SUN", "2019-11-01 12:00-03:00"),
        ["2019-11-03 00:00-03:00", "2019-11-10 00:00-03:00"],
    ),
    # India has none at all, and is half an hour off.
    (
        *("Asia/Kolkata", "0 9 * * MON-FRI", "2026-11-13 12:00+05:30"),
        ["2026-11-16 09:00+05:30", "2026-11-17 09:00+05:30"],
    ),
]


@pytest.mark.parametrize("row", RULES_HAVE_CHANGED, ids=lambda row: f"{row[0]} {row[2][:4]}")
def test_zones_that_changed_their_rules(row: Row) -> None:
    check(*row)


CALENDARS: list[Row] = [
    (
        *("UTC", "0 0 31 * *", "2026-01-31 12:00+00:00"),
        ["2026-03-31 00:00+00:00", "2026-05-31 00:00+00:00", "2026-07-31 00:00+00:00"],
    ),
    (
        *("UTC", "0 0 L * *", "2028-01-31 12:00+00:00"),
        ["2028-02-29 00:00+00:00", "2028-03-31 00:00+00:00", "2028-04-30 00:00+00:00"],
    ),
    (
        *("UTC", "0 0 LW * *", "2026-01-01 12:00+00:00"),
        ["2026-01-30 00:00+00:00", "2026-02-27 00:00+00:00", "2026-03-31 00:00+00:00"],
    ),
    (
        *("UTC", "0 0 29 2 *", "2026-01-01 12:00+00:00"),
        ["2028-02-29 00:00+00:00", "2032-02-29 00:00+00:00"],
    ),
    # 2100 is no leap year.
    (
        *("UTC", "0 0 29 2 *", "2096-03-01 00:00+00:00"),
        ["2104-02-29 00:00+00:00"],
    ),
    (
        *("UTC", "0 0 * 2 MON#5", "2026-01-01 00:00+00:00"),
        ["2044-02-29 00:00+00:00"],
    ),
    # Debian's rule: with a star it must be both, without it is either.
    (
        *("UTC", "0 0 13 * FRI", "2026-11-01 00:00+00:00"),
        ["2026-11-06 00:00+00:00", "2026-11-13 00:00+00:00", "2026-11-20 00:00+00:00"],
    ),
    (
        *("UTC", "0 0 */13 * FRI", "2026-11-01 00:00+00:00"),
        ["2026-11-27 00:00+00:00", "2027-01-01 00:00+00:00"],
    ),
    (
        *("UTC", "59 23 31 12 *", "2026-12-31 23:58+00:00"),
        ["2026-12-31 23:59+00:00", "2027-12-31 23:59+00:00"],
    ),
    (
        *("UTC", "@weekly", "2026-11-13 00:00+00:00"),
        ["2026-11-15 00:00+00:00", "2026-11-22 00:00+00:00"],
    ),
    (
        *("UTC", " @Yearly ", "2026-11-13 00:00+00:00"),
        ["2027-01-01 00:00+00:00"],
    ),
]


@pytest.mark.parametrize("row", CALENDARS, ids=lambda row: f"{row[1]} {row[2]}")
def test_month_ends_and_leap_years(row: Row) -> None:
    check(*row)


def test_seconds_come_first_of_six_fields() -> None:
    found = runs(Cron("*/20 0 12 * * *"), datetime(2026, 1, 1, tzinfo=UTC), 4)
    assert [at.strftime("%d %H:%M:%S") for at in found] == [
        *("01 12:00:00", "01 12:00:20", "01 12:00:40", "02 12:00:00")
    ]


# -- against cronsim itself ---------------------------------------------------------------------

WHOLE_HOURS = (
    *("Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Santiago"),
    *("Pacific/Apia", "Europe/Istanbul", "Africa/Casablanca", "Asia/Beirut", "UTC"),
)
EXPRESSIONS = (
    *("*/15 * * * *", "0 * * * *", "30 2 * * *", "0,30 2 * * *", "0 0 * * *", "15 1-3 * * *"),
    *("*/7 2 * * *", "0 30 2 * * *", "0 */2 * * *", "30 2 L * *", "0 0 1 * *", "5 * * * MON"),
)


@settings(max_examples=400, deadline=None)
@given(
    zone=st.sampled_from(WHOLE_HOURS),
    expression=st.sampled_from(EXPRESSIONS),
    after=st.datetimes(datetime(2010, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
)
def test_where_clocks_move_by_hours_the_rules_are_those_of_cronsim(
    zone: str, expression: str, after: datetime
) -> None:
    instant = after.replace(tzinfo=UTC)
    theirs = CronSim(expression, instant.astimezone(ZoneInfo(zone)))
    expected = next(at for one in theirs if (at := one.astimezone(UTC)) > instant)
    assert Cron(expression, zone).next_after(instant) == expected


@settings(max_examples=200, deadline=None)
@given(
    zone=st.sampled_from((*WHOLE_HOURS, "Australia/Lord_Howe")),
    expression=st.sampled_from(EXPRESSIONS),
    after=st.datetimes(datetime(2010, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
    span=st.timedeltas(timedelta(0), timedelta(days=90)),
)
def test_the_latest_run_is_the_one_that_none_comes_behind(
    zone: str, expression: str, after: datetime, span: timedelta
) -> None:
    cron = Cron(expression, zone)
    floor = cron.next_after(after.replace(tzinfo=UTC))
    assert floor is not None
    until = floor + span
    latest = cron.latest_until(until, floor=floor)
    following = cron.next_after(latest)
    assert following is not None
    assert floor <= latest <= until < following


# -- intervals ----------------------------------------------------------------------------------


def test_a_rare_time_is_looked_for_once_however_often_clocks_are_changed_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else whoever lists a few dozen such schedules holds the whole process up for minutes."""
    asked = 0
    after = _LocalTimes.after

    def counted(times: _LocalTimes, local: datetime) -> datetime | None:
        nonlocal asked
        asked += 1
        return after(times, local)

    monkeypatch.setattr(_LocalTimes, "after", counted)
    fifth_monday_of_february = Cron("0 0 0 * 2 MON#5", "Europe/Berlin")
    assert fifth_monday_of_february.next_after(NOW) == datetime(2044, 2, 28, 23, tzinfo=UTC)
    assert asked == 1


CHANGES = (
    *(("Australia/Lord_Howe", "2026-10-03T15:30Z"), ("Australia/Lord_Howe", "2026-04-04T15:00Z")),
    *(("Antarctica/Troll", "2026-03-29T01:00Z"), ("Antarctica/Troll", "2026-10-25T01:00Z")),
    *(("Asia/Pyongyang", "2015-08-14T15:00Z"), ("Asia/Pyongyang", "2018-05-04T15:00Z")),
    *(("Africa/Casablanca", "2026-02-15T02:00Z"), ("Pacific/Apia", "2011-12-30T10:00Z")),
)


@settings(max_examples=150, deadline=None)
@given(
    change=st.sampled_from(CHANGES),
    expression=st.sampled_from(("*/20 * * * *", "30 * * * *", "0 */2 * * *", "*/7 0-3 * * *")),
    minutes=st.integers(-300, 120),
)
def test_by_the_wall_clock_every_minute_that_matches_is_a_run_and_no_other(
    change: tuple[str, str], expression: str, minutes: int
) -> None:
    zone = ZoneInfo(change[0])
    after = datetime.fromisoformat(change[1]) + timedelta(minutes=minutes)

    def matches(at: datetime) -> bool:
        local = at.astimezone(zone).replace(tzinfo=None)
        return next(CronSim(expression, local - timedelta(minutes=1))) == local

    minute = timedelta(minutes=1)
    expected = [at for at in (after + number * minute for number in range(1, 300)) if matches(at)]
    found = runs(Cron(expression, change[0]), after, len(expected))
    assert found == expected


def test_an_interval_is_counted_from_its_anchor() -> None:
    anchor = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    every = Every(300, anchor)
    assert every.next_after(anchor - timedelta(days=1)) == anchor
    assert every.next_after(anchor) == anchor + timedelta(minutes=5)
    assert every.next_after(anchor + timedelta(minutes=7)) == anchor + timedelta(minutes=10)
    assert every.latest_until(
        anchor + timedelta(days=365, minutes=7), floor=anchor
    ) == anchor + timedelta(days=365, minutes=5)


def test_without_an_anchor_an_interval_falls_on_round_times() -> None:
    assert Every(3600).next_after(NOW + timedelta(minutes=1)) == NOW + timedelta(hours=1)


def test_an_interval_does_not_know_summer_time() -> None:
    """A day is 24 hours: by the wall clock it comes an hour later from spring on."""
    found = runs(Every(86_400), datetime(2026, 3, 28, 12, tzinfo=UTC), 3)
    shown = [at.astimezone(ZoneInfo("Europe/Berlin")).hour for at in found]
    assert shown == [1, 2, 2]


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "Wrong number of fields"),
        ("* * * *", "Wrong number of fields"),
        ("* * * * * * *", "Wrong number of fields"),
        ("60 * * * *", "Bad minute"),
        ("* 24 * * *", "Bad hour"),
        ("* * 0 * *", "Bad day-of-month"),
        ("* * 32 * *", "Bad day-of-month"),
        ("* * * 13 *", "Bad month"),
        ("* * * * 8", "Bad day-of-week"),
        ("*/0 * * * *", "Bad minute"),
        ("5-1 * * * *", "Bad minute"),
        ("1,,2 * * * *", "Bad minute"),
        ("-5 * * * *", "Bad minute"),
        ("@reboot", "Wrong number of fields"),
        ("@every 5m", "Wrong number of fields"),
        ("0 0 30 2 *", "Bad day-of-month"),
        ("0 0 31 4,6,9,11 *", "Bad day-of-month"),
        ("0 0 */31 2 MON#2", "never matches"),
        ("0 0 ٣ * *", "Bad character"),
        ("0 0 1 * *\x00", "Bad character"),
        ("0\n0 1 * *", "Bad character"),
    ],
)
def test_what_is_no_expression_is_refused(expression: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        Cron(expression).checked(NOW)


@pytest.mark.parametrize(
    "expression",
    [
        ",".join(["0-59/1"] * 10_000) + " * * * *",
        "0" * 1_000_000 + " * * * *",
        "* " * 100_000,
        "1" * EXPRESSION_LIMIT + " * * * *",
    ],
)
def test_an_expression_that_would_grow_is_refused_before_it_is_read(expression: str) -> None:
    before = thread_time()
    with pytest.raises(InvalidInput, match="the limit is 256"):
        Cron(expression).checked(NOW)
    assert thread_time() - before < 0.1


def test_what_comes_in_decades_is_not_looked_for_day_by_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred such runs to come stopped a whole server for 1.4 seconds, again and again."""
    looks = []

    def counted(zone: tzinfo, instant: datetime) -> timedelta:
        looks.append(instant)
        return _offset(zone, instant)

    monkeypatch.setattr("gantline.schedules.recurrence._offset", counted)
    found = runs(Cron("0 0 0 29 2 */7", "Antarctica/Troll"), NOW, 10)
    assert found[-1].year == 2320
    assert len(looks) < 50 * len(found)


@pytest.mark.parametrize(
    "zone",
    [
        *("", "Mars/Olympus", "Europe", "../../etc/passwd", "/etc/localtime", "x" * 1000, "a\x00b"),
        *("localtime", "posixrules", "Factory", "posix/Europe/Berlin", "right/Europe/Berlin"),
    ],
)
def test_a_zone_that_there_is_not_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInput, match="There is no time zone"):
        Cron("0 0 * * *", zone).checked(NOW)


@pytest.mark.parametrize("seconds", [0, -1, 0.5, float("nan"), float("inf"), 1e12])
def test_what_is_no_interval_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="is not possible"):
        Every(seconds).checked(NOW)


def test_an_anchor_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no time zone"):
        Every(60, datetime(2026, 1, 1)).checked(NOW)  # noqa: DTZ001  # on purpose


@settings(max_examples=500, deadline=timedelta(seconds=2))
@given(st.text(alphabet="0123456789*,-/#LWMONFRI @", max_size=40))
def test_no_text_does_anything_but_be_read_or_be_refused(text: str) -> None:
    try:
        cron = Cron(text, "Europe/Berlin").checked(NOW)
    except InvalidInput:
        return
    assert cron.explain()
    assert runs(cron, NOW, 1)


# -- in plain words -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recurrence", "words"),
    [
        (Cron("0 6 * * *", "Europe/Berlin"), "At 06:00 every day (Europe/Berlin)"),
        (Cron("@hourly"), "At the start of every hour (UTC)"),
        (Every(1), "Every second"),
        (Every(300), "Every 5 minutes"),
        (Every(86_400), "Every day"),
        (Every(90), "Every 90 seconds"),
        (Every(60, EPOCH + timedelta(seconds=5)), "Every minute, counted from 1970-01-01T00:00:05"),
    ],
)
def test_a_recurrence_says_itself_in_plain_words(recurrence: Recurrence, words: str) -> None:
    assert recurrence.explain().startswith(words)
