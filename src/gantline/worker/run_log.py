"""The log of runs: one line each, which is what an operator sees first, and its labels."""

import logging
from typing import Final

from gantline.contract.clock import Clock
from gantline.contract.outcome import Failure, Outcome
from gantline.contract.snapshot import Run
from gantline.contract.status import Event
from gantline.contract.trace import trace_id_of
from gantline.contract.transition import Transition
from gantline.contract.webhook import RESERVED_TYPES

_log = logging.getLogger("gantline.worker")


class Reporter:
    """Log how runs ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def ended(self, run: Run, transition: Transition) -> None:
        error = transition.error
        level = logging.INFO if error is None else logging.WARNING
        if not _log.isEnabledFor(level):
            return
        took = (self._clock.now() - run.started_at).total_seconds()
        what = f"{run.job.job_type} {run.job.job_id} {_in_words(transition, run, took)}"
        if error is not None:
            what += f": {error.code}: {error.message}"
        # What Gantline's own jobs keep there is what a receiver answered: not for logs.
        is_own = run.job.job_type.startswith(RESERVED_TYPES)
        if error is not None and error.detail and not is_own:
            what += f"\n{error.detail.rstrip()}"
        facts = {"event": transition.event.value, "seconds": round(took, 6)}
        if error is not None:
            facts["error_code"] = error.code
        _log.log(level, "%s", what, extra=labels_of(run) | facts)

    def completed_itself(self, run: Run, outcome: Outcome | None) -> None:
        """Log that a run has completed itself, and how its handler failed afterwards."""
        named = (run.job.job_type, run.job.job_id)
        _log.info("%s %s completed in its own transaction", *named, extra=labels_of(run))
        if isinstance(outcome, Failure):
            error = outcome.error
            _log.warning(
                "the handler of job %s, which was completed already: %s\n%s",
                *(run.job.job_id, error.message, error.detail),
                extra=labels_of(run),
            )

    def discarded(self, run: Run) -> None:
        _log.warning(
            "the result of job %s is discarded: the run was over",
            run.job.job_id,
            extra=labels_of(run),
        )


def _in_words(transition: Transition, run: Run, took: float) -> str:
    attempt = f", attempt {run.attempt}/{run.job.max_attempts}" if transition.error else ""
    wait = transition.delay.total_seconds()
    later = f"in {round(wait, 0 if wait >= 10 else 1):g} s"
    match transition.event:
        case Event.RETRIED:
            return f"failed after {took:.3f} s{attempt}, next attempt {later}"
        case Event.SNOOZED:
            return f"snoozed after {took:.3f} s, next run {later}"
        case Event.FAILED:
            return f"failed for good in {took:.3f} s{attempt}"
        case event:
            return f"{event} in {took:.3f} s{attempt}"


# -- labels --------------------------------------------------------------------------------------

LABELS: Final = ("correlation_id", "tenant_id", "job_id", "job_type", "attempt", "trace_id")

Plain = str | int | float | bool | None

_OWN: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "asctime", "message", "taskName"}  # a task since Python 3.12
)


def labels_of(run: Run) -> dict[str, object]:
    """For `extra=` of a logger: attributes of the record."""
    job = run.job
    labels: dict[str, object] = {
        "job_id": str(job.job_id),
        "job_type": job.job_type,
        "tenant_id": job.tenant_id,
        "correlation_id": job.correlation_id,
        "attempt": run.attempt,
    }
    if (trace_id := trace_id_of(job.trace_context)) is not None:
        labels["trace_id"] = trace_id
    return labels


def plain_extras(record: logging.LogRecord) -> dict[str, Plain]:
    """What the caller added to a record with `extra=`, as far as it is plain data."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _OWN and isinstance(value, str | int | float | bool | None)
    }
