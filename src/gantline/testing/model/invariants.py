"""What holds in every state of a store, and over every step, whatever the step was."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from gantline.contract.outcome import LEASE_EXPIRED
from gantline.contract.snapshot import JobSnapshot, LogEntry
from gantline.contract.status import STATUS_AFTER, TRANSITIONS, Event, JobStatus
from gantline.testing.model.state import State

_GIVES_ATTEMPT_BACK = frozenset({Event.SNOOZED, Event.RELEASED, Event.CRASHED})
_STAYS = frozenset({Event.SUBMITTED, Event.PROGRESSED})


class Broken(AssertionError):
    """A store, or what decides over it, breaks a promise."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def check_state(state: State) -> None:
    """Raise Broken where a state contradicts itself."""
    for job_id, job in state.jobs.items():
        _check_log(job, state.history[job_id])
        _check_shape(job, state.now)
    _check_removed(state)
    _check_key(state)
    _check_events(state)
    truth = {status.value: 0 for status in JobStatus}
    for job in state.jobs.values():
        truth[job.status.value] += 1
    check(state.counts == truth, f"counts are {state.counts}, the truth is {truth}")


def check_step(before: State, after: State) -> None:
    """Raise Broken where a step undoes what nothing may undo."""
    for job_id, job in after.jobs.items():
        known = before.jobs.get(job_id)
        if known is None:
            check(job.version == 1, f"a new job begins at version {job.version}")
            continue
        rows, old = after.history[job_id], before.history[job_id]
        check(rows[: len(old)] == old, "a row of the log was changed or removed")
        check(len(rows) <= len(old) + 1, "one step wrote more than one row of a job")
        check(job.fence >= known.fence, f"the fence went from {known.fence} to {job.fence}")
        check(job.version >= known.version, "the version went back")
        changed = job.version > known.version
        check(changed == (len(rows) > len(old)), "a change without a row, or a row without one")
    check(after.last_event >= before.last_event, "the last number of an event went back")
    fresh = [event for event in after.events if event not in before.events]
    late = [event.sequence for event in fresh if event.sequence <= before.last_event]
    check(not late, f"an event appeared at {late}, which a reader had passed")
    numbers = [event.sequence for event in fresh]
    expected = list(range(before.last_event + 1, after.last_event + 1))
    check(numbers == expected, f"new events are {numbers}, not {expected}")


def _check_log(job: JobSnapshot, rows: Sequence[LogEntry]) -> None:
    """Fold the log: every move is legal, and what it adds up to is the job as it stands."""
    status, attempt, fence, snoozes, version = JobStatus.QUEUED, 0, 0, 0, 0
    most_crashes, ended_fences = 0, list[int]()
    for row in rows:
        version += 1
        check(row.version == version, f"row {version} has version {row.version}")
        if row.event not in _STAYS:
            move = (status, row.event, STATUS_AFTER[row.event])
            check(move in TRANSITIONS, f"an illegal move: {status} {row.event} {row.status}")
            status = move[2]
            if move[0] is JobStatus.RUNNING and status is not JobStatus.RUNNING:
                ended_fences.append(fence)
        check(row.status is status, f"a row of {row.event} says {row.status}")
        match row.event:
            case Event.STARTED:
                attempt, fence = attempt + 1, fence + 1
            case Event.SNOOZED:
                snoozes += 1
            case Event.REDRIVEN:
                attempt, snoozes, most_crashes = 0, 0, 0
        is_crash = row.error == LEASE_EXPIRED
        if row.event in _GIVES_ATTEMPT_BACK or is_crash:
            attempt -= 1
        if is_crash:
            most_crashes += 1  # fewer count where workers ended together
        check(row.fence == fence, f"the row {row.event} has fence {row.fence}, not {fence}")
        check(row.attempt == attempt, f"the row {row.event} has attempt {row.attempt}")
    check(len(set(ended_fences)) == len(ended_fences), "a run ended twice")
    seen = (job.status, job.version, job.attempt, job.fence, job.snoozes)
    folded = (status, version, attempt, fence, snoozes)
    check(seen == folded, f"the job is {seen}, its log adds up to {folded}")
    check(job.crashes <= most_crashes, f"{job.crashes} crashes, {most_crashes} by the log")


def _check_shape(job: JobSnapshot, now: datetime) -> None:
    is_running = job.status is JobStatus.RUNNING
    check((job.run is not None) == is_running, f"{job.status} with run {job.run}")
    check((job.run_at is not None) == (job.status is JobStatus.QUEUED), "due, but not Queued")
    check(job.run is None or job.run.started_at <= now, "a run that begins in the future")


def _check_removed(state: State) -> None:
    rows = [job_id for job_id, rows in state.history.items() if rows and job_id not in state.jobs]
    check(not rows, f"rows of removed jobs are left: {rows}")


def _check_key(state: State) -> None:
    """Of the jobs that share a key at most one is live, and that one holds it."""
    live = [job_id for job_id, job in state.jobs.items() if not job.status.is_terminal]
    check(len(live) <= 1, f"two live jobs have one key: {live}")
    check(not live or state.holder == live[0], f"{live} is live, the key belongs to {state.holder}")
    holder = state.jobs.get(state.holder) if state.holder else None
    if holder is not None and holder.status.is_terminal:
        check(holder.status is JobStatus.COMPLETED, f"a {holder.status} job holds its key")


def _check_events(state: State) -> None:
    """Every row of every log is an event once, in the order of its job."""
    numbers = [event.sequence for event in state.events]
    check(numbers == sorted(set(numbers)), f"events are numbered {numbers}")
    check(not numbers or numbers[-1] <= state.last_event, "an event is after the last number")
    by_job: dict[UUID, list[LogEntry]] = {job_id: [] for job_id in state.history}
    for event in state.events:
        by_job.setdefault(event.entry.job_id, []).append(event.entry)
    for job_id, entries in by_job.items():
        expected = list(state.history.get(job_id, ()))
        check(entries == expected, f"the events of {job_id} are not its log")
