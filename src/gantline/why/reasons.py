"""The reasons for which a job waits, or does not: code, facts, sentence and next step of each.

A closed union, `WaitReason`. A fact that the caller may not see is None.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from shlex import quote
from typing import Final
from uuid import UUID

from gantline.contract.status import REDRIVABLE, JobStatus
from gantline.why.held_back import GateClosed, GroupFull, TypeFull
from gantline.why.reason import Reason, counted, when

MOST_AHEAD: Final = 10_000
"""How many jobs ahead are counted; more are said to be more."""
_LATE: Final = timedelta(seconds=10)
# The maintenance looks for such runs every two seconds, or after it has found a new leader.
_TAKEN_OVER_WITHIN: Final = timedelta(minutes=1)
_MOST_NAMED: Final = 5


# -- it is not its time yet -----------------------------------------------------------------------


class Scheduled(Reason, frozen=True, kw_only=True, tag="SCHEDULED"):
    due_at: datetime

    def text(self, now: datetime) -> str:
        return f"It is scheduled, and due {when(self.due_at, now)}."


class Retrying(Reason, frozen=True, kw_only=True, tag="RETRYING"):
    due_at: datetime
    attempt: int
    max_attempts: int
    error_code: str
    error_message: str

    def text(self, now: datetime) -> str:
        failed = f"Attempt {self.attempt} of {self.max_attempts} failed with {self.error_code}"
        said = f" ({self.error_message.rstrip('.')})" if self.error_message else ""
        return f"{failed}{said}; the next is due {when(self.due_at, now)}."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return (f"Every attempt with its error: gantline job get {job_id}",)


class Crashed(Reason, frozen=True, kw_only=True, tag="CRASHED"):
    due_at: datetime
    crashes: int

    def text(self, now: datetime) -> str:
        said = f"The worker that ran it ended; it is due again {when(self.due_at, now)}."
        return f"{said} It was in {counted(self.crashes, 'crash', 'crashes')}."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return (f"Which worker it was: gantline job get {job_id}",)


class Snoozed(Reason, frozen=True, kw_only=True, tag="SNOOZED"):
    due_at: datetime
    snoozes: int

    def text(self, now: datetime) -> str:
        times = counted(self.snoozes, "time")
        return f"Its handler asked to be run later, {times} so far; due {when(self.due_at, now)}."


class Throttled(Reason, frozen=True, kw_only=True, tag="THROTTLED"):
    due_at: datetime
    snoozes: int
    """How often it was throttled or snoozed."""

    def text(self, now: datetime) -> str:
        times = counted(self.snoozes, "time")
        return f"Another service asked it to wait, {times} so far; due {when(self.due_at, now)}."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return ("All gates: gantline limit gates",)


# -- an operator has stopped it -------------------------------------------------------------------


class StoreIsClosed(Reason, frozen=True, kw_only=True, tag="STORE_CLOSED"):
    since: datetime
    has_moved: bool
    copied_to: str | None
    by: str | None

    def text(self, now: datetime) -> str:
        to = f" to {self.copied_to}" if self.copied_to else ""
        moved = "were moved" if self.has_moved else "are being moved"
        by = f", by {self.by}" if self.by else ""
        return (
            f"The store was closed {when(self.since, now)}{by}: its jobs {moved}{to}, "
            "and nothing is claimed here."
        )

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return ("Where the jobs are: gantline doctor",)


class QueuePaused(Reason, frozen=True, kw_only=True, tag="QUEUE_PAUSED"):
    queue: str

    def text(self, now: datetime) -> str:
        return f"The queue {self.queue!r} is paused: no worker takes anything out of it."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        name = quote(self.queue)
        who = f"gantline audit list --aggregate {quote(f'queue:{self.queue}')}"
        return f"Go on: gantline queue resume {name}", f"Who paused it, and when: {who}"


class TypePaused(Reason, frozen=True, kw_only=True, tag="TYPE_PAUSED"):
    job_type: str

    def text(self, now: datetime) -> str:
        return f"The type {self.job_type!r} is paused: no worker starts jobs of it."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        name = quote(self.job_type)
        who = f"gantline audit list --aggregate {quote(f'type:{self.job_type}')}"
        return f"Go on: gantline type resume {name}", f"Who paused it, and when: {who}"


class TypeDisabled(Reason, frozen=True, kw_only=True, tag="TYPE_DISABLED"):
    job_type: str

    def text(self, now: datetime) -> str:
        return (
            f"The type {self.job_type!r} is switched off: the next worker that takes the job does "
            "not run it, and it is Failed with JOB_TYPE_DISABLED."
        )

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return (f"Switch it on: gantline type enable {quote(self.job_type)}",)


# -- nobody is there to run it --------------------------------------------------------------------


class NoWorkers(Reason, frozen=True, kw_only=True, tag="NO_WORKERS"):
    def text(self, now: datetime) -> str:
        return "No live worker is registered in this store."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return "Start one: gantline worker", "Does one use another store? gantline doctor"


class QueueNotServed(Reason, frozen=True, kw_only=True, tag="QUEUE_NOT_SERVED"):
    queue: str
    workers: int | None
    """How many live, whatever they serve."""

    def text(self, now: datetime) -> str:
        return f"{_none_of(self.workers)} serves the queue {self.queue!r}."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return (f"Have one serve it: gantline worker -q {quote(self.queue)}",)


class TypeNotHandled(Reason, frozen=True, kw_only=True, tag="TYPE_NOT_HANDLED"):
    job_type: str
    queue: str
    workers: int | None
    """How many live, whatever they serve."""
    serving: int | None
    """How many serve the queue."""
    elsewhere: int | None
    """How many have the type, but do not serve the queue."""
    poisoned_at: datetime | None
    """When the job is given up, if by then no worker at all has declared its type."""

    def text(self, now: datetime) -> str:
        said = (
            f"{_none_of(self.workers)} serves the queue {self.queue!r} and has declared the type "
            f"{self.job_type!r}."
        )
        if self.elsewhere:
            they = "1 worker has" if self.elsewhere == 1 else f"{self.elsewhere} workers have"
            return f"{said} {they} declared it, in other queues."
        if self.poisoned_at is not None:
            return (
                f"{said} If none does, it is Poisoned as NoHandler {when(self.poisoned_at, now)}."
            )
        return said

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        if self.elsewhere:
            return (f"Have those serve it too: gantline worker -q {quote(self.queue)}",)
        return "Start workers whose code declares it", "Is it misspelt? gantline type list"


class WorkersDraining(Reason, frozen=True, kw_only=True, tag="WORKERS_DRAINING"):
    workers: int | None

    def text(self, now: datetime) -> str:
        are = "The only worker" if self.workers == 1 else "All live workers"
        return f"{are} that would run it claim nothing more, since a stop was asked for."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return ("Do others start? gantline sessions",)


class WorkersNotReady(Reason, frozen=True, kw_only=True, tag="WORKERS_NOT_READY"):
    workers: tuple[str, ...]
    trouble: str
    """What the first of them said of itself when it last registered, at most 20 s ago."""

    def text(self, now: datetime) -> str:
        others = f", nor {counted(len(self.workers) - 1, 'other')}" if len(self.workers) > 1 else ""
        return f"The worker {self.workers[0]} is not ready{others}: {self.trouble}"

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return "Look at its /readyz and its log", "A restart gives its runs to others"


class NoFreeSlot(Reason, frozen=True, kw_only=True, tag="NO_FREE_SLOT"):
    workers: int
    """How many would run it."""
    slots: int
    """How many such jobs these can run at once."""
    running: int
    """How many jobs run in these workers, of all queues."""
    is_alone: bool
    """Whether a suspect runs in one of them, with nothing beside it."""

    def text(self, now: datetime) -> str:
        slots = "The only slot" if self.slots == 1 else f"All {self.slots:,} slots"
        taken = "is taken" if self.slots == 1 else "are taken"
        where = "1 worker" if self.workers == 1 else f"{self.workers:,} workers"
        jobs = counted(self.running, "job")
        said = (
            f"{slots} for it {taken}: {jobs} {'runs' if self.running == 1 else 'run'} in {where}."
        )
        alone = " A suspect runs alone in one of them, with nothing beside it."
        return said + alone if self.is_alone else said

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return (
            "What runs: gantline job list --status running --all-tenants",
            "More workers, or more slots, help: gantline worker -q QUEUE:SLOTS",
        )


# -- it waits in line -----------------------------------------------------------------------------


class Suspect(Reason, frozen=True, kw_only=True, tag="SUSPECT"):
    crashes: int
    running: int | None
    """How many suspects run in the workers that would run it."""

    def text(self, now: datetime) -> str:
        said = (
            f"It was in {self.crashes} crashes of workers, so it is a suspect: it waits apart, and "
            "runs beside few other suspects, or alone."
        )
        if self.running:
            are = "1 of them runs" if self.running == 1 else f"{self.running} of them run"
            return f"{said} {are} now; the next begin when these end."
        return said

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return (f"In which workers it was: gantline job get {job_id}",)


class JobsAhead(Reason, frozen=True, kw_only=True, tag="JOBS_AHEAD"):
    jobs: int
    is_more: bool
    """Whether there are more than were counted."""
    by_priority: Mapping[int, int]
    priority: int
    """Of the job itself."""
    is_of_tenant: bool
    """Whether only jobs of its tenant were counted."""

    def text(self, now: datetime) -> str:
        whose = " of your tenant" if self.is_of_tenant else ""
        jobs = counted(self.jobs, f"due job{whose}", f"due jobs{whose}")
        more = "More than " if self.is_more else ""
        are = "is" if self.jobs == 1 and not self.is_more else "are"
        levels = (f"{jobs:,} of priority {level}" for level, jobs in self.by_priority.items())
        return f"{more}{jobs} {are} ahead of it: {', '.join(levels)}; its own is {self.priority}."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return "What waits: gantline queue list", "How fast it goes: gantline type stats"


class Due(Reason, frozen=True, kw_only=True, tag="DUE"):
    since: datetime
    workers: tuple[str, ...]
    """Those that have a free slot for it; who registered the longest ago is the first."""

    def text(self, now: datetime) -> str:
        free = counted(len(self.workers), "worker")
        has = "has" if len(self.workers) == 1 else "have"
        said = f"Nothing hinders it: due {when(self.since, now)}, and {free} {has} a free slot."
        if self._is_late(now):
            return f"{said} That is long; a worker looks for work every second or two."
        return said

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return (f"If it stays: look at /readyz and the log of {_named(self.workers)}",)

    def _is_late(self, now: datetime) -> bool:
        return now - self.since > _LATE


class InLine(Reason, frozen=True, kw_only=True, tag="IN_LINE"):
    """Nothing hinders it but what other jobs may do, of which the caller may not know."""

    since: datetime

    def text(self, now: datetime) -> str:
        return (
            f"It is due since {when(self.since, now)}, and workers serve it: it waits in line. How "
            "busy these are is shown to who may see the workers."
        )


# -- it does not wait -----------------------------------------------------------------------------


class LeaseExpired(Reason, frozen=True, kw_only=True, tag="LEASE_EXPIRED"):
    until: datetime
    workers: int | None
    """How many live."""
    is_maintained: bool
    """Whether any live worker does the maintenance, which takes such runs over."""

    def text(self, now: datetime) -> str:
        said = (
            f"The lease of its run ended {when(self.until, now)}: its worker has ended, or does "
            "not answer. The run is not taken over yet"
        )
        if not self.is_maintained:
            return f"{said}, for no live worker is there to do the maintenance."
        if now - self.until > _TAKEN_OVER_WITHIN:
            return f"{said}; that is long: the maintenance of the workers fails."
        return f"{said}; the maintenance does that within seconds."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        if not self.is_maintained:
            return ("Start one: gantline worker",)
        return ("If it stays: look for `maintenance failed` in the logs of the workers",)


class WorkerGone(Reason, frozen=True, kw_only=True, tag="WORKER_GONE"):
    session: str | None
    lease_until: datetime

    def text(self, now: datetime) -> str:
        worker = f"The worker {self.session}" if self.session else "The worker"
        return (
            f"{worker} that runs it is not registered any more. When the lease ends, "
            f"{when(self.lease_until, now)}, the job is queued again."
        )


class CancelRequested(Reason, frozen=True, kw_only=True, tag="CANCEL_REQUESTED"):
    at: datetime | None
    actor: str

    def text(self, now: datetime) -> str:
        who = f" by {self.actor}" if self.actor else ""
        asked = f" {when(self.at, now)}" if self.at else ""
        return f"It was asked to stop{who}{asked}, and its handler has not ended yet."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        return ("A handler in a thread goes on until it looks at ctx.cancelled",)


class Running(Reason, frozen=True, kw_only=True, tag="RUNNING"):
    session: str | None
    since: datetime
    lease_until: datetime
    percent: float
    phase: str

    def text(self, now: datetime) -> str:
        by = f" in the worker {self.session}" if self.session else ""
        phase = f" ({self.phase})" if self.phase else ""
        done = f" It is at {self.percent:g} %{phase}." if self.percent or self.phase else ""
        return (
            f"It has been running{by} since {when(self.since, now)}; its lease is until "
            f"{when(self.lease_until, now)}.{done}"
        )


class Ended(Reason, frozen=True, kw_only=True, tag="ENDED"):
    status: JobStatus
    at: datetime
    reason: str
    """Of the end: AttemptsExhausted, NoHandler …"""
    error_code: str | None
    error_message: str | None
    actor: str

    def text(self, now: datetime) -> str:
        by = f" by {self.actor}" if self.actor else ""
        said = f"It does not wait: it is {self.status}{by} since {when(self.at, now)}"
        if self.status is JobStatus.COMPLETED:
            return f"{said}."
        error = f", {self.error_code}" if self.error_code else ""
        message = f" ({self.error_message.rstrip('.')})" if self.error_message else ""
        return f"{said}, for {self.reason}{error}{message}."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        if self.status not in REDRIVABLE:
            return ()
        return (f"Queue it again: gantline job redrive {job_id}",)


WaitReason = (
    Scheduled
    | Retrying
    | Crashed
    | Snoozed
    | Throttled
    | StoreIsClosed
    | QueuePaused
    | TypePaused
    | TypeDisabled
    | NoWorkers
    | QueueNotServed
    | TypeNotHandled
    | WorkersDraining
    | WorkersNotReady
    | NoFreeSlot
    | GroupFull
    | TypeFull
    | GateClosed
    | Suspect
    | JobsAhead
    | Due
    | InLine
    | LeaseExpired
    | WorkerGone
    | CancelRequested
    | Running
    | Ended
)


# -- words ----------------------------------------------------------------------------------------


def _none_of(workers: int | None) -> str:
    """Begin a sentence about live workers; how many there are may not be for the caller."""
    return "No live worker" if workers is None else f"None of the live workers ({workers:,})"


def _named(workers: tuple[str, ...]) -> str:
    more = len(workers) - _MOST_NAMED
    return ", ".join(workers[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
