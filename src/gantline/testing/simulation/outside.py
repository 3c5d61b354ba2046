"""What is seen from outside of all processes, and in no history: handlers, slots, schedules."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final, cast
from uuid import UUID

from gantline.contract.schedule import ScheduleRecord
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
from gantline.testing.simulation.application import QUEUES, Handled, Journal
from gantline.testing.simulation.script import Script, Switch, Trouble
from gantline.testing.simulation.world import wall_clock_at
from gantline.worker.worker import Worker

_UNWRITTEN_PER_SLOT: Final = 6
"""Ends that may wait: as many as a worker allows, what runs, and what is being claimed."""
_LIMITED: Final = "limited"
_SAME: Final = 1e-9
_LATE: Final = timedelta(seconds=40)
"""A worker without schedules and hints looks for new ones every 15 s, and a look takes time."""


class Outside:
    """Watches a run, and judges what its history does not show."""

    def __init__(self, script: Script, journal: Journal) -> None:
        self._script = script
        self._journal = journal
        self._stood_still: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._jumps: list[float] = []
        self._fired: list[UUID] = []
        self._most_unwritten = 0
        self._late: list[str] = []

    # -- while it runs ----------------------------------------------------------------------------

    def see(self, worker: Worker) -> None:
        """Look at a worker; it may be starting or stopping."""
        runs = getattr(worker, "_runs", None)
        if runs is not None:
            self._most_unwritten = max(self._most_unwritten, runs.completer._unwritten)

    def note_trouble(self, trouble: Trouble, now: float, process: str) -> None:
        if trouble.what == "jump":
            self._jumps.append(now)
        elif trouble.what in ("freeze", "block"):
            self._stood_still[process].append((now, now + trouble.seconds))

    def note_schedule(self, record: ScheduleRecord, now: datetime) -> None:
        """Remember what a schedule says that it has submitted, and whether it stands still."""
        self._fired += [fire.job_id for fire in record.fires if fire.job_id is not None]
        may_stand = not self._script.is_gentle or any(
            isinstance(step, Switch) and step.what == "close store" for step in self._script.steps
        )
        if not may_stand and record.next_run and now - record.next_run > _LATE:
            name, since = record.schedule.name, record.next_run
            self._late.append(f"the schedule {name} stands still since {since}, at {now}")

    # -- at the end -------------------------------------------------------------------------------

    def judge(self, calls: Sequence[Call], jobs: Iterable[JobSnapshot]) -> list[str]:
        return [
            *self._taken_from_the_living(calls),
            *self._taken_though_renewed(calls),
            *self._ended_unheard(calls),
            *self._pruned_too_early(calls),
            *self._side_by_side(),
            *self._beyond_the_slots(),
            *self._unwritten(),
            *self._fired_for_nothing(calls),
            *_fired_twice(jobs),
            *self._late,
        ]

    def _taken_from_the_living(self, calls: Sequence[Call]) -> Iterator[str]:
        if not self._script.is_gentle or self._journal.crashes:
            return
        for call, change in _accepted(calls):
            if change.event is Event.CRASHED or change.only_expired:
                yield f"a run of job {change.job_id} was lost, and no process had died ({call})"

    def _taken_though_renewed(self, calls: Sequence[Call]) -> Iterator[str]:
        renewed: dict[UUID, Call] = {}
        for call in calls:
            if call.verb == "renew" and call.is_certain:
                lost = {
                    one.token for one in call.answers if isinstance(one, NamedToken) and one.lost
                }
                for run in cast("tuple[NamedRun, ...]", call.asked):
                    if run.token not in lost:
                        renewed[run.token] = call
        for call, change in _accepted(calls):
            last = renewed.get(change.change_id)
            if change.event is not Event.CRASHED or last is None or last.last > call.first:
                continue
            until = last.began + self._script.lease
            if (call.ended or 0.0) < until and not self._has_jumped(last.began, until):
                yield f"a run of job {change.job_id} was taken away by {call}, renewed by {last}"

    def _ended_unheard(self, calls: Sequence[Call]) -> Iterator[str]:
        """What a consumer has not read is not pruned; what an operator deletes may go."""
        ours, deleted = set[UUID](), set[UUID]()
        for call in calls:
            if call.verb == "insert":
                some = cast("tuple[Submitted, ...]", call.asked)
                ours |= {new.job_id for new in some if new.job_type in QUEUES}
            elif call.verb == "delete":
                deleted |= {one.job_id for one in cast("tuple[NamedJob, ...]", call.asked)}
        ended = {change.job_id for _, change in _accepted(calls) if change.to.is_terminal}
        for job_id in sorted((ended & ours) - deleted):
            if str(job_id) not in self._journal.ends_heard:
                yield f"the end of job {job_id} was never given to the consumer"

    def _pruned_too_early(self, calls: Sequence[Call]) -> Iterator[str]:
        keep = self._script.retention
        if keep is None or self._jumps:
            return
        for call in calls:
            for rule in cast("Prune", call.asked[0]).rules if call.verb == "prune" else ():
                latest = wall_clock_at(call.ended or call.began) - timedelta(seconds=keep)
                if rule.ended_before > latest:
                    yield f"{rule.status} jobs are pruned that ended before {rule.ended_before}"
                    return

    def _side_by_side(self) -> Iterator[str]:
        """No two handlers of a job, unless the first could not know that its lease was over."""
        by_job: dict[str, list[Handled]] = defaultdict(list)
        for run in self._journal.runs:
            by_job[run.job_id].append(run)
        for job_id, runs in by_job.items():
            for one, other in pairwise(sorted(runs, key=lambda run: (run.began, run.fence))):
                if other.began >= one.ended - _SAME:
                    continue
                is_same_run = (one.process, one.fence) == (other.process, other.fence)
                if is_same_run or not self._is_excused(one):
                    yield f"job {job_id} ran in {one} and in {other} at once"

    def _is_excused(self, run: Handled) -> bool:
        name = run.process.partition("/")[0]
        still = any(
            first < run.ended and run.began < last for first, last in self._stood_still[name]
        )
        return still or run.swallowed_cancel or self._has_jumped(run.began, run.ended)

    def _has_jumped(self, first: float, last: float) -> bool:
        return any(first <= at <= last for at in self._jumps)

    def _beyond_the_slots(self) -> Iterator[str]:
        marks: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        for run in self._journal.runs:
            names = [QUEUES[run.job_type], *([_LIMITED] if run.job_type == _LIMITED else [])]
            for name in names if run.ended - run.began > _SAME else ():
                marks[run.process, name] += [(run.began, 1), (run.ended, -1)]
        for (process, name), changes in marks.items():
            most = 1 if name == _LIMITED else self._script.slots
            running = 0
            for at, change in sorted(changes):
                running += change
                if running > most:
                    yield f"{process} ran {running} handlers of {name} at once at {at}, not {most}"
                    break

    def _unwritten(self) -> Iterator[str]:
        slots = self._script.slots * (len(set(QUEUES.values())) + 1)
        if self._most_unwritten > _UNWRITTEN_PER_SLOT * slots:
            yield f"{self._most_unwritten} ends waited to be written in a worker of {slots} slots"

    def _fired_for_nothing(self, calls: Sequence[Call]) -> Iterator[str]:
        asked = {
            new.job_id
            for call in calls
            if call.verb == "insert"
            for new in cast("tuple[Submitted, ...]", call.asked)
        }
        for job_id in self._fired:
            if job_id not in asked:
                yield f"a schedule says that it fired job {job_id}, which nobody has submitted"


def _accepted(calls: Sequence[Call]) -> Iterator[tuple[Call, Change]]:
    for call in calls:
        if call.verb == "apply" and call.is_certain:
            answers = cast("tuple[Answer, ...]", call.answers)
            for change, answer in zip(cast("tuple[Change, ...]", call.asked), answers, strict=True):
                if answer.is_applied:
                    yield call, change


def _fired_twice(jobs: Iterable[JobSnapshot]) -> Iterator[str]:
    fired: dict[tuple[str, datetime], UUID] = {}
    for snapshot in jobs:
        job = snapshot.job
        if job.scheduled_at is None or not job.correlation_id.startswith("schedule"):
            continue
        other = fired.setdefault((job.correlation_id, job.scheduled_at), job.job_id)
        if other != job.job_id:
            yield f"{job.correlation_id} was fired twice for {job.scheduled_at}"


def wrong_effects(file: Path, jobs: Mapping[UUID, JobSnapshot]) -> Iterator[str]:
    """What a handler writes in the transaction that completes its run is there once, or not."""
    with closing(sqlite3.connect(file)) as connection:
        tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'effect'").fetchall()
        rows = connection.execute("SELECT job, count(*) FROM effect GROUP BY job") if tables else ()
        for name, count in rows:
            job = jobs.get(UUID(name))
            if count > 1 or (job is not None and job.status is not JobStatus.COMPLETED):
                status = "gone" if job is None else job.status
                yield f"job {name} is {status}, and its handler has committed {count} times"
