"""The six statuses of a job, and every move between them.

TRANSITIONS is the whole lifecycle: a `Transition` that is not in it cannot be made.
"""

from enum import StrEnum
from typing import Final

from gantline.contract.errors import InvalidInput


class JobStatus(StrEnum):
    """What is stored. Scheduled, Retrying and Cancelling are derived (see `DerivedState`)."""

    QUEUED = "Queued"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    POISONED = "Poisoned"
    CANCELLED = "Cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL

    @classmethod
    def parse(cls, name: str) -> "JobStatus":
        """Read a status by our name or by the name another system gives it, in any case."""
        try:
            return _BY_NAME[_key(name)]
        except KeyError:
            known = ", ".join(cls)
            raise InvalidInput(
                f"{name[:64]!r} is not a job status.", next_step=f"Use one of {known}."
            ) from None


class DerivedState(StrEnum):
    """What a status document shows beside the status; follows from it, the time and the run."""

    SCHEDULED = "Scheduled"
    RETRYING = "Retrying"
    CANCELLING = "Cancelling"


State = JobStatus | DerivedState
"""What a list of jobs can be asked for."""


def parse_state(name: str) -> State:
    """Read a derived state by its name, or a status by any of its names, in any case."""
    key = _key(name)
    if key in _DERIVED_BY_NAME:
        return _DERIVED_BY_NAME[key]
    if key in _BY_NAME:
        return _BY_NAME[key]
    known = ", ".join((*JobStatus, *DerivedState))
    raise InvalidInput(f"{name[:64]!r} is not a job status.", next_step=f"Use one of {known}.")


def status_of(state: State) -> JobStatus:
    """Say what is stored of a job in this state."""
    if isinstance(state, JobStatus):
        return state
    return JobStatus.RUNNING if state is DerivedState.CANCELLING else JobStatus.QUEUED


class Event(StrEnum):
    """What happened to a job. Those of ON_REQUEST leave a row in the log where the type of the job
    asks for it, all others always."""

    SUBMITTED = "submitted"
    STARTED = "started"
    PROGRESSED = "progressed"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRIED = "retried"
    POISONED = "poisoned"
    CANCELLED = "cancelled"
    SNOOZED = "snoozed"
    RELEASED = "released"
    CRASHED = "crashed"
    CANCEL_REQUESTED = "cancel_requested"
    REDRIVEN = "redriven"


class Reason(StrEnum):
    """Why an event happened; the dead-letter view groups by it."""

    SUBMITTED = "Submitted"
    STARTED = "Started"
    PROGRESSED = "Progressed"
    SUCCEEDED = "Succeeded"
    PERMANENT_ERROR = "PermanentError"
    RETRYABLE_ERROR = "RetryableError"
    ATTEMPTS_EXHAUSTED = "AttemptsExhausted"
    RETRY_REFUSED = "RetryRefused"
    INVALID_FORMAT = "InvalidFormat"
    NO_HANDLER = "NoHandler"
    TYPE_DISABLED = "TypeDisabled"
    SNOOZED = "Snoozed"
    THROTTLED = "Throttled"
    SNOOZED_TOO_OFTEN = "SnoozedTooOften"
    SHUTDOWN = "Shutdown"
    TAKEN_AWAY = "TakenAway"
    LEASE_EXPIRED = "LeaseExpired"
    CRASHED_ALONE = "CrashedAlone"
    CANCEL_REQUESTED = "CancelRequested"
    EXPIRED = "Expired"
    REDRIVEN = "Redriven"


ON_REQUEST: Final = frozenset({Event.SUBMITTED, Event.STARTED, Event.PROGRESSED})
"""Events on the way to an outcome: the status of a job never follows from them."""
TERMINAL: Final = frozenset(
    {JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.POISONED, JobStatus.CANCELLED}
)
DEAD: Final = frozenset({JobStatus.FAILED, JobStatus.POISONED})
"""What the dead-letter view shows."""
REDRIVABLE: Final = frozenset({JobStatus.FAILED, JobStatus.POISONED, JobStatus.CANCELLED})

Move = tuple[JobStatus, Event, JobStatus]

TRANSITIONS: Final[frozenset[Move]] = frozenset(
    {
        (JobStatus.QUEUED, Event.STARTED, JobStatus.RUNNING),
        (JobStatus.QUEUED, Event.CANCELLED, JobStatus.CANCELLED),
        (JobStatus.QUEUED, Event.POISONED, JobStatus.POISONED),
        (JobStatus.RUNNING, Event.COMPLETED, JobStatus.COMPLETED),
        (JobStatus.RUNNING, Event.FAILED, JobStatus.FAILED),
        (JobStatus.RUNNING, Event.POISONED, JobStatus.POISONED),
        (JobStatus.RUNNING, Event.CANCELLED, JobStatus.CANCELLED),
        (JobStatus.RUNNING, Event.CANCEL_REQUESTED, JobStatus.RUNNING),
        (JobStatus.RUNNING, Event.RETRIED, JobStatus.QUEUED),
        (JobStatus.RUNNING, Event.SNOOZED, JobStatus.QUEUED),
        (JobStatus.RUNNING, Event.RELEASED, JobStatus.QUEUED),
        (JobStatus.RUNNING, Event.CRASHED, JobStatus.QUEUED),
        (JobStatus.FAILED, Event.REDRIVEN, JobStatus.QUEUED),
        (JobStatus.POISONED, Event.REDRIVEN, JobStatus.QUEUED),
        (JobStatus.CANCELLED, Event.REDRIVEN, JobStatus.QUEUED),
    }
)

STATUS_AFTER: Final = {event: to for _, event, to in TRANSITIONS}

ALIASES: Final[dict[JobStatus, tuple[str, ...]]] = {
    JobStatus.QUEUED: ("pending", "scheduled", "retrying", "available", "enqueued", "waiting"),
    JobStatus.RUNNING: ("inprogress", "active", "started", "executing", "processing"),
    JobStatus.COMPLETED: ("succeeded", "success", "finished", "done"),
    JobStatus.FAILED: ("failure", "error", "discarded"),
    JobStatus.POISONED: ("deadletter", "deadlettered", "dead", "poison"),
    JobStatus.CANCELLED: ("canceled", "aborted", "revoked"),
}
"""The names that the systems people come from use for the same thing."""
_BY_NAME: Final = {
    name: status for status, aliases in ALIASES.items() for name in (status.value.lower(), *aliases)
}
_DERIVED_BY_NAME: Final = {state.value.lower(): state for state in DerivedState}


def _key(name: str) -> str:
    return name.strip().replace("_", "").replace("-", "").replace(" ", "").lower()
