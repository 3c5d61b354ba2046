"""What the API needs of an application: the port through which it reaches jobs."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from windlass.contract.clock import Clock
from windlass.contract.errors import WindlassError
from windlass.contract.results import InsertResult
from windlass.contract.store import JobStore
from windlass.contract.submission import DedupeKey, NewJob
from windlass.contract.wakeup import Wakeup
from windlass.manager.manager import JobManager
from windlass.manager.switches import Switches
from windlass.worker.handler import Handler


class DeclaredJob(Protocol):
    """A declared type of job."""

    @property
    def name(self) -> str: ...

    @property
    def handler(self) -> Handler: ...

    @property
    def priority(self) -> int: ...

    @property
    def max_depth(self) -> int | None: ...

    def prepare(
        self,
        payload: Any,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        owner: str | None = None,
        subject: str | None = None,
        idempotency_key: str | None = None,
        correlation_id: str | None = None,
        job_id: UUID | None = None,
        attempt: int = 1,
        max_attempts: int | None = None,
        parent: UUID | None = None,
        trace_context: dict[str, str] | None = None,
        request_key: DedupeKey | None = None,
    ) -> NewJob:
        """Validate and encode a job without storing it; raise InvalidInput."""
        ...


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
    def wakeup(self) -> Wakeup: ...

    @property
    def is_open(self) -> bool: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def on_close(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Have something called before the application lets its store go."""
        ...

    def new_wakeup(self) -> Wakeup:
        """Make a way to hear hints, to be opened and closed by the caller."""
        ...

    @property
    def job_types(self) -> Sequence[DeclaredJob]: ...

    def find_type(self, name: str) -> DeclaredJob | None:
        """The declared type of this name or alias."""
        ...

    async def admit(self, job_type: DeclaredJob, new: NewJob) -> InsertResult:
        """Store a prepared job durably; raise JobTypeDisabled or QueueFull."""
        ...

    async def admit_many(
        self, jobs: Sequence[tuple[DeclaredJob, NewJob]]
    ) -> list[InsertResult | WindlassError]:
        """Store many, each on its own."""
        ...
