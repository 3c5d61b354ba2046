"""Which instants are run: misfires, overlap, jitter, start and end, over plain values."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from gantline.contract.status import JobStatus
from gantline.schedules.firing import MISSED, plan, submission_of, with_fires
from gantline.schedules.recurrence import Cron, Every
from gantline.schedules.schedule import (
    KEPT_FIRES,
    Fire,
    Misfire,
    Overlap,
    Schedule,
    ScheduleRecord,
    check_schedule,
)

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ID = UUID(int=1)


def hourly(*, next_run: datetime | None = NOON, id: UUID = ID, **options: Any) -> ScheduleRecord:
    schedule = Schedule(**{"name": "s", "recurrence": Every(3600), "job_type": "j", **options})
    check_schedule(schedule, NOON)
    return ScheduleRecord(
        id=id,
        schedule=schedule,
        origin="api",
        created_at=NOON,
        changed_at=NOON,
        next_run=next_run,
    )


def hours(*numbers: int) -> list[datetime]:
    return [NOON + number * HOUR for number in numbers]


@pytest.mark.parametrize("misfire", ["coalesce", "catch_up", "skip"])
def test_what_is_due_runs_once_and_the_next_is_counted_from_its_instant(misfire: Misfire) -> None:
    planned = plan(hourly(misfire=misfire), NOON + timedelta(seconds=3), None)
    assert [run.at for run in planned.runs] == [NOON]
    assert not planned.skipped
    assert planned.next_run == NOON + HOUR


def test_what_is_not_due_is_left_alone() -> None:
    assert plan(hourly(), NOON - timedelta(seconds=1), None) == ((), (), NOON)


LATE = NOON + 5 * HOUR + timedelta(minutes=20)


def test_missed_runs_are_coalesced_into_the_latest() -> None:
    planned = plan(hourly(), LATE, None)
    assert planned.runs == [(NOON + 5 * HOUR, NOON)]
    assert planned.next_run == NOON + 6 * HOUR


def test_missed_runs_are_caught_up_in_their_order() -> None:
    planned = plan(hourly(misfire="catch_up"), LATE, None)
    assert [run.at for run in planned.runs] == hours(0, 1, 2, 3, 4, 5)
    assert not planned.skipped
    assert planned.next_run == NOON + 6 * HOUR


def test_of_too_many_missed_runs_the_latest_are_caught_up_and_the_others_noted() -> None:
    planned = plan(hourly(misfire="catch_up", catch_up_limit=2), LATE, None)
    assert [run.at for run in planned.runs] == hours(4, 5)
    assert list(planned.skipped) == [Fire(at=NOON + 3 * HOUR, reason=MISSED, since=NOON)]


def test_missed_runs_are_skipped_and_noted() -> None:
    planned = plan(hourly(misfire="skip"), LATE, None)
    assert not planned.runs
    (fire,) = planned.skipped
    assert (fire.at, fire.since, fire.reason) == (NOON + 5 * HOUR, NOON, MISSED)
    assert planned.next_run == NOON + 6 * HOUR


def test_skip_makes_a_run_that_is_within_its_grace() -> None:
    record = hourly(misfire="skip", grace_seconds=1200)
    assert [run.at for run in plan(record, LATE, None).runs] == hours(5)
    assert not plan(record, LATE + timedelta(seconds=1), None).runs


def test_a_year_of_missed_seconds_is_planned_at_once() -> None:
    record = hourly(recurrence=Cron("* * * * * *"), misfire="catch_up")
    then = NOON + timedelta(days=365)
    planned = plan(record, then, None)
    assert len(planned.runs) == 100
    assert planned.runs[-1].at == then
    assert planned.next_run == then + timedelta(seconds=1)


def test_of_bursts_with_long_gaps_the_latest_runs_are_caught_up() -> None:
    record = hourly(recurrence=Cron("* 3 * * *"), misfire="catch_up", next_run=NOON - 9 * HOUR)
    planned = plan(record, NOON + timedelta(days=30), None)
    assert len(planned.runs) == 100
    days = [run.at.day for run in planned.runs]
    assert sorted(set(days)) == [14, 15]
    assert days.count(15) == 60
    assert planned.skipped[0].at == planned.runs[0].at - timedelta(minutes=1)


# -- overlap ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "status", "runs"),
    [
        ("allow", JobStatus.QUEUED, True),
        ("allow", JobStatus.RUNNING, True),
        ("skip", JobStatus.QUEUED, False),
        ("skip", JobStatus.RUNNING, False),
        ("skip", JobStatus.COMPLETED, True),
        ("skip", JobStatus.POISONED, True),
        ("skip", None, True),
        ("one_waiting", JobStatus.QUEUED, False),
        ("one_waiting", JobStatus.RUNNING, True),
        ("one_waiting", JobStatus.FAILED, True),
        ("one_waiting", None, True),
    ],
)
def test_overlap_is_judged_by_the_job_fired_last(
    overlap: Overlap, status: JobStatus | None, runs: bool
) -> None:
    planned = plan(hourly(overlap=overlap), NOON, status)
    assert bool(planned.runs) is runs
    assert [fire.at for fire in planned.skipped] == ([] if runs else [NOON])
    assert planned.next_run == NOON + HOUR


@pytest.mark.parametrize("overlap", ["skip", "one_waiting"])
def test_runs_that_are_caught_up_stand_in_each_others_way(overlap: Overlap) -> None:
    planned = plan(hourly(overlap=overlap, misfire="catch_up"), LATE, None)
    assert [run.at for run in planned.runs] == hours(0)
    assert [fire.at for fire in planned.skipped] == hours(1, 2, 3, 4, 5)


# -- start, end, jitter -------------------------------------------------------------------------


def test_no_run_is_before_the_start_or_behind_the_end() -> None:
    schedule = hourly(start=NOON, end=NOON + 2 * HOUR).schedule
    assert schedule.first_after(NOON - 48 * HOUR) == NOON
    assert schedule.first_after(NOON + HOUR) == NOON + 2 * HOUR
    assert schedule.first_after(NOON + 2 * HOUR) is None


def test_the_last_run_is_made_however_late_and_then_none() -> None:
    planned = plan(hourly(end=NOON + 2 * HOUR), LATE, None)
    assert [run.at for run in planned.runs] == hours(2)
    assert planned.next_run is None


def test_jitter_puts_a_run_off_by_the_same_whoever_asks() -> None:
    record = hourly(jitter_seconds=600)
    due = record.due_at
    assert due is not None
    assert NOON < due < NOON + timedelta(minutes=10)
    assert due == hourly(jitter_seconds=600).due_at
    assert due != hourly(jitter_seconds=600, id=uuid4()).due_at
    assert not plan(record, due - timedelta(microseconds=1), None).runs
    assert [run.at for run in plan(record, due, None).runs] == [NOON]


def test_jitter_spreads_evenly_over_its_span() -> None:
    record = hourly(jitter_seconds=100)
    delays = [(record.when_due(at) - at).total_seconds() for at in hours(*range(1000))]
    assert 45 < sum(delays) / 1000 < 55
    assert min(delays) < 2
    assert 98 < max(delays) < 100


def test_jitter_longer_than_the_interval_loses_no_run() -> None:
    record = hourly(recurrence=Every(60), jitter_seconds=3600, misfire="catch_up")
    now, fired = NOON, []
    for _ in range(300):
        planned = plan(record, now, None)
        fired += [run.at for run in planned.runs]
        record = hourly(
            recurrence=Every(60),
            jitter_seconds=3600,
            misfire="catch_up",
            next_run=planned.next_run,
        )
        now += timedelta(minutes=1)
    assert fired == [NOON + timedelta(minutes=number) for number in range(len(fired))]
    assert len(fired) > 200


# -- jobs ---------------------------------------------------------------------------------------


def test_the_job_of_an_instant_is_always_the_same_and_of_another_another() -> None:
    record = hourly(queue="q", priority=1, owner="user:a", subject_id="s1")
    one, again = (submission_of(record, NOON, NOON + late) for late in (HOUR, 2 * HOUR))
    assert one.job.job_id == again.job.job_id
    assert one.request_key == again.request_key
    other = submission_of(record, NOON + HOUR, NOON + HOUR)
    renewed = submission_of(hourly(id=uuid4()), NOON, NOON)
    assert len({one.job.job_id, other.job.job_id, renewed.job.job_id}) == 3
    assert one.job.scheduled_at == NOON
    assert one.job.correlation_id == "schedule:s"
    assert (one.job.queue, one.job.priority, one.job.created_by) == ("q", 1, "user:a")
    assert not one.job.idempotency_key


def test_ids_of_later_instants_sort_behind() -> None:
    ids = [hourly(id=uuid4()).job_id_of(at) for at in hours(*range(50))]
    assert ids == sorted(ids)
    assert {one.version for one in ids} == {8}


def test_only_the_last_fires_are_kept_newest_first() -> None:
    record = hourly()
    for number in range(30):
        record = with_fires(record, [Fire(at=NOON + number * HOUR, job_id=UUID(int=number + 1))])
    record = with_fires(record, [Fire(at=NOON + 30 * HOUR, reason=MISSED)])
    assert len(record.fires) == KEPT_FIRES
    assert [fire.at for fire in record.fires] == hours(*range(30, 20, -1))
    assert record.last_job_id == UUID(int=30)
