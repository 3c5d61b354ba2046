"""Recurrences: any expression in any zone is refused, or has instants that come in order."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantline.contract.clock import EPOCH
from gantline.contract.errors import InvalidInput
from gantline.schedules.recurrence import EXPRESSION_LIMIT, Cron, Every, Recurrence
from gantline.schedules.schedule import ScheduleRecord, check_schedule
from tests.fuzz.effort import effort
from tests.fuzz.limits import in_bounds, in_time
from tests.fuzz.mutation import documents, mutated_text, seeded, texts

NOW: Final = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
CORPUS: Final = (
    *("* * * * *", "*/5 * * * *", "0 0 1 1 *", "30 2 * * *", "0 9-17/2 * * MON-FRI", "@daily"),
    *("0 0 L * *", "0 0 LW * *", "0 0 * * 5L", "0 0 * * 1#5", "0 0 15W * *", "0 0 29 2 *"),
    *("*/7 * * * * *", "59 59 23 31 12 7", "0 0 29 2 1#5", "* * * 2 1#5", "1,2,3 4,5 6 7 0"),
    *("0 0 31 4,6,9,11 *", "0 0 29 2 0#5", "* 1 29 2 6#5", "JAN * * * *", "0 0 * JAN-DEC *"),
)
ZONES: Final = (
    *("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Caracas", "Pacific/Apia"),
    *("Africa/Casablanca", "Asia/Gaza", "Etc/GMT+12", "Antarctica/Troll", "Pacific/Kiritimati"),
)
_PARTS: Final = (
    *("*", "0", "1", "5", "7", "12", "23", "28", "29", "30", "31", "59", "60", "L", "LW", "W", "?"),
    *("#", "-", "/", ",", "*/2", "1-5", "5-1", "1#5", "5L", "15W", "MON", "FEB", "2,4", "0-59/7"),
)


def made(random: Random) -> str:
    """Fields of parts, most of which mean something."""
    count = random.choice((5, 5, 5, 6, 4))
    return " ".join(
        "".join(random.choices(_PARTS, k=random.choice((1, 1, 1, 2)))) for _ in range(count)
    )


expressions = texts(CORPUS) | seeded(made) | st.sampled_from(CORPUS)
zones = st.sampled_from(ZONES) | texts(ZONES)
instants = st.datetimes(timezones=st.just(UTC)) | st.sampled_from(
    [NOW, EPOCH, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
)


def sound(recurrence: Recurrence, now: datetime) -> bool:
    said = ""
    try:
        recurrence.checked(now)
    except InvalidInput as error:
        said = str(error)
    assert len(said) < 2000
    return not said


@given(expressions, zones, instants)
@effort(400)
def test_any_expression_is_refused_or_has_instants_in_order(
    expression: str, zone: str, instant: datetime
) -> None:
    cron = Cron(expression, zone)
    with in_time():
        if not sound(cron, NOW):
            return
        assert cron.explain()
        check_next(cron, instant)


def check_next(recurrence: Recurrence, instant: datetime) -> None:
    first = recurrence.next_after(instant)
    if first is None:
        return
    assert first > instant
    assert first.tzinfo is UTC
    assert recurrence.next_after(first - timedelta(microseconds=1)) == first
    second = recurrence.next_after(first)
    assert second is None or second > first
    if second is not None:
        assert recurrence.latest_until(second, floor=first) == second


@given(
    st.floats() | st.integers() | st.sampled_from([1, 1.5, 0.999, 1e-300, 316224000, 3600]),
    st.datetimes() | instants | st.datetimes(timezones=st.timezones()),
    instants,
)
@effort(300)
def test_any_interval_is_refused_or_has_instants_in_order(
    seconds: float, anchor: datetime, instant: datetime
) -> None:
    every = Every(seconds, anchor)
    with in_time():
        if not sound(every, NOW):
            return
        assert every.explain()
        check_next(every, instant)


@given(expressions.filter(lambda text: len(text) <= EXPRESSION_LIMIT), st.sampled_from(ZONES))
@effort(150)
def test_a_hundred_runs_to_come_take_bounded_time(expression: str, zone: str) -> None:
    """So many are listed by one request."""
    cron = Cron(expression, zone)
    if not sound(cron, NOW):
        return
    with in_time():
        at: datetime | None = NOW
        for _ in range(100):
            at = cron.next_after(at) if at else None


@pytest.mark.parametrize("part", ["1,", "*/1,", "0-59,", "0-59/1,", "1", "L,", "1#5,", " ", "MON-"])
@pytest.mark.parametrize("size", [EXPRESSION_LIMIT, 100_000])
def test_a_long_expression_takes_bounded_time_and_memory(part: str, size: int) -> None:
    for text in (part * (size // len(part)), f"{(part * size)[: size - 10]}1 * * * *"):
        with in_bounds(len(text)):
            sound(Cron(text, "Europe/Berlin"), NOW)


def test_years_of_missed_seconds_are_passed_over_in_bounded_time() -> None:
    floor = NOW - timedelta(days=3650)
    for expression in CORPUS:
        cron = Cron(expression, "Europe/Berlin")
        first = cron.next_after(floor) if sound(cron, NOW) else None
        if first is not None:
            with in_time():
                assert cron.latest_until(NOW + timedelta(days=36500), floor=first) >= first


# -- schedules as they are stored and moved -------------------------------------------------------

RECORD: Final[dict[str, Any]] = {
    "id": "00000000-0000-0000-0000-000000000001",
    "origin": "api",
    "createdAt": "2026-01-01T00:00:00Z",
    "changedAt": "2026-01-01T00:00:00Z",
    "nextRun": "2026-04-01T00:00:00Z",
    "schedule": {
        "name": "nightly",
        "tenantId": "acme",
        "recurrence": {"kind": "cron", "expression": "0 3 * * *", "timezone": "Europe/Berlin"},
        "jobType": "sweep",
        "payload": {"a": 1},
        "start": "2026-01-01T00:00:00Z",
        "end": "2027-01-01T00:00:00Z",
        "jitterSeconds": 30.0,
        "misfire": "catch_up",
        "catchUpLimit": 5,
        "graceSeconds": 60.0,
        "overlap": "skip",
    },
}
INTERVAL: Final = RECORD | {
    "schedule": RECORD["schedule"]
    | {"recurrence": {"kind": "every", "seconds": 90.0, "anchor": "2026-01-01T00:00:00Z"}}
}


@given(documents((RECORD, INTERVAL)))
@effort(800)
def test_a_schedule_that_passes_the_check_has_runs_to_come(content: bytes) -> None:
    try:
        record = msgspec.json.decode(content, type=ScheduleRecord)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    with in_time():
        try:
            check_schedule(record.schedule, NOW)
        except InvalidInput:
            return
        record = msgspec.structs.replace(record, next_run=record.schedule.first_after(NOW))
        for at in record.upcoming(20):
            record.when_due(at)
            record.job_id_of(at)
        assert msgspec.json.decode(msgspec.json.encode(record), type=ScheduleRecord) == record


@given(seeded(lambda random: mutated_text(random, "00 03 * * *")))
@effort(200)
def test_what_was_refused_once_is_refused_again(expression: str) -> None:
    """What was read is kept; an error must not be."""
    cron = Cron(expression)
    assert sound(cron, NOW) == sound(cron, NOW)
