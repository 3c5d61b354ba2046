"""Statuses, derived states, moves and reasons, from contract/status.py."""

from typing import Final

from gantline.contract.status import (
    ALIASES,
    DEAD,
    REDRIVABLE,
    TERMINAL,
    DerivedState,
    JobStatus,
    Reason,
)
from scripts.docs import markdown
from scripts.docs.lifecycle import CAPTION, ordered_moves
from scripts.docs.markdown import code, table

INTRODUCTION: Final = """\
What is stored of a job, what follows from it, and every move that there is. What it means is
described in [the lifecycle of a job](../concepts/lifecycle.md)."""

DERIVED: Final = {
    DerivedState.SCHEDULED: "Queued, and its first run, or the one that it snoozes for, is in the "
    "future.",
    DerivedState.RETRYING: "Queued again after a failed run or a crash, due or not.",
    DerivedState.CANCELLING: "Running, and asked to stop.",
}
REASONS: Final = {
    Reason.SUBMITTED: "The job was stored.",
    Reason.STARTED: "A worker claimed it.",
    Reason.PROGRESSED: "Its run reported progress.",
    Reason.SUCCEEDED: "The handler returned.",
    Reason.PERMANENT_ERROR: "The handler failed in a way that another attempt cannot mend.",
    Reason.RETRYABLE_ERROR: "The handler failed, and attempts are left.",
    Reason.ATTEMPTS_EXHAUSTED: "The handler failed, and no attempt is left.",
    Reason.RETRY_REFUSED: "The retry strategy answered that it is not worth another attempt.",
    Reason.INVALID_FORMAT: "The stored job cannot be decoded.",
    Reason.NO_HANDLER: "No live worker has declared the type for longer than the grace.",
    Reason.TYPE_DISABLED: "The kill switch of its type was on when its turn came.",
    Reason.SNOOZED: "The handler asked to be run later.",
    Reason.THROTTLED: "Another service asked to wait; until then its gate is closed.",
    Reason.SNOOZED_TOO_OFTEN: "It asked for that more often than is allowed.",
    Reason.SHUTDOWN: "The worker stopped, and gave the run back.",
    Reason.TAKEN_AWAY: "A move to another store took the run from its worker.",
    Reason.LEASE_EXPIRED: "The worker died, or stood still for longer than its lease.",
    Reason.CRASHED_ALONE: "The worker died, and ran nothing but this job.",
    Reason.CANCEL_REQUESTED: "Somebody cancelled it.",
    Reason.EXPIRED: "Its first run had not begun by its `expiresAt`.",
    Reason.REDRIVEN: "Somebody had it run again.",
}


def page() -> str:
    return markdown.page(
        "Statuses and reasons",
        INTRODUCTION,
        "## Statuses",
        "Other systems' names are understood wherever a status is read; they are never shown.",
        table(
            ["status", "is an end", "dead letter", "can be redriven", "also read as"],
            map(_status, JobStatus),
        ),
        "## Derived states",
        "Shown as `state` beside `status`, never stored. In a filter each means itself.",
        table(["state", "when"], ([code(state), about] for state, about in DERIVED.items())),
        "## Moves",
        f"![{CAPTION}](../images/lifecycle.svg)",
        table(
            ["from", "event", "to"], ([move[0], code(move[1]), move[2]] for move in ordered_moves())
        ),
        "## Reasons",
        "Why something happened, in `reason`; dead letters are grouped by it.",
        table(["reason", ""], ([code(one), REASONS[one]] for one in Reason)),
    )


def _status(status: JobStatus) -> list[str]:
    marks = ["yes" if status in group else "" for group in (TERMINAL, DEAD, REDRIVABLE)]
    return [code(status), *marks, ", ".join(map(code, ALIASES[status]))]
