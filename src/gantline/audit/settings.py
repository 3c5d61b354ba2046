"""Settings of the audit trail, each with its default."""

from datetime import timedelta

from gantline.audit.retention import DEFAULT_RETENTION
from gantline.audit.verification import SHORTEST_AGE
from gantline.contract.audit import AuditSink
from gantline.contract.bounds import CheckedStruct, check_span


class AuditSettings(CheckedStruct, frozen=True, kw_only=True):
    """Where the actions of operators and the refusals are kept, and for how long."""

    sink: AuditSink | None = None
    """Takes the entries: an object with `async def record(entry)`; None: the store does."""
    retention: timedelta | None = DEFAULT_RETENTION
    """Workers remove from the store what is older, an hour at least; None keeps all."""

    from_jobs: bool = False
    """Whether handlers make entries, by `ctx.audit`: then workers read all events for it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        name = "The retention of the audit trail"
        check_span(name, self.retention, least=SHORTEST_AGE)
