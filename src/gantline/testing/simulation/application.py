"""The application that a simulation runs: jobs whose payload says what each attempt does."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, Literal

import msgspec

from gantline.app.gantline import Gantline
from gantline.app.settings import JobDefaults
from gantline.auth.peppers import Peppers
from gantline.contract.capabilities import StorageSettings
from gantline.contract.errors import Permanent, Retry, Snooze, Throttled
from gantline.contract.job_event import DomainEvent, JobEvent
from gantline.contract.retention import Retention
from gantline.contract.retry import Backoff
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Wakeup
from gantline.flow.limit import Limit
from gantline.testing.simulation.network import Network, SimulatedWakeup
from gantline.testing.simulation.world import Process
from gantline.wakeups.remote import RemoteWakeup
from gantline.webhooks.retry import NoResponse, WebhookResponse
from gantline.webhooks.secret_encryption import Vault
from gantline.webhooks.settings import WebhookSettings
from gantline.worker.context import Context

_MOST_CRASHES: Final = (2, 3, 1000)
_VAULT: Final = Vault(Peppers({"k1": bytes(range(32))}))

End = Literal["return", "retry", "fail", "snooze", "throttle", "error", "crash", "transaction"]
"""How one attempt ends. `crash` takes its whole process along."""

JOB_TYPES: Final = ("plain", "limited", "watched", "thread")
QUEUES: Final = {"plain": "one", "limited": "one", "watched": "two", "thread": "two"}
LIMITED: Final = "limited"
"""The type of which a process runs one at a time."""
WORKED: Final = "WORKED"
"""What handlers emit, with the fence of their run, but for those of `thread`."""
LISTENER: Final = "acme"
"""The tenant whose outcomes are delivered by a webhook."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a job does: the ends of its attempts, the last one for all that follow."""

    ends: tuple[End, ...] = ("return",)
    seconds: float = 0.0
    progress: int = 0
    follow_ups: tuple["Plan", ...] = ()
    once: str = ""
    swallows_cancel: bool = False

    @property
    def emits(self) -> bool:
        return self.progress > 0

    @property
    def may_crash(self) -> bool:
        return "crash" in self.ends or any(one.may_crash for one in self.follow_ups)


class Handled(msgspec.Struct, frozen=True, gc=False):
    """A handler that was called, and has ended."""

    process: str
    job_id: str
    fence: int
    job_type: str
    began: float
    ended: float
    stopped: float | None
    """When it was asked to stop."""

    @property
    def until(self) -> float:
        """How long it may have worked: what it does after it was asked to stop is its own fault."""
        return self.ended if self.stopped is None else self.stopped


class Journal(msgspec.Struct):
    """What really happened, seen from outside of all processes."""

    runs: list[Handled] = []
    heard: list[tuple[str, int]] = []
    """Jobs and versions of the events that a durable consumer was given."""
    ends_heard: set[tuple[str, str]] = set()
    """Jobs and types of the events by which they ended, of those that it was given."""
    emitted_heard: set[tuple[str, int]] = set()
    """Jobs and versions of the domain events that it was given."""
    delivered: list[tuple[str, str]] = []
    """Jobs and types of the events that a receiver of webhooks accepted."""
    crashes: Counter[str] = msgspec.field(default_factory=Counter)
    """How often each job took its process along."""

    def reported(self) -> int:
        """How many events the consumer was given, and the receiver; repeats count once."""
        return len({*self.heard}) + len({*self.delivered})


async def _resolve(host: str, port: int) -> list[str]:
    return ["93.184.216.34"]


class Receiver:
    """Stands for the sender of webhooks and their receiver, which now and then says nothing."""

    def __init__(self, process: Process, network: Network, journal: Journal) -> None:
        self._process = process
        self._network = network
        self._journal = journal

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, **options: object
    ) -> WebhookResponse | NoResponse:
        random = self._process.random
        await asyncio.sleep(random.uniform(0.0, 0.2))
        if not self._network.is_calm and random.random() < 0.1:
            self._network.faults["webhook refused"] += 1
            return NoResponse("TIMEOUT", "The simulation does not answer.")
        event = msgspec.json.decode(body)
        self._journal.delivered.append((event["data"]["jobId"], event["type"]))
        return WebhookResponse(200, (), b"", 0.1)


class SimulatedApplication(Gantline):
    """An application that hears hints over a simulated network."""

    def __init__(self, store: JobStore, network: Network, retention: Retention) -> None:
        self._network = network
        super().__init__(
            store,
            defaults=JobDefaults(retry=Backoff(attempts=4, cap_seconds=20)),
            storage=StorageSettings(retention=retention),
            webhooks=WebhookSettings(vault=_VAULT, resolve=_resolve),
        )

    def _make_wakeup(self, broker: RemoteWakeup | None) -> Wakeup:
        return SimulatedWakeup(self._network)


MakeApplication = Callable[[Process], SimulatedApplication]


def make_application(
    process: Process,
    store: JobStore,
    network: Network,
    journal: Journal,
    *,
    crash: Callable[[Process], None],
    retention: Retention,
    limits: Mapping[str, Sequence[Limit]],
) -> SimulatedApplication:
    """Declare everything anew, as each process does by importing its code."""
    jobs = SimulatedApplication(store, network, retention)
    holds = store.capabilities.limits
    limited_to = {name: limits.get(name) if holds else None for name in JOB_TYPES}

    async def work(plan: Plan, ctx: Context) -> str:
        began, stopped = process.world.now, list[float]()
        try:
            return await act(plan, ctx, stopped)
        except asyncio.CancelledError:
            stopped.append(process.world.now)
            raise
        finally:
            journal.runs.append(
                Handled(
                    process.label,
                    str(ctx.job_id),
                    ctx.fence,
                    ctx.job.job_type,
                    began,
                    process.world.now,
                    stopped[0] if stopped else None,
                )
            )

    async def act(plan: Plan, ctx: Context, stopped: list[float]) -> str:
        if plan.once:
            await ctx.once(plan.once)
        if plan.emits:
            ctx.emit(WORKED, "Job", ctx.fence, aggregate_id=ctx.job_id)
        for step in range(plan.progress):
            await ctx.progress(100 * step / plan.progress, f"step {step}")
        try:
            await asyncio.sleep(plan.seconds)
        except asyncio.CancelledError:
            if not plan.swallows_cancel:
                raise
            stopped.append(process.world.now)
            await asyncio.sleep(plan.seconds / 2)  # it does not stop before the second time
        end = plan.ends[min(ctx.attempt, len(plan.ends)) - 1]
        if end == "transaction" and not jobs.store.capabilities.caller_transaction:
            end = "return"
        match end:
            case "retry":
                raise Retry("again", after=timedelta(seconds=plan.seconds))
            case "fail":
                raise Permanent("NO_USE", "It is no use.")
            case "snooze":
                if ctx.attempt + len(plan.ends) > 2 and process.random.random() < 0.5:
                    raise Snooze(timedelta(seconds=1))
            case "throttle":
                if ctx.attempt + len(plan.ends) > 2 and process.random.random() < 0.5:
                    raise Throttled(after=timedelta(seconds=1))
            case "error":
                raise ValueError("a bug of the handler")
            case "crash":
                # Some do so only a few times: they are innocent when halving has found them.
                if journal.crashes[str(ctx.job_id)] < _MOST_CRASHES[ctx.job_id.int % 3]:
                    journal.crashes[str(ctx.job_id)] += 1
                    crash(process)
                    await asyncio.get_running_loop().create_future()
            case _:
                pass
        for one in plan.follow_ups:
            ctx.follow_up(plain, one)
        if end == "transaction":
            async with ctx.transaction("done") as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS effect (job TEXT, fence INTEGER)")
                connection.execute("INSERT INTO effect VALUES (?, ?)", (str(ctx.job_id), ctx.fence))
                await asyncio.sleep(0.01)
        return "done"

    @jobs.job(
        "plain",
        queue=QUEUES["plain"],
        timeout=timedelta(seconds=60),
        limits=limited_to["plain"],
    )
    async def plain(plan: Plan, ctx: Context) -> str:
        return await work(plan, ctx)

    @jobs.job(
        "limited",
        queue=QUEUES["limited"],
        concurrency=1,
        timeout=timedelta(seconds=30),
        limits=limited_to["limited"],
    )
    async def limited(plan: Plan, ctx: Context) -> str:
        return await work(plan, ctx)

    @jobs.job(
        "watched",
        queue=QUEUES["watched"],
        events=("submitted", "started", "progressed"),
        limits=limited_to["watched"],
    )
    async def watched(plan: Plan, ctx: Context) -> str:
        return await work(plan, ctx)

    @jobs.job(
        "thread",
        queue=QUEUES["thread"],
        timeout=timedelta(seconds=20),
        limits=limited_to["thread"],
    )
    def thread(plan: Plan, ctx: Context) -> str:
        end = plan.ends[min(ctx.attempt, len(plan.ends)) - 1]
        if end == "fail":
            raise Permanent("NO_USE", "It is no use.")
        if end in ("retry", "error"):
            raise StopIteration
        return "stopped" if ctx.cancelled else "done"

    @jobs.on("job.*", "domain.*", name="ear", from_start=True)
    async def hear(event: JobEvent) -> None:
        await asyncio.sleep(0.001)
        if isinstance(event, DomainEvent):
            journal.emitted_heard.add((str(event.job.job_id), event.entry.version))
            return
        journal.heard.append((str(event.job.job_id), event.entry.version))
        if event.entry.status.is_terminal:
            journal.ends_heard.add((str(event.job.job_id), event.type))

    return jobs
