"""What the bridge needs: a broker, reached by a URL, and an application."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from gantline.bridge.message import Message
from gantline.contract.clock import Clock
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.flow import TypeFlow
from gantline.contract.results import InsertResult
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.flow.limits import Limits
from gantline.manager.manager import JobManager
from gantline.wakeups.trigger import join_broker_url, split_broker_url
from gantline.worker.handler import Handler

Trusted = Literal["tenantId", "createdBy", "queue", "priority", "group"]
"""A field of an envelope that counts only where its publishers are trusted with it."""


class BridgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The broker of a bridge, and the names of its exchanges; read from a URL."""

    url: str
    exchange: str = "gantline.jobs"
    """Envelopes are published there, by the name of their type; also the prefix of our queues."""
    outcomes: str = "gantline.outcomes"
    """Outcomes are published there, as `job.completed.<type>`; empty for none."""
    tenant: str = ""
    """Whose jobs come in; empty for the application's own tenant."""
    trusts: frozenset[Trusted] = frozenset()
    """What envelopes may say of their jobs; the rest is the bridge's and the type's own."""
    prefetch: int = 200
    """How many messages of a type may be under way."""

    def __repr__(self) -> str:
        """Leave the URL out: it may hold a password."""
        return f"BridgeSettings(exchange={self.exchange!r}, outcomes={self.outcomes!r})"

    def queue(self, job_type: str) -> str:
        return f"{self.exchange}.{job_type}"

    @property
    def dead_letters(self) -> str:
        """Where messages end that can never become a job."""
        return f"{self.exchange}:dead"


def parse_bridge_url(url: str) -> BridgeSettings:
    """Read `amqp://…/vhost?exchange=…&tenant=…`; options that are not ours go to the driver."""
    parts, options = split_broker_url(url, "bridge")
    ours: dict[str, Any] = {
        name: options.pop(name)
        for name in ("exchange", "outcomes", "tenant", "trusts", "prefetch")
        if name in options
    }
    if "trusts" in ours:
        ours["trusts"] = [name for name in ours["trusts"].split(",") if name]
    clean = join_broker_url(parts, options)
    try:
        settings = msgspec.convert({"url": clean} | ours, BridgeSettings, strict=False)
    except msgspec.ValidationError as error:
        raise StoreMisconfigured(f"The bridge's URL cannot be read: {error}.") from None
    if not settings.exchange or not 1 <= settings.prefetch <= 65_535:
        raise StoreMisconfigured(
            "The bridge's URL names no exchange, or a prefetch that is not from 1 to 65535."
        )
    return settings


TakeMessage = Callable[[Message], Awaitable[None]]
"""Take a message in. When it returns, the job is durable and the message may be acknowledged. When
it raises Rejected, the message belongs into the dead letters. Any other end: deliver it again."""


class Topic(msgspec.Struct, frozen=True):
    """One type of job, with the names under which envelopes of it are sent."""

    job_type: str
    names: tuple[str, ...]


class Outgoing(msgspec.Struct, frozen=True):
    """A message with the topic that it is published on."""

    topic: str
    message: Message


class Broker(Protocol):
    """A message broker, such as RabbitMQ."""

    def check(self, topics: Sequence[Topic]) -> None:
        """Raise StoreMisconfigured where it cannot carry one of them."""
        ...

    async def receive(
        self, topics: Sequence[Topic], take: TakeMessage, connected: Callable[[], None]
    ) -> None:
        """Connect, call `connected`, and pass every message to `take`, several at a time, until
        the connection is lost or this is cancelled. A job type that has to wait delays no other."""
        ...

    async def publish(self, outgoing: Sequence[Outgoing]) -> None:
        """Publish outcomes in their order; the broker has stored them when this returns."""
        ...

    async def send(self, outgoing: Sequence[Outgoing]) -> list[str]:
        """Publish envelopes likewise; return why each was refused, as nobody would receive it or
        there is no room for it, and an empty text for what the broker has stored."""
        ...

    async def close(self) -> None: ...


class BridgedJobType(Protocol):
    """A declared type of job."""

    @property
    def name(self) -> str: ...

    @property
    def handler(self) -> Handler: ...

    @property
    def priority(self) -> int: ...

    @property
    def flows(self) -> Sequence[TypeFlow] | None: ...

    @property
    def has_groups(self) -> bool: ...

    def group_of_encoded(self, body: bytes, version: int) -> str: ...


class BridgedApp(Protocol):
    """What the bridge uses of an application."""

    @property
    def clock(self) -> Clock: ...

    @property
    def store(self) -> JobStore: ...

    @property
    def default_tenant(self) -> str: ...

    @property
    def manager(self) -> JobManager: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def job_types(self) -> Sequence[BridgedJobType]: ...

    def find_type(self, name: str) -> BridgedJobType | None: ...

    async def submit_prepared(self, new: NewJob, *, connection: Any = None) -> InsertResult:
        """Store a prepared job durably; raise JobTypeDisabled or QueueFull."""
        ...
