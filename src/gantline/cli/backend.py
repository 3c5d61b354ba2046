"""The port that commands call: a store, or a server before one.

It has the verbs and the documents of the client, so that a command prints the same whoever answers
it, and a server is simply asked by the client. What only the holder of the store knows (traces,
workers) is None from a server.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, Unpack
from uuid import UUID

from gantline.api.documents import (
    AttemptDocument,
    DeadSummary,
    HistoryEntry,
    JobDocument,
    JobTypeState,
    LaneDocument,
    ListedJob,
    QueuesDocument,
    QueueState,
    StatusDocument,
)
from gantline.api.schedule_documents import NewSchedule, RunsToCome, ScheduleDocument
from gantline.api.searching import FindOptions
from gantline.api.sent import DeliveriesToReplay, WebhookToKeep
from gantline.audit.chain import AuditEvent, AuditFilter, UnreadableEntry
from gantline.cli.talk import say
from gantline.contract.errors import GantlineError
from gantline.contract.status import JobStatus
from gantline.contract.webhook import (
    DeliveryStatus,
    IssuedWebhook,
    ListedDelivery,
    ReplayReport,
    WebhookDelivery,
    WebhookEndpoint,
)

if TYPE_CHECKING:
    from gantline.client.submission import JobOptions  # only users of a server have the extra

Kind = Literal["queue", "type"]
MOST_EVENTS: Final = 100_000
"""Among how many of a store's newest events those of a tenant and a type are looked for."""
_MOST_SHOWN: Final = 10


class Submitted(Protocol):
    """What a submit answers."""

    @property
    def job_id(self) -> UUID: ...

    @property
    def duplicate(self) -> bool: ...


class LoggedEntry(NamedTuple):
    """Something that happened to a job."""

    entry: HistoryEntry
    error_detail: str | None = None


class Found(NamedTuple):
    jobs: Sequence[ListedJob]
    has_more: bool


class SeenEvent(NamedTuple):
    """Something that happened to a job, and how the job stood then."""

    at: datetime
    event: str
    job_id: UUID
    job_type: str
    status: JobStatus
    reason: str | None
    attempt: int
    error_code: str | None
    error_message: str | None
    tenant_id: str | None = None
    """None from a server: of the tenant that is asked for."""


class Acted(NamedTuple):
    """Where an action left a job; `changed` is False when it was there already."""

    job_id: UUID
    status: JobStatus
    changed: bool


class TypeSeen(NamedTuple):
    job_type: str
    queued: int
    running: int
    paused: bool
    disabled: bool
    workers: int | None = None


class Known(NamedTuple):
    """Names of queues or types: those that jobs have, those that workers serve, if known, and the
    types that the application declares."""

    seen: frozenset[str]
    served: frozenset[str] | None
    declared: frozenset[str] = frozenset()

    def say_if_unseen(self, kind: Kind, name: str) -> None:
        """A switch may be changed before the first job comes; but it may be a typing error too."""
        if name in self.seen | self.declared:
            return
        known = self.seen | self.declared | (self.served or frozenset())
        alike = get_close_matches(name, known, n=1)
        names = f"Is {alike[0]!r} meant?" if alike else _listed(kind, known)
        if self.served is None:
            say(f"There is no job of the {kind} {name!r} that can be seen here. {names}")
            return
        whom = "a worker serves it" if name in self.served else "no worker serves it"
        say(f"There is no job of the {kind} {name!r} in the store, and {whom}. {names}")


def _listed(kind: Kind, names: frozenset[str]) -> str:
    if not names:
        return f"No {kind} is known yet."
    shown = sorted(names)[:_MOST_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"Known are {', '.join(shown)}{more}."


class Backend(Protocol):
    """What keeps the jobs of the tenant. Each method raises GantlineError."""

    @property
    def whose(self) -> str:
        """Whose jobs are meant, for people to read."""
        ...

    @property
    def unseen(self) -> str:
        """What to know where nothing is found: a sentence with a blank before it, or nothing."""
        ...

    @property
    def look_again_seconds(self) -> float:
        """How often to look at a job that is watched."""
        ...

    # -- jobs -------------------------------------------------------------------------------------

    async def submit(
        self, job_type: str, payload: Any, /, **options: "Unpack[JobOptions]"
    ) -> Submitted:
        """The payload is msgspec.Raw: JSON text that is not checked yet."""
        ...

    async def job(self, job_id: UUID, /) -> JobDocument: ...

    async def log(self, job_id: UUID) -> Sequence[LoggedEntry]: ...

    async def attempts(self, job_id: UUID, /) -> list[AttemptDocument]: ...

    async def status(self, job_id: UUID, /) -> StatusDocument: ...

    async def find(self, limit: int, **options: Unpack[FindOptions]) -> Found:
        """The newest jobs that match. Whose they are, the backend knows."""
        ...

    async def find_dead(
        self, limit: int, reason: Sequence[str] = (), **options: Unpack[FindOptions]
    ) -> Found:
        """The newest dead letters that match."""
        ...

    async def dead_summary(self) -> DeadSummary:
        """How many dead letters there are, by type and reason."""
        ...

    def events(
        self, last: int, *, follow: bool, is_chosen: Callable[[str], bool]
    ) -> AsyncIterator[SeenEvent]:
        """What happened to jobs of the chosen types: the last so many events, as far as they are
        among the newest MOST_EVENTS; then all that come, if followed."""
        ...

    async def cancel_each(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]: ...

    async def redrive_each(self, job_ids: Sequence[UUID]) -> list[Acted | GantlineError]: ...

    async def redrive_dead(self, job_ids: Sequence[UUID], chosen_by: Mapping[str, Any]) -> int:
        """Queue dead letters again; return how many could be. `chosen_by` is for the audit."""
        ...

    async def delete_each(self, job_ids: Sequence[UUID]) -> list[UUID | GantlineError]:
        """Remove jobs that have ended, and all that is known of them."""
        ...

    # -- queues and types -------------------------------------------------------------------------

    async def queues(self) -> QueuesDocument: ...

    async def pause_queue(self, queue: str, /) -> QueueState: ...

    async def resume_queue(self, queue: str, /) -> QueueState: ...

    async def cap_queue(self, queue: str, max_depth: int | None, /) -> QueueState: ...

    async def types(self) -> list[TypeSeen]: ...

    async def pause_type(self, job_type: str, /) -> JobTypeState: ...

    async def resume_type(self, job_type: str, /) -> JobTypeState: ...

    async def disable_type(self, job_type: str, /) -> JobTypeState: ...

    async def enable_type(self, job_type: str, /) -> JobTypeState: ...

    async def waiting(self, job_type: str) -> int:
        """How many jobs of a type would fail if it were disabled, as far as can be seen."""
        ...

    async def known(self, kind: Kind) -> Known: ...

    async def lanes(self) -> list[LaneDocument]: ...

    # -- audit ------------------------------------------------------------------------------------

    async def audited_tenants(self, *, everywhere: bool) -> list[str]:
        """Whose audit chains can be read: that of the tenant, or all that there are."""
        ...

    def audit_trail(
        self, tenant_id: str, audit_filter: AuditFilter = ...
    ) -> AsyncIterator[AuditEvent | UnreadableEntry]:
        """The audit chain of a tenant, newest first; it may hold more than was asked for."""
        ...

    # -- schedules --------------------------------------------------------------------------------

    def schedules(self) -> AsyncIterator[ScheduleDocument]: ...

    async def schedule(self, name: str, /) -> ScheduleDocument: ...

    async def next_runs(self, name: str, count: int, /) -> RunsToCome: ...

    async def add_schedule(self, new: NewSchedule, /) -> ScheduleDocument: ...

    async def pause_schedule(self, name: str, /) -> ScheduleDocument: ...

    async def resume_schedule(self, name: str, /) -> ScheduleDocument: ...

    async def run_schedule(self, name: str, /) -> Submitted: ...

    async def delete_schedule(self, name: str, /) -> None: ...

    # -- webhooks ---------------------------------------------------------------------------------

    async def webhooks(self) -> list[WebhookEndpoint]: ...

    async def webhook(self, webhook_id: UUID, /) -> WebhookEndpoint: ...

    async def create_webhook(self, webhook: WebhookToKeep, /) -> IssuedWebhook: ...

    async def delete_webhook(self, webhook_id: UUID, /) -> None: ...

    async def rotate_webhook(self, webhook_id: UUID, /, *, overlap: timedelta) -> IssuedWebhook: ...

    async def enable_webhook(self, webhook_id: UUID, /) -> WebhookEndpoint: ...

    async def disable_webhook(self, webhook_id: UUID, /) -> WebhookEndpoint: ...

    async def test_webhook(self, webhook_id: UUID, /) -> ListedDelivery: ...

    def deliveries(
        self, webhook_id: UUID, /, *, status: DeliveryStatus | None, limit: int
    ) -> AsyncIterator[ListedDelivery]: ...

    async def delivery(self, webhook_id: UUID, delivery_id: UUID, /) -> WebhookDelivery: ...

    async def replay_delivery(self, webhook_id: UUID, delivery_id: UUID, /) -> ListedDelivery: ...

    async def replay_deliveries(
        self, webhook_id: UUID, chosen: DeliveriesToReplay, /
    ) -> ReplayReport: ...
