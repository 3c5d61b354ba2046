"""Windlass: the object that users hold; the composition root."""

import asyncio
import os
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from windlass.app.declare import Declarations, JobGroup
from windlass.app.handle import Handle
from windlass.app.job_type import JobType
from windlass.app.scheduled import gathered
from windlass.app.settings import CODE, named_in
from windlass.app.wakeup import broker_from_url, wakeup_for
from windlass.app.watching import Watching
from windlass.app.webhooks import webhooks_of
from windlass.audit.retention import DEFAULT_RETENTION, AuditRetention
from windlass.audit.store_audit import StoreAudit
from windlass.contract.audit import AuditSink
from windlass.contract.capabilities import Durability
from windlass.contract.clock import Clock, SystemClock
from windlass.contract.errors import (
    InvalidInput,
    StoreMisconfigured,
    SubmitConflict,
    SubmitRefused,
    WindlassError,
)
from windlass.contract.job import DEFAULT_QUEUE, DEFAULT_TENANT
from windlass.contract.job_event import EventConsumer
from windlass.contract.payload import DEFAULT_PAYLOAD_LIMIT, PayloadCheck
from windlass.contract.results import Applied, Conflict, Duplicate, InsertResult
from windlass.contract.schedule import Schedule
from windlass.contract.store import JobStore
from windlass.contract.submission import NewJob
from windlass.contract.wakeup import Hint, Wakeup
from windlass.manager.admission import Admissible, Admission, Counted
from windlass.manager.event_reader import DeclaredConsumer
from windlass.manager.maintenance import Chore
from windlass.manager.manager import JobManager
from windlass.manager.observer import tell
from windlass.manager.schedules import Schedules
from windlass.manager.switches import Switches
from windlass.stores import store_from_url
from windlass.telemetry.tracing import TraceRuns, Tracing
from windlass.wakeups.in_process import Hub
from windlass.worker.batcher import Batcher
from windlass.worker.executor import RunHook
from windlass.worker.handler import Handler
from windlass.worker.registry import HandlerRegistry
from windlass.worker.worker import Worker, WorkerSettings

if TYPE_CHECKING:
    from fastapi import APIRouter

    from windlass.api import ApiSettings, Responses
    from windlass.api.application import Api
    from windlass.api.function_authorizer import Authorize
    from windlass.app.bridging import Bridging
    from windlass.app.outbox import Outbox
    from windlass.auth.authenticator import Authenticator
    from windlass.auth.authorizer import Authorizer
    from windlass.auth.stream_tokens import StreamTokens
    from windlass.bridge.bridge import Bridge
    from windlass.telemetry.loop_watch import LoopWatch
    from windlass.telemetry.routes import Routes
    from windlass.webhooks.settings import WebhookSettings

TRACE_VARIABLE: Final = "WINDLASS_TRACE_RUNS"
_BATCH: Final = 500

R = TypeVar("R")
A = TypeVar("A")
Lifespan = Callable[["Windlass"], AbstractAsyncContextManager[Any]]


class Require(msgspec.Struct, frozen=True):
    """What a store must promise, or the application does not start."""

    durability: Durability = "none"


class Windlass(Declarations):
    """An application's jobs: declare them, submit them, run them. Connects at first use.

    A store or a trigger that is named here is used, whatever the settings say; where none is, they
    say it: WINDLASS_STORE, windlass.toml, then sqlite:///windlass.db.
    """

    def __init__(
        self,
        store: str | JobStore | None = None,
        *,
        include: Iterable[JobGroup] = (),
        require: Require | None = None,
        trigger: str | None = None,
        outbox: str | None = None,
        bridge: str | None = None,
        queue: str = DEFAULT_QUEUE,
        tenant: str = DEFAULT_TENANT,
        lifespan: Lifespan | None = None,
        hooks: Iterable[RunHook] = (),
        consumers: Iterable[EventConsumer] = (),
        payload_limit: int = DEFAULT_PAYLOAD_LIMIT,
        payload_check: PayloadCheck | None = None,
        trace_runs: TraceRuns | None = None,
        webhooks: "WebhookSettings | None" = None,
        audit: AuditSink | None = None,
        audit_retention: timedelta | None = DEFAULT_RETENTION,
        clock: Clock | None = None,
    ) -> None:
        """`audit` keeps what operators do and who is refused; by default the store does.

        Its workers remove what is older than `audit_retention` from the store; None keeps all.
        """
        super().__init__(queue=queue)
        self.clock = clock or SystemClock()
        self.default_tenant = tenant
        self.payload_limit = payload_limit
        self.registry = HandlerRegistry()
        self._payload_check = payload_check
        self._audit = audit
        self._audit_retention = audit_retention
        self._require = require or Require()
        self._lifespan = lifespan
        self.hooks = tuple(hooks)
        self.after_submit: Callable[[], Awaitable[None]] | None = None
        """Called when a submit is done; for tests that run jobs at once."""
        self.store_source, self.store_named_by = _store_and_where_it_is_named(store)
        self.trigger, self.trigger_named_by = named_in(trigger, "trigger")
        """The URL of a broker that carries wake-ups beside the store's own; empty for none."""
        self.outbox_url, self.outbox_named_by = named_in(outbox, "outbox")
        self.tracing = Tracing(trace_runs or os.environ.get(TRACE_VARIABLE) or "link")
        self.watching = Watching(self)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._before_close: list[Callable[[], Awaitable[None]]] = []
        self._connect()
        os.register_at_fork(after_in_child=_closing(weakref.ref(self)))
        for group in include:
            self.include(group)
        for consumer in consumers:
            self.add_consumer(consumer)
        self.webhooks = webhooks_of(self, webhooks)
        """None where there is no key for their secrets: WINDLASS_WEBHOOK_KEY."""
        if self.webhooks is not None:
            self._take_in(self.webhooks.handler())
            self._listen(self.webhooks.consumer())
        self.bridge = self._make_bridge(named_in(bridge, "bridge").text)

    def _connect(self) -> None:
        source = self.store_source
        self.store: JobStore = (
            store_from_url(source, clock=self.clock) if isinstance(source, str) else source
        )
        self._hub = Hub()
        self.broker = broker_from_url(self.trigger)
        """The application's way to the broker: `broker.is_connected` tells readiness."""
        self.wakeup = wakeup_for(self.store, self._hub, self.broker)
        self.switches = Switches(self.store, thrown=lambda: self.wakeup.notify(Hint.SWITCHED))
        self._store_audit = StoreAudit(self.store)
        self.audit: AuditSink = self._audit or self._store_audit
        """Keeps what operators do, and who is refused."""
        self._admission = Admission(self.store, self.switches, max_depth_of=self._max_depth_of)
        self.manager = JobManager(
            self.store,
            policy_for=self.registry.policy_for,
            payload_limit=self.payload_limit,
            payload_check=self._payload_check,
            observer=self.watching.observer,
            switches=self.switches,
        )
        self.schedules = Schedules(
            self.store,
            self.manager,
            admit=self._admission.check_job,
            changed=lambda: self.wakeup.notify(Hint.SCHEDULED),
        )
        self.outbox = self._make_outbox()
        """Where jobs wait that were submitted in a transaction of another database."""
        self._opening: Future[bool] | None = None
        self._is_open = False
        self._batchers: dict[asyncio.AbstractEventLoop, Batcher[NewJob, InsertResult]] = {}
        self._sync: _LoopThread | None = None

    def audit_of(self, store: JobStore) -> AuditSink:
        """The sink of this application, for who works on a store that it has not opened."""
        return self._audit or StoreAudit(store)

    def new_wakeup(self) -> Wakeup:
        """Make a way to hear hints, to be opened and closed by the caller."""
        return wakeup_for(self.store, self._hub, broker_from_url(self.trigger))

    def _make_outbox(self) -> "Outbox | None":
        if not self.outbox_url:
            return None
        from windlass.app.outbox import Outbox  # most applications have none

        return Outbox(
            self.outbox_url, clock=self.clock, insert=self._insert_moved, manager=self.manager
        )

    def _make_bridge(self, url: str) -> "Bridging | None":
        if not url:
            return None
        from windlass.app.bridging import Bridging  # most applications have none

        return Bridging(self, url)

    # -- declaring --------------------------------------------------------------------------------

    def include(self, group: JobGroup) -> None:
        """Take the jobs of a group in, and what listens to events there."""
        for job_type in group.job_types:
            self._declare(job_type)
        for declared in group.consumers:
            self._listen(declared)

    def add_consumer(self, consumer: EventConsumer, *, from_start: bool = False) -> None:
        """Have every worker of this application run a durable consumer; one at a time reads.

        A new one begins behind the last event that there is, or with `from_start` before the first
        that is still kept.
        """
        self._listen(DeclaredConsumer(consumer=consumer, from_start=from_start))

    def _declare(self, job_type: JobType[Any, Any]) -> JobType[Any, Any]:
        super()._declare(job_type)
        self._take_in(job_type.handler)
        job_type.bind(self)
        return job_type

    def _take_in(self, handler: Handler) -> None:
        """Run jobs of a type. What is not declared beside it, nobody can submit."""
        self.registry.add(handler)
        self.watching.know(handler.job_types)

    def find_type(self, name: str) -> JobType[Any, Any] | None:
        """The declared type of this name or alias."""
        if found := self._declared.get(name):
            return found
        handler = self.registry.find(name)
        return None if handler is None else self._declared.get(handler.job_type)

    @property
    def declared_schedules(self) -> tuple[Schedule, ...]:
        """What the declared jobs are to be run by; raise InvalidInput where that is not possible:
        two have one name, or the application refuses a payload."""
        found = gathered(self.job_types, default_tenant=self.default_tenant)
        for one in found:
            data = msgspec.json.decode(one.payload)
            if self._payload_check and (reason := self._payload_check(one.job_type, data)):
                raise InvalidInput(
                    f"The payload of the schedule {one.name!r} was refused: {reason}."
                )
        return found

    def _max_depth_of(self, job_type: str) -> int | None:
        declared = self.find_type(job_type)
        return None if declared is None else declared.max_depth

    def move_to(
        self, store: str | JobStore, *, clock: Clock | None = None, trigger: str | None = None
    ) -> None:
        """Use another store from now on; for tests. The application must be closed."""
        self.store_source = store
        self.clock = clock or self.clock
        self.trigger = self.trigger if trigger is None else trigger
        self._connect()

    # -- opening ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store; done by the first use where nobody does it before."""
        self._start_anew_after_a_fork()
        while True:
            with self._lock:
                opening = self._opening
                if opening is None:
                    self._opening = mine = Future[bool]()
                    # Running, or whoever waits for it and gives up would cancel it for all.
                    mine.set_running_or_notify_cancel()
            if opening is None:
                await self._open_for_all(mine)
                return
            if await asyncio.wrap_future(opening):
                return

    async def _open_for_all(self, opening: "Future[bool]") -> None:
        """Open, and tell those who wait; if this caller gives up, one of them has to."""
        try:
            await self._open()
        except asyncio.CancelledError:
            self._opening = None
            opening.set_result(False)
            raise
        except BaseException as error:
            self._opening = None
            opening.set_exception(error)
            raise
        self._is_open = True
        opening.set_result(True)

    async def _open(self) -> None:
        await self.store.open()
        try:
            self._check_durability()
            if self.outbox is not None:
                await self.outbox.open()
            await self.wakeup.open(None)
        except BaseException:
            await self._let_go()
            raise

    async def _let_go(self) -> None:
        if self.outbox is not None:
            await self.outbox.close()
        await self.store.close()

    def _check_durability(self) -> None:
        if not self.store.capabilities.survives(self._require.durability):
            has = self.store.capabilities.durability
            raise StoreMisconfigured(
                f"The application requires durability {self._require.durability!r}; "
                f"this store has {has!r}.",
                next_step="Use another store, or require less.",
            )

    @property
    def is_open(self) -> bool:
        return self._is_open

    def on_close(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Have something called before the store is let go."""
        self._before_close.append(callback)

    async def close(self) -> None:
        """Finish what is being written, and let the store go."""
        if self._opening is not None:
            for callback in self._before_close:
                await callback()
            await self._store_audit.close()
            self._opening, self._is_open = None, False
            for batcher in list(self._batchers.values()):
                await batcher.drained()
            await self.wakeup.close()
            await self._let_go()

    async def __aenter__(self) -> "Windlass":
        await self.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def _start_anew_after_a_fork(self) -> None:
        """Connections and threads do not survive a fork: leave them to the parent."""
        if os.getpid() == self._process:
            return
        if not isinstance(self.store_source, str):
            raise WindlassError(
                "A store object cannot be used after a fork.",
                next_step="Give Windlass a store URL, or make it after the fork.",
            )
        self._process = os.getpid()
        self._connect()

    # -- submitting -------------------------------------------------------------------------------

    async def submit_prepared(
        self, job_type: JobType[Any, R], new: NewJob, *, connection: Any = None
    ) -> Handle[R]:
        answer = await self.admit(job_type, new, connection=connection)
        is_on_its_way = connection is not None and self.outbox is not None
        return self._handle(job_type, new, answer, is_on_its_way=is_on_its_way)

    async def admit(
        self, job_type: Admissible, new: NewJob, *, connection: Any = None
    ) -> InsertResult:
        """Store a prepared job durably; raise JobTypeDisabled, QueueFull or StoreClosed."""
        await self._ready_to_submit()
        counted = await self._check_admission(job_type, new)
        if connection is not None:
            answer = await self._insert_in(connection, new)
        else:
            answer = await self._batcher().add(new)
        if counted is not None and not isinstance(answer, Applied):
            counted.take_back(1)
        if self.after_submit is not None:
            await self.after_submit()
        return answer

    async def submit_prepared_many(
        self, job_type: JobType[Any, R], jobs: list[NewJob]
    ) -> list[Handle[R]]:
        await self._ready_to_submit()
        counted = {
            queue: await self._admission.check(
                job_type.name, queue=queue, jobs=number, max_depth=job_type.max_depth
            )
            for queue, number in Counter(new.job.queue for new in jobs).items()
        }
        answers = await self._insert_in_batches(jobs)
        for new, answer in zip(jobs, answers, strict=True):
            if (one := counted[new.job.queue]) is not None and not isinstance(answer, Applied):
                one.take_back(1)
        handles = [
            self._handle(job_type, new, answer) for new, answer in zip(jobs, answers, strict=True)
        ]
        if self.after_submit is not None:
            await self.after_submit()
        return handles

    async def admit_many(
        self, jobs: Sequence[tuple[Admissible, NewJob]]
    ) -> list[InsertResult | WindlassError]:
        """Store many, each on its own: what is refused does not harm the others."""
        await self._ready_to_submit()
        refused: dict[int, WindlassError] = {}
        admitted: list[NewJob] = []
        counted: list[Counted | None] = []
        for index, (job_type, new) in enumerate(jobs):
            try:
                counted.append(await self._check_admission(job_type, new))
                admitted.append(new)
            except SubmitRefused as error:
                refused[index] = error
        stored = await self._insert_in_batches(admitted)
        for one, answer in zip(counted, stored, strict=True):
            if one is not None and not isinstance(answer, Applied):
                one.take_back(1)
        answers = iter(stored)
        if self.after_submit is not None:
            await self.after_submit()
        return [refused.get(index) or next(answers) for index in range(len(jobs))]

    async def insert_own(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Store jobs of Windlass's own, past the switches and caps of the users' jobs."""
        await self._ready_to_submit()
        return await self._insert_in_batches(list(jobs))

    async def _check_admission(self, job_type: Admissible, new: NewJob) -> Counted | None:
        """Raise what `check` raises, but not for a job that was accepted before."""
        try:
            return await self._admission.check(
                job_type.name, queue=new.job.queue, jobs=1, max_depth=job_type.max_depth
            )
        except SubmitRefused:
            (known,) = await self.store.get([new.job.job_id], tenant_id=new.job.tenant_id)
            if known is None and not any(await self.store.held(new.keys)):
                raise
            return None

    async def _insert_in_batches(self, jobs: list[NewJob]) -> list[InsertResult]:
        """Two batches at a time: while one is being committed, the next is being sent."""
        turn = asyncio.Semaphore(2)

        async def insert(batch: list[NewJob]) -> Sequence[InsertResult]:
            async with turn:
                return await self._insert(batch)

        batches = [jobs[start : start + _BATCH] for start in range(0, len(jobs), _BATCH)]
        answered = await asyncio.gather(*map(insert, batches))
        return [answer for answers in answered for answer in answers]

    async def _ready_to_submit(self) -> None:
        if not self.is_open:
            await self.open()

    def _batcher(self) -> Batcher[NewJob, InsertResult]:
        loop = asyncio.get_running_loop()
        if loop not in self._batchers:
            self._batchers[loop] = Batcher(self._insert)
        return self._batchers[loop]

    async def _insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        answers = await self.store.insert(jobs)
        tell(self.watching.observer.submitted, jobs, answers)
        self.wakeup.notify(job_id=jobs[0].job.job_id)
        return answers

    async def _insert_moved(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Jobs that leave the outbox, where they can stay while the store is closed."""
        await self.switches.refuse_if_closed()
        return await self._insert(jobs)

    async def _insert_in(self, connection: Any, new: NewJob) -> InsertResult:
        if self.outbox is not None:
            return await self.outbox.put(connection, new)
        (answer,) = await self.store.insert_in(connection, [new])
        tell(self.watching.observer.submitted, [new], [answer])
        return answer

    def _handle(
        self,
        job_type: JobType[Any, R],
        new: NewJob,
        answer: InsertResult,
        *,
        is_on_its_way: bool = False,
    ) -> Handle[R]:
        match answer:
            case Applied():
                job_id, duplicate = new.job.job_id, False
            case Duplicate():
                job_id, duplicate = answer.existing, True
            case Conflict(by=None):
                raise SubmitConflict.of_id()
            case Conflict():
                raise SubmitConflict.of_key()
        return Handle(
            self,
            job_id,
            new.job.tenant_id,
            subject_id=new.job.subject_id,
            duplicate=duplicate,
            codec=job_type.handler.result_codec,
            is_on_its_way=is_on_its_way,
        )

    def run_sync(self, make: Callable[[], Awaitable[A]]) -> A:
        """Run something of ours from code that is not async, on a loop in a thread of its own."""
        self._start_anew_after_a_fork()
        with self._lock:
            if self._sync is None:
                self._sync = _LoopThread()
        return self._sync.run(make)

    # -- over HTTP --------------------------------------------------------------------------------

    def api(
        self,
        *,
        authenticator: "Authenticator | None" = None,
        allow_anonymous: bool = False,
        authorizer: "Authorizer | None" = None,
        audit: AuditSink | None = None,
        settings: "ApiSettings | None" = None,
        responses: "Responses | None" = None,
        stream_tokens: "StreamTokens | None" = None,
    ) -> "Api":
        """Make the HTTP API over these jobs: an ASGI application, to be served or mounted.

        Without `stream_tokens` those of WINDLASS_KEY_PEPPER are given out, if it is set.
        """
        try:
            from windlass.api.application import Api  # only its users have the extra
            from windlass.auth.stream_tokens import StreamTokens
        except ModuleNotFoundError as error:
            raise WindlassError(
                f"The API needs the module {error.name}, which is not installed.",
                next_step="Run `pip install 'windlass[api]'`.",
            ) from error
        return Api(
            self,
            authenticator=authenticator,
            allow_anonymous=allow_anonymous,
            authorizer=authorizer,
            audit=audit,
            settings=settings,
            responses=responses,
            stream_tokens=stream_tokens or StreamTokens.from_environment(os.environ, self.clock),
            pages=self.watching.pages(with_metrics=settings is not None and settings.show_metrics),
        )

    def router(
        self,
        *,
        principal: Any = None,
        authorize: "Authorize | None" = None,
        **options: Any,
    ) -> "APIRouter":
        """Make the HTTP API as a router of FastAPI; the options are those of `api`.

        `principal=Depends(…)` tells who asks, in place of an authenticator; `authorize` is a
        function of (principal, action, target), in place of an authorizer.
        """
        from windlass.api.fastapi_router import fastapi_router  # only its users have FastAPI
        from windlass.api.function_authorizer import FunctionAuthorizer, ToldByDependency

        if principal is not None:
            options["authenticator"] = ToldByDependency()
        if authorize is not None:
            options["authorizer"] = FunctionAuthorizer(authorize)
        return fastapi_router(self.api(**options), principal=principal)

    # -- working ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def working(self, settings: WorkerSettings | None = None) -> AsyncIterator[Worker]:
        """Open everything a worker needs and make one; `await worker.run()` is the caller's."""
        await self.open()
        async with self.opened_lifespan() as state:
            worker = Worker(
                self.store,
                self.registry,
                settings or WorkerSettings(queues=self.default_queues()),
                clock=self.clock,
                wakeup=self.new_wakeup(),
                hooks=self.hooks,
                tracer=self.tracing,
                observer=self.watching.observer,
                chores=self._chores(),
                consumers=self.consumers,
                schedules=self.declared_schedules,
                max_depth_of=self._max_depth_of,
                state=state,
            )
            relaying = self.outbox.relaying() if self.outbox else nullcontext()
            with self.watching.of(worker):
                async with relaying:
                    yield worker

    def _chores(self) -> Sequence[Chore]:
        keep = self._audit_retention
        return () if keep is None else (AuditRetention(self.store, keep),)

    @asynccontextmanager
    async def running(self, settings: WorkerSettings | None = None) -> AsyncIterator[Worker]:
        """Run a worker in this process as long as the block lasts."""
        async with self.working(settings) as worker:
            task = asyncio.create_task(worker.run())
            try:
                yield worker
            finally:
                worker.stop()
                await task

    @asynccontextmanager
    async def bridging(self) -> AsyncIterator["Bridge"]:
        """Take job envelopes in from the broker of `bridge`, as long as the block lasts.

        Outcomes are published by workers, like all that consumes events.
        """
        if self.bridge is None:
            raise StoreMisconfigured(
                "The application has no bridge.",
                next_step="Name its broker: Windlass(bridge=…) or WINDLASS_BRIDGE.",
            )
        await self.open()
        async with self.bridge.run() as bridge:
            yield bridge

    @asynccontextmanager
    async def opened_lifespan(self) -> AsyncIterator[Any]:
        """Open what handlers share; what it yields is their `ctx.state`."""
        if self._lifespan is None:
            yield None
        else:
            async with self._lifespan(self) as state:
                yield state

    def default_queues(self, slots: int = 10) -> Mapping[str, int]:
        """Every queue that a declared job is in."""
        queues = {handler.queue for handler in self.registry.handlers} | {self._queue}
        return dict.fromkeys(sorted(queues), slots)

    def lifespan(
        self, *, worker: bool = False
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """For a web application: `FastAPI(lifespan=jobs.lifespan(worker=True))`."""

        @asynccontextmanager
        async def manage(web_app: Any) -> AsyncIterator[None]:
            async with self:
                if not worker:
                    yield
                    return
                async with self.running():
                    yield

        return manage

    # -- being watched ----------------------------------------------------------------------------

    def health_app(
        self,
        *,
        watch: "LoopWatch | None" = None,
        expects_worker: bool = False,
        requires_broker: bool = False,
    ) -> "Routes":
        """An ASGI application with `/healthz`, `/readyz` and `/metrics`, to be mounted anywhere.

        `watch` sees the loop that does the work, where another one serves this.
        """
        return self.watching.health_app(
            watch, expects_worker=expects_worker, requires_broker=requires_broker
        )


def _store_and_where_it_is_named(store: str | JobStore | None) -> tuple[str | JobStore, str]:
    if store is None or isinstance(store, str):
        return named_in(store or None, "store")
    return store, CODE


def _closing(app: "weakref.ref[Windlass]") -> Callable[[], None]:
    """After a fork: what the parent has open is not the child's. Asking for the process id with
    every submit would cost a system call each."""

    def close() -> None:
        found = app()
        if found is not None:
            found._is_open = False

    return close


class _LoopThread:
    """An event loop in a thread, for callers that have none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="windlass-sync", daemon=True
        )
        self._thread.start()

    def run(self, make: Callable[[], Awaitable[A]]) -> A:
        async def call() -> A:
            return await make()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()
