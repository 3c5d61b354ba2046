"""The reporter: one line a run in the log, which is what an operator sees first."""

import logging

from gantline.contract.clock import Clock
from gantline.contract.outcome import Failure, Outcome
from gantline.contract.snapshot import Run
from gantline.contract.transition import Transition
from gantline.contract.webhook import RESERVED_TYPES
from gantline.worker.labels import labels_of

_log = logging.getLogger("gantline.worker")


class Reporter:
    """Say what became of runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def ended(self, run: Run, transition: Transition) -> None:
        error = transition.error
        level = logging.INFO if error is None else logging.WARNING
        if not _log.isEnabledFor(level):
            return
        took = (self._clock.now() - run.started_at).total_seconds()
        what = f"{run.job.job_type} {run.job.job_id} {transition.event} in {took:.3f} s"
        if error is not None:
            what += f", attempt {run.attempt}/{run.job.max_attempts}: {error.code}: {error.message}"
        # What Gantline's own jobs keep there is what a receiver answered: not for logs.
        is_own = run.job.job_type.startswith(RESERVED_TYPES)
        if error is not None and error.detail and not is_own:
            what += f"\n{error.detail.rstrip()}"
        facts = {"event": transition.event.value, "seconds": round(took, 6)}
        if error is not None:
            facts["error_code"] = error.code
        _log.log(level, "%s", what, extra=labels_of(run) | facts)

    def completed_itself(self, run: Run, outcome: Outcome | None) -> None:
        """Say that a run has completed itself, and what became of its handler afterwards."""
        told = (run.job.job_type, run.job.job_id)
        _log.info("%s %s completed in its own transaction", *told, extra=labels_of(run))
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
