"""Every error code: of answers, of runs and of exceptions."""

import re
from collections.abc import Iterator
from typing import Final

from gantline.api.problems import KINDS
from gantline.contract import errors as module
from gantline.contract.errors import Code, GantlineError
from scripts.docs import markdown
from scripts.docs.markdown import code, table

INTRODUCTION: Final = """\
Codes are stable: rely on them, and not on texts. A handler may use its own beside them, in the
same shape (`DOCUMENT_UNKNOWN`), by `Permanent(code, message)` and `Retry(code=…)`."""

OF_RUNS: Final = {
    Code.VALIDATION_ERROR: ("no", "The payload is not of the shape that the type declares."),
    Code.INVALID_FORMAT: ("no", "The stored job cannot be decoded at all; it is poisoned."),
    Code.RESULT_NOT_STORABLE: (
        "no",
        "What the handler returned is not JSON data, not of its declared type, or too large.",
    ),
    Code.HANDLER_ERROR: ("yes", "The handler raised something that nobody knows."),
    Code.TIMEOUT: ("yes", "The run took longer than its timeout, or another service did."),
    Code.NETWORK_ERROR: ("yes", "Another service could not be reached."),
    Code.UPSTREAM_ERROR: ("yes", "Another service answered 5xx, 408, 425 or 429."),
    Code.UPSTREAM_REFUSED: ("no", "Another service answered with any other 4xx."),
    Code.DB_UNAVAILABLE: ("yes", "The handler's database could not be used."),
    Code.QUEUE_UNAVAILABLE: ("yes", "The handler's Redis or broker could not be used."),
    Code.CONFIGURATION_ERROR: (
        "no",
        "The worker lacks what the handler needs, or cannot start it.",
    ),
    Code.STORE_ERROR: ("yes", "The store of the jobs could not be used within the handler."),
    Code.FOLLOW_UP_CONFLICT: ("no", "A follow-up's key belongs to a job with another payload."),
    Code.LEASE_EXPIRED: (
        "yes",
        "The worker died or stopped renewing; three such crashes all by itself poison the job.",
    ),
    Code.NO_HANDLER: ("no", "No live worker has declared the type, for 15 minutes; poisoned."),
    Code.SNOOZED_TOO_OFTEN: ("no", "The job was put off 1000 times; poisoned."),
    Code.JOB_TYPE_DISABLED: ("no", "The type's kill switch was on when its turn came."),
    Code.IDEMPOTENCY_CONFLICT: ("no", "In an outbox: its key belongs to another payload."),
    "HANDLER_PROCESS_DIED": ("yes", 'The process of a `run_in="process"` handler ended.'),
    "WEBHOOK_GONE": ("no", "A delivery whose endpoint was deleted."),
    "WEBHOOK_DISABLED": ("no", "A delivery whose endpoint is disabled."),
}
"""What a failed run or a dead letter may have as its `errorCode`."""


def page() -> str:
    runs = ([code(name), retried, about] for name, (retried, about) in OF_RUNS.items())
    return markdown.page(
        "Error codes",
        INTRODUCTION,
        "## What the API answers",
        "Each is a problem of RFC 9457; `type` leads to its page on the server. Where it is "
        "retryable, `Retry-After` says when.",
        table(["`errorCode`", "status", "retryable", ""], _problems()),
        "## What a run ends with",
        "In `errorCode` of a status, in history, events and dead letters. What is tried again is "
        "so while [attempts are left](../concepts/retries.md).",
        table(["`errorCode`", "tried again", ""], runs),
        "## What Python raises",
        "All of `gantline.contract.errors`; those that most people meet are in `gantline` too. The "
        "Python client raises the same ones, by the code of the answer.",
        table(["exception", "`code`", "is a", ""], _exceptions()),
    )


def _problems() -> Iterator[list[str]]:
    for kind in sorted(KINDS.values(), key=lambda kind: (kind.status, kind.code)):
        again = "yes" if kind.retryable else "no"
        yield [code(kind.code), str(kind.status), again, f"{kind.title}. {kind.advice}"]


def _exceptions() -> Iterator[list[str]]:
    described = dict(_tree())
    for error in all_errors():
        name, parent = error.__name__, error.__mro__[1].__name__
        doc = markdown.first_line(vars(error).get("__doc__"))
        yield [code(name), code(error.code), code(parent), doc or described.get(name, "")]


def all_errors(root: type[GantlineError] = GantlineError) -> list[type[GantlineError]]:
    """Every exception of the contract, each before those that are of its kind."""
    ours = [one for one in root.__subclasses__() if one.__module__ == module.__name__]
    return [root, *(found for one in ours for found in all_errors(one))]


def _tree() -> Iterator[tuple[str, str]]:
    """What the tree in the module's docstring says of each."""
    for line in (module.__doc__ or "").splitlines():
        if found := re.match(r"^[│├└─ ]+(\w+) +(.*)$", line):
            yield found[1], re.sub(r"^[A-Z_]+(: |$)", "", found[2])
