"""The ports of the bridge: what it needs of a broker, and of an application."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from gantline.bridge.message import Message
from gantline.contract.results import InsertResult
from gantline.contract.submission import NewJob
from gantline.manager.manager import JobManager
from gantline.worker.handler import Handler

Take = Callable[[Message], Awaitable[None]]
"""Take a message in. When it returns, the job is durable and the message may be forgotten; when it
raises Rejected, the message belongs into the dead letters; any other end: deliver it again."""


class Topic(msgspec.Struct, frozen=True):
    """One type of job, with the names under which envelopes of it are sent."""

    job_type: str
    names: tuple[str, ...]


class Outgoing(msgspec.Struct, frozen=True):
    """A message with the topic that it is published on."""

    topic: str
    message: Message


class Broker(Protocol):
    """One broker, of whatever make. RabbitMQ is the first."""

    def check(self, topics: Sequence[Topic]) -> None:
        """Raise StoreMisconfigured where it cannot carry one of them."""
        ...

    async def receive(
        self, topics: Sequence[Topic], take: Take, connected: Callable[[], None]
    ) -> None:
        """Connect, say so, and hand every message to `take`, several at a time, until the
        connection is lost or this is cancelled. A type that is held up holds up no other."""
        ...

    async def publish(self, outgoing: Sequence[Outgoing]) -> None:
        """Hand messages over in their order; the broker has them durably when this returns."""
        ...

    async def close(self) -> None: ...


class DeclaredType(Protocol):
    """A declared type of job."""

    @property
    def name(self) -> str: ...

    @property
    def handler(self) -> Handler: ...

    @property
    def priority(self) -> int: ...


class Jobs(Protocol):
    """An application's jobs."""

    @property
    def manager(self) -> JobManager: ...

    @property
    def job_types(self) -> Sequence[DeclaredType]: ...

    def find_type(self, name: str) -> DeclaredType | None: ...

    async def submit_prepared(self, new: NewJob) -> InsertResult:
        """Store a prepared job durably; raise JobTypeDisabled or QueueFull."""
        ...
