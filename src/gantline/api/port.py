"""What the API needs of an application: the port through which it reaches jobs."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, Unpack
from uuid import UUID

from gantline.contract.audit import AuditSink
from gantline.contract.clock import Clock
from gantline.contract.errors import GantlineError
from gantline.contract.flow import TypeFlow
from gantline.contract.query import Cursor
from gantline.contract.results import InsertResult
from gantline.contract.store import JobStore
from gantline.contract.submission import DedupeKey, NewJob, SubmitOptions
from gantline.contract.wakeup import Wakeup
from gantline.contract.webhook import (
    DeliveryStatus,
    IssuedWebhook,
    ListedDelivery,
    ReplayReport,
    ReplayRequest,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookSpec,
)
from gantline.flow.limits import Limits
from gantline.manager.admission import DepthCaps
from gantline.manager.manager import JobManager
from gantline.manager.switches import Switches
from gantline.schedules.schedules import Schedules
from gantline.wakeups.job_waiter import JobWaiter
from gantline.wakeups.snapshot_cache import SnapshotCache
from gantline.worker.handler import Handler


class DeclaredJob(Protocol):
    """A declared type of job."""

    @property
    def name(self) -> str: ...

    @property
    def handler(self) -> Handler: ...

    @property
    def priority(self) -> int: ...

    @property
    def caps(self) -> DepthCaps: ...

    @property
    def flows(self) -> Sequence[TypeFlow] | None:
        """The limits that it declares, for each of its names; None where it says nothing."""
        ...

    @property
    def has_groups(self) -> bool:
        """Whether it says itself in which groups its jobs are."""
        ...

    def prepare(
        self,
        payload: Any,
        *,
        attempt: int = 1,
        created_at: datetime | None = None,
        request_key: DedupeKey | None = None,
        **options: Unpack[SubmitOptions],
    ) -> NewJob:
        """Validate and encode a job without storing it; raise InvalidInput."""
        ...


class WebhooksPort(Protocol):
    """An application's webhooks. A tenant is named in every call; another's are not there."""

    async def create(
        self, spec: WebhookSpec, *, tenant_id: str, actor: str, secret: str | None = None
    ) -> IssuedWebhook: ...

    async def listed(self, *, tenant_id: str) -> list[WebhookEndpoint]: ...

    async def get(self, webhook_id: UUID, *, tenant_id: str) -> WebhookEndpoint:
        """Raise WebhookNotFound."""
        ...

    async def update(
        self, webhook_id: UUID, spec: WebhookSpec, *, tenant_id: str, actor: str
    ) -> WebhookEndpoint: ...

    async def delete(self, webhook_id: UUID, *, tenant_id: str) -> None: ...

    async def rotate(
        self, webhook_id: UUID, *, tenant_id: str, overlap: timedelta, actor: str
    ) -> IssuedWebhook: ...

    async def enable(self, webhook_id: UUID, *, tenant_id: str) -> WebhookEndpoint: ...

    async def disable(
        self, webhook_id: UUID, *, tenant_id: str, reason: str
    ) -> WebhookEndpoint: ...

    async def test(self, webhook_id: UUID, *, tenant_id: str, actor: str) -> ListedDelivery: ...

    async def deliveries(
        self,
        webhook_id: UUID,
        *,
        tenant_id: str,
        status: DeliveryStatus | None = None,
        limit: int = 50,
        after: Cursor | None = None,
    ) -> tuple[list[ListedDelivery], Cursor | None]: ...

    async def delivery(
        self, webhook_id: UUID, delivery_id: UUID, *, tenant_id: str
    ) -> WebhookDelivery:
        """Raise JobNotFound."""
        ...

    async def replay(
        self, webhook_id: UUID, delivery_id: UUID, *, tenant_id: str, actor: str
    ) -> ListedDelivery: ...

    async def replay_all(
        self, webhook_id: UUID, replay: ReplayRequest, *, tenant_id: str, actor: str
    ) -> ReplayReport: ...


class Jobs(Protocol):
    """An application's jobs."""

    @property
    def clock(self) -> Clock: ...

    @property
    def store(self) -> JobStore: ...

    @property
    def manager(self) -> JobManager: ...

    @property
    def switches(self) -> Switches: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def snapshots(self) -> SnapshotCache: ...

    @property
    def waiter(self) -> JobWaiter: ...

    @property
    def schedules(self) -> Schedules: ...

    @property
    def audit(self) -> AuditSink: ...

    @property
    def wakeup(self) -> Wakeup: ...

    @property
    def webhooks(self) -> WebhooksPort | None:
        """None where they are off."""
        ...

    @property
    def is_open(self) -> bool: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def on_close(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Have something called before the application closes its store."""
        ...

    def new_wakeup(self) -> Wakeup:
        """Make a way to hear hints, to be opened and closed by the caller."""
        ...

    @property
    def job_types(self) -> Sequence[DeclaredJob]: ...

    def find_type(self, name: str) -> DeclaredJob | None:
        """The declared type of this name or alias."""
        ...

    async def submit_prepared(self, new: NewJob) -> InsertResult:
        """Store a prepared job durably; raise JobTypeDisabled, QueueFull or StoreClosed."""
        ...

    async def submit_each_prepared(
        self, jobs: Sequence[NewJob]
    ) -> list[InsertResult | GantlineError]:
        """Store many, each on its own."""
        ...
