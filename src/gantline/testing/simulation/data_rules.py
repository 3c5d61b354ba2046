"""Rules for what is stored: jobs, schedules and effects that are there as they should be."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Final, cast
from uuid import UUID

from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import Event, JobStatus
from gantline.proof.call import (
    Answer,
    Call,
    Change,
    NamedJob,
    NamedRun,
    NamedToken,
    Prune,
    Submitted,
)
from gantline.testing.simulation.application import QUEUES, Journal
from gantline.testing.simulation.outside import Outside
from gantline.testing.simulation.script import Script
from gantline.testing.simulation.worker_rules import RENEWED_FOR_SECONDS, given_runs

_LATE: Final = timedelta(seconds=40)
"""A worker without schedules and hints looks for new ones every 15 s, and a look takes time."""
_SOON: Final = timedelta(seconds=10)


def check_data(
    script: Script,
    outside: Outside,
    journal: Journal,
    calls: Sequence[Call],
) -> Iterator[str]:
    """Judge what became of jobs, beside what their histories show."""
    yield from _taken_from_the_living(script, journal, calls)
    yield from _taken_though_renewed(script, outside, calls)
    yield from _ended_unheard(journal, calls)
    yield from _pruned_too_early(script, outside, calls)
    yield from _fired_for_nothing(outside, calls)
    yield from _fired_twice(outside)
    yield from _standing_still(script, outside)


def _taken_from_the_living(
    script: Script, journal: Journal, calls: Sequence[Call]
) -> Iterator[str]:
    """Not where a store has taken no ends for so long that a run is renewed no more."""
    if not script.is_gentle or journal.crashes:
        return
    given = given_runs(calls)
    for call, change in _accepted(calls):
        run = given.get(change.change_id)
        if run is not None and call.began - run.at > RENEWED_FOR_SECONDS:
            continue
        if change.event is Event.CRASHED or change.only_expired:
            yield f"a run of job {change.job_id} was lost, and no process had died ({call})"


def _taken_though_renewed(script: Script, outside: Outside, calls: Sequence[Call]) -> Iterator[str]:
    renewed: dict[UUID, Call] = {}
    for call in calls:
        if call.verb == "renew" and call.is_certain:
            lost = {one.token for one in call.answers if isinstance(one, NamedToken) and one.lost}
            for run in cast("tuple[NamedRun, ...]", call.asked):
                if run.token not in lost:
                    renewed[run.token] = call
    for call, change in _accepted(calls):
        last = renewed.get(change.change_id)
        if change.event is not Event.CRASHED or last is None or last.last > call.first:
            continue
        until = last.began + script.lease
        if (call.ended or 0.0) < until and not outside.has_jumped(last.began, until):
            yield f"a run of job {change.job_id} was taken away by {call}, renewed by {last}"


def _ended_unheard(journal: Journal, calls: Sequence[Call]) -> Iterator[str]:
    """What a consumer has not read is not pruned; what an operator deletes may go."""
    ours, deleted = set[UUID](), set[UUID]()
    for call in calls:
        if call.verb == "insert":
            some = cast("tuple[Submitted, ...]", call.asked)
            ours |= {new.job_id for new in some if new.job_type in QUEUES}
        elif call.verb == "delete":
            deleted |= {one.job_id for one in cast("tuple[NamedJob, ...]", call.asked)}
    ended = {change.job_id for _, change in _accepted(calls) if change.to.is_terminal}
    heard = {name for name, _ in journal.ends_heard}
    for job_id in sorted((ended & ours) - deleted):
        if str(job_id) not in heard:
            yield f"the end of job {job_id} was never given to the consumer"


def _pruned_too_early(script: Script, outside: Outside, calls: Sequence[Call]) -> Iterator[str]:
    if script.retention is None:
        return
    keep = timedelta(seconds=script.retention)
    for call in calls:
        for rule in cast("Prune", call.asked[0]).rules if call.verb == "prune" else ():
            if rule.ended_before > outside.latest_clock(call.ended or call.began) - keep:
                yield f"{rule.status} jobs are pruned that ended before {rule.ended_before}"
                return


def _accepted(calls: Sequence[Call]) -> Iterator[tuple[Call, Change]]:
    for call in calls:
        if call.verb == "apply" and call.is_certain:
            answers = cast("tuple[Answer, ...]", call.answers)
            for change, answer in zip(cast("tuple[Change, ...]", call.asked), answers, strict=True):
                if answer.is_applied:
                    yield call, change


# -- schedules ----------------------------------------------------------------------------------


def _fired_for_nothing(outside: Outside, calls: Sequence[Call]) -> Iterator[str]:
    asked = {
        new.job_id
        for call in calls
        if call.verb == "insert"
        for new in cast("tuple[Submitted, ...]", call.asked)
    }
    for job_id in outside.fires:
        if job_id not in asked:
            yield f"a schedule says that it fired job {job_id}, which nobody has submitted"


def _fired_twice(outside: Outside) -> Iterator[str]:
    for (name, at), jobs in outside.instants.items():
        if len(jobs) > 1:
            yield f"{name} was fired {len(jobs)} times for {at}"


def _standing_still(script: Script, outside: Outside) -> Iterator[str]:
    """A schedule fires in time where nothing keeps it from that."""
    if not script.is_gentle:
        return
    for record, now in outside.schedules:
        since = record.next_run
        if since is None or now - since <= _LATE or outside.was_away(since - _SOON, now):
            continue
        yield f"the schedule {record.schedule.name} stands still since {since}, at {now}"


# -- effects ------------------------------------------------------------------------------------


def check_effects(file: Path, jobs: Mapping[UUID, JobSnapshot]) -> Iterator[str]:
    """What a handler writes in the transaction that completes its run is there once, or not."""
    with closing(sqlite3.connect(file)) as connection:
        tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'effect'").fetchall()
        rows = connection.execute("SELECT job, count(*) FROM effect GROUP BY job") if tables else ()
        for name, count in rows:
            job = jobs.get(UUID(name))
            if count > 1 or (job is not None and job.status is not JobStatus.COMPLETED):
                status = "gone" if job is None else job.status
                yield f"job {name} is {status}, and its handler has committed {count} times"
