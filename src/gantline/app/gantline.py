"""Gantline: the object that users hold; the composition root."""

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from gantline.app.declare import Declarations, JobGroup
from gantline.app.finding_jobs import Finding
from gantline.app.handle import Handle, SyncHandle
from gantline.app.job_type import JobType
from gantline.app.opening import Opening
from gantline.app.scheduled import gathered
from gantline.app.settings import CODE, JobDefaults, Settings
from gantline.app.wakeup import broker_from_url, wakeup_for
from gantline.app.watching import Watching
from gantline.app.webhooks import webhook_settings, webhooks_of
from gantline.audit.job_entries import JobEntries
from gantline.audit.retention import AuditRetention
from gantline.audit.settings import AuditSettings
from gantline.audit.sinks import StoreAudit
from gantline.consumers.event_reader import DeclaredConsumer
from gantline.contract.audit import AuditSink
from gantline.contract.bounds import declares, held_as
from gantline.contract.capabilities import StorageSettings
from gantline.contract.clock import Clock, SystemClock
from gantline.contract.codec import codec_for
from gantline.contract.envelope import AnyEnvelope
from gantline.contract.errors import GantlineError, InvalidInput, StoreMisconfigured
from gantline.contract.flow import TypeFlow
from gantline.contract.job_event import EventConsumer
from gantline.contract.results import InsertResult
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.contract.wakeup import Hint, Wakeup
from gantline.flow.limits import Limits
from gantline.loop_thread import LoopThread
from gantline.manager.admission import DepthCaps
from gantline.manager.maintenance import Chore
from gantline.manager.manager import JobManager
from gantline.manager.switches import Switches
from gantline.schedules.schedule import Schedule
from gantline.schedules.schedules import Schedules
from gantline.stores import store_from_url
from gantline.telemetry.tracing import Tracing
from gantline.wakeups.job_waiter import JobWaiter
from gantline.wakeups.local import Hub
from gantline.wakeups.remote import RemoteWakeup
from gantline.wakeups.snapshot_cache import SnapshotCache
from gantline.worker.handler import Handler, HandlerRegistry
from gantline.worker.settings import DEFAULT_SLOTS, WorkerSettings
from gantline.worker.worker import Worker

if TYPE_CHECKING:
    from fastapi import APIRouter

    from gantline.api import ApiSettings, Responses
    from gantline.api.application import Api
    from gantline.api.function_authorizer import Authorize
    from gantline.app.bridging import Bridging
    from gantline.app.outbox import Outbox
    from gantline.auth.authenticator import Authenticator
    from gantline.auth.authorizer import Authorizer
    from gantline.auth.stream_tokens import StreamTokens
    from gantline.bridge.bridge import Bridge
    from gantline.telemetry.health_server import Routes
    from gantline.telemetry.loop_watch import LoopWatch
    from gantline.webhooks.settings import WebhookSettings

_log = logging.getLogger("gantline.worker")

TRACE_VARIABLE: Final = "GANTLINE_TRACE_RUNS"

A = TypeVar("A")
Lifespan = Callable[["Gantline"], AbstractAsyncContextManager[Any]]


class Gantline(Finding, Declarations):
    """An application's jobs: declare them, submit them, run them. Connects at first use.

    A store or a trigger that is named here is used, whatever the settings say; where none is, they
    say it: GANTLINE_STORE, gantline.toml, then sqlite:///gantline.db.
    """

    @declares("Gantline")
    def __init__(
        self,
        store: str | JobStore | None = None,
        *,
        include: Iterable[JobGroup] = (),
        trigger: str | None = None,
        outbox: str | None = None,
        bridge: str | None = None,
        lifespan: Lifespan | None = None,
        defaults: JobDefaults | None = None,
        worker: WorkerSettings | None = None,
        storage: StorageSettings | None = None,
        audit: AuditSettings | None = None,
        webhooks: "WebhookSettings | None" = None,
    ) -> None:
        """`trigger`, `outbox` and `bridge` are URLs. `lifespan` opens what handlers share.

        The groups of settings are `defaults` of jobs, of each `worker`, of the `storage`, of the
        `audit` trail and of `webhooks`.
        """
        super().__init__()
        self.clock: Clock = SystemClock()
        self.defaults = defaults = defaults or JobDefaults()
        self.default_tenant = defaults.tenant
        self.payload_limit = defaults.payload_limit
        self.worker = worker or WorkerSettings()
        self.registry = HandlerRegistry()
        self.storage = storage or StorageSettings()
        self._audit_settings = audit or AuditSettings()
        self._lifespan = lifespan
        self.hooks = tuple(defaults.hooks)
        self.after_submit: Callable[[], Awaitable[None]] | None = None
        """Called when a submit is done; for tests that run jobs at once."""
        settings = Settings({}, Path())  # of this folder
        self.store_source: str | JobStore
        if store is None or isinstance(store, str):
            self.store_source, self.store_named_by = settings.named(store or None, "store")
        else:
            self.store_source, self.store_named_by = held_as("store", store, JobStore), CODE
        self.trigger, self.trigger_named_by = settings.named(trigger, "trigger")
        """The URL of a broker that carries wake-ups beside the store's own; empty for none."""
        self.outbox_url, self.outbox_named_by = settings.named(outbox, "outbox")
        self._most_schedules = settings.most_schedules
        self._most_waiting = settings.whole("waiting_per_tenant", least=0, most=10**9)
        self._history_folder = settings["history"]
        self._read_cache_seconds = settings.number("read_cache_seconds", most=60)
        self.tracing = Tracing(defaults.trace_runs or os.environ.get(TRACE_VARIABLE) or "link")
        self.watching = Watching(self)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._before_close: list[Callable[[], Awaitable[None]]] = []
        self._connect()
        os.register_at_fork(after_in_child=_closing(weakref.ref(self)))
        for group in include:
            self.include(group)
        self.webhooks = webhooks_of(self, webhooks or webhook_settings(settings))
        """None where there is no key for their secrets: GANTLINE_WEBHOOK_KEY."""
        if self.webhooks is not None:
            self._take_in(self.webhooks.handler())
            self._listen(self.webhooks.consumer())
        if self._audit_settings.from_jobs:
            self._listen(JobEntries.consumer(lambda: self.audit))
        self.bridge = self._make_bridge(settings.named(bridge, "bridge").text)
        if self.bridge is not None:
            self._take_in(self.bridge.handler())
            self._listen(self.bridge.consumer())

    def _connect(self) -> None:
        source = self.store_source
        self.store: JobStore = (
            store_from_url(source, clock=self.clock) if isinstance(source, str) else source
        )
        if self._history_folder:
            from gantline.proof.history import recorded_in  # most applications have none

            self.store = recorded_in(Path(self._history_folder), self.store)
        self._entered = 0
        self._hub = Hub()
        self.broker = broker_from_url(self.trigger)
        """The application's way to the broker: `broker.is_connected` shows readiness."""
        self.wakeup = self._make_wakeup(self.broker)
        self.switches = Switches(self.store, changed=lambda: self.wakeup.notify(Hint.SWITCHED))
        self.limits = Limits(self.store, changed=lambda: self.wakeup.notify(Hint.SWITCHED))
        """How many jobs of a type may run at once, and start in a time, over all workers."""
        self._store_audit = StoreAudit(self.store)
        self.audit: AuditSink = self._audit_settings.sink or self._store_audit
        """Keeps what operators do, and who is refused."""
        self.manager = JobManager(
            self.store,
            policy_for=self.registry.policy_for,
            caps_of=self.caps_of,
            payload_limit=self.payload_limit,
            payload_check=self.defaults.payload_check,
            observer=self.watching.observer,
            switches=self.switches,
            stored=lambda job_id: self.wakeup.notify(job_id=job_id),
            changed=lambda job_ids: self.snapshots.forget(job_ids),
            gate_to_close=self.limits.gate_to_close,
        )
        self.snapshots = SnapshotCache(
            self.manager,
            seconds=self._read_cache_seconds,
            monotonic=lambda: self.clock.monotonic(),
            ask=lambda: self.wakeup.notify(Hint.WATCHED),
        )
        """How jobs are shown: from memory for a moment, where a setting says so."""
        self.waiter = JobWaiter(self.snapshots, self.new_wakeup, lambda: self.is_open)
        self.schedules = Schedules(
            self.store,
            self.manager,
            changed=lambda: self.wakeup.notify(Hint.SCHEDULED),
            most=self._most_schedules,
        )
        self.outbox = self._make_outbox()
        """Where jobs wait that were submitted in a transaction of another database."""
        self._opening = Opening(self._open)
        self._sync: LoopThread | None = None

    def audit_of(self, store: JobStore) -> AuditSink:
        """The sink of this application, for work on a store that it has not opened."""
        return self._audit_settings.sink or StoreAudit(store)

    def new_wakeup(self) -> Wakeup:
        """Make a way to hear hints, to be opened and closed by the caller."""
        return self._make_wakeup(broker_from_url(self.trigger))

    def _make_wakeup(self, broker: RemoteWakeup | None) -> Wakeup:
        return wakeup_for(self.store, self._hub, broker)

    def _make_outbox(self) -> "Outbox | None":
        if not self.outbox_url:
            return None
        from gantline.app.outbox import Outbox  # most applications have none

        return Outbox(self.outbox_url, clock=self.clock, submitter=self.manager.submitter)

    def _make_bridge(self, url: str) -> "Bridging | None":
        if not url:
            return None
        from gantline.app.bridging import Bridging  # most applications have none

        return Bridging(self, url)

    # -- declaring --------------------------------------------------------------------------------

    def include(self, group: JobGroup) -> None:
        """Take the jobs of a group in, and what listens to events there."""
        for job_type in held_as("include", group, JobGroup).job_types:
            # A copy, for another application may include the group too.
            job_type.handler = self._declare(copy(job_type)).handler
            job_type.bind(self)
        for declared in group.consumers:
            self._listen(declared)

    def add_consumer(self, consumer: EventConsumer, *, from_start: bool = False) -> None:
        """Have every worker of this application run a durable consumer; one at a time reads.

        A new one begins after the last event that there is, or with `from_start` before the first
        that is still kept.
        """
        self._listen(DeclaredConsumer(consumer=consumer, from_start=from_start))

    def _declare(self, job_type: JobType[..., Any]) -> JobType[..., Any]:
        super()._declare(job_type)
        job_type.handler = job_type.handler.with_defaults(**self.defaults.of_types)
        self._take_in(job_type.handler)
        job_type.bind(self)
        return job_type

    def _take_in(self, handler: Handler) -> None:
        """Run jobs of a type. Unless it is declared as well, nobody can submit them."""
        self.registry.add(handler)
        self.watching.know(handler.job_types)

    def find_type(self, name: str) -> JobType[..., Any] | None:
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
            check = self.defaults.payload_check
            if check and (reason := check(one.job_type, data)):
                raise InvalidInput(
                    f"The payload of the schedule {one.name!r} was refused: {reason}."
                )
        return found

    @property
    def _declared_flows(self) -> Sequence[TypeFlow]:
        return [flow for job_type in self.job_types for flow in job_type.flows or ()]

    def caps_of(self, job_type: str, tenant_id: str) -> DepthCaps:
        """How many jobs of a type and of a tenant may wait; of its own tenant any number."""
        declared = self.find_type(job_type)
        caps = DepthCaps() if declared is None else declared.caps
        is_own = tenant_id == self.default_tenant
        return caps if is_own else caps._replace(of_tenant=self._most_waiting)

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
        await self._opening.done()

    async def ready(self) -> None:
        """Open, unless that was done."""
        if not self._opening.is_done:
            await self.open()

    async def _open(self) -> None:
        await self.store.open()
        try:
            self._check_durability()
            if self.outbox is not None:
                await self.outbox.open()
            await self.wakeup.open(self.snapshots.on_hint if self.snapshots.is_on else None)
        except BaseException:
            await self._close_stores()
            raise

    async def _close_stores(self) -> None:
        if self.outbox is not None:
            await self.outbox.close()
        await self.store.close()

    def _check_durability(self) -> None:
        required = self.storage.durability
        if not self.store.capabilities.survives(required):
            has = self.store.capabilities.durability
            raise StoreMisconfigured(
                f"The application requires durability {required!r}; this store has {has!r}.",
                next_step="Use another store, or require less.",
            )

    @property
    def is_open(self) -> bool:
        return self._opening.is_done

    def on_close(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Have something called before the store is closed."""
        self._before_close.append(callback)

    async def close(self) -> None:
        """Finish what is being written, and close the store."""
        self._entered = 0
        async with self._opening.undone() as is_open:
            if not is_open:
                return
            for callback in self._before_close:
                await callback()
            await self.waiter.close()
            await self._store_audit.close()
            self._opening.is_done = False
            await self.manager.submitter.drained()
            await self.wakeup.close()
            await self._close_stores()

    async def __aenter__(self) -> "Gantline":
        """Open it, if nobody has; the last of those who have entered closes it."""
        await self.open()
        self._entered += 1
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._entered -= 1
        if self._entered <= 0:
            await self.close()

    def _start_anew_after_a_fork(self) -> None:
        """Connections and threads do not survive a fork: leave them to the parent."""
        with self._lock:
            if os.getpid() == self._process:
                return
            if not isinstance(self.store_source, str):
                raise GantlineError(
                    "A store object cannot be used after a fork.",
                    next_step="Give Gantline a store URL, or make it after the fork.",
                )
            self._connect()
            self._process = os.getpid()

    # -- submitting -------------------------------------------------------------------------------

    async def submit_prepared(self, new: NewJob, *, connection: Any = None) -> InsertResult:
        """Store a prepared job durably; raise JobTypeDisabled, QueueFull or StoreClosed."""
        await self.ready()
        put = None if self.outbox is None else self.outbox.put
        answer = await self.manager.submitter.submit(new, connection=connection, put=put)
        if self.after_submit is not None:
            await self.after_submit()
        return answer

    async def submit_envelope(
        self, envelope: AnyEnvelope, *, connection: Any = None
    ) -> Handle[Any]:
        """Submit a job by its envelope, as other systems write it; durable when this returns.

        A declared type checks the payload and completes the rest. What is not known is ignored, and
        named in the `warnings` of the handle. Raise InvalidInput where it is no envelope.
        """
        from gantline.api.envelopes import read_envelope  # few applications are given any
        from gantline.api.preparing import prepare_envelope

        said, warnings = read_envelope(envelope)
        new = prepare_envelope(self, said, tenant=self.default_tenant)
        answer = await self.submit_prepared(new, connection=connection)
        declared = self.find_type(said.job_type)
        codec = declared.handler.result_codec if declared else codec_for(Any)
        is_on_its_way = connection is not None and self.outbox is not None
        options = {"codec": codec, "is_on_its_way": is_on_its_way, "warnings": warnings}
        return Handle.of(self, new, answer, **options)

    def submit_envelope_sync(
        self, envelope: AnyEnvelope, *, connection: Any = None
    ) -> SyncHandle[Any]:
        """As `submit_envelope`, from code that is not async, in any thread, also after a fork."""
        return SyncHandle(
            self.run_sync(lambda: self.submit_envelope(envelope, connection=connection))
        )

    async def submit_all_prepared(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Store many; where one queue has no room, none of them."""
        await self.ready()
        answers = await self.manager.submitter.submit_all(jobs)
        if self.after_submit is not None:
            await self.after_submit()
        return answers

    async def submit_each_prepared(
        self, jobs: Sequence[NewJob]
    ) -> list[InsertResult | GantlineError]:
        """Store many, each on its own: what is refused does not harm the others."""
        await self.ready()
        answers = await self.manager.submitter.submit_each(jobs)
        if self.after_submit is not None:
            await self.after_submit()
        return answers

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Begin a transaction of your own where submits with `connection=` go.

        That is the database of the store or, where there is one, of the outbox. Yields the driver's
        connection: psycopg's AsyncConnection on PostgreSQL, sqlite3's, which is not awaited, on
        SQLite. Committed at the end of the block, and workers are notified that there may be work;
        rolled back by an error. Do not begin one inside another.
        """
        await self.ready()
        home = self.store if self.outbox is None else self.outbox.store
        async with home.transaction() as transaction:
            yield transaction.connection
        if self.outbox is None:
            self.wakeup.notify()
        else:
            self.outbox.wakeup.notify()

    def run_sync(self, make: Callable[[], Awaitable[A]]) -> A:
        """Run something of ours from code that is not async, on a loop in a thread of its own."""
        self._start_anew_after_a_fork()
        with self._lock:
            if self._sync is None:
                self._sync = LoopThread()
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

        Without `stream_tokens` those of GANTLINE_KEY_PEPPER are given out, if it is set.
        """
        try:
            from gantline.api.application import Api  # only its users have the extra
            from gantline.api.settings import ApiSettings
            from gantline.auth.stream_tokens import StreamTokens
        except ModuleNotFoundError as error:
            raise GantlineError(
                f"The API needs the module {error.name}, which is not installed.",
                next_step="Run `pip install 'gantline[api]'`.",
            ) from error
        settings = settings or ApiSettings()
        api = Api(
            self,
            authenticator=authenticator,
            allow_anonymous=allow_anonymous,
            authorizer=authorizer,
            audit=audit,
            settings=settings,
            responses=responses,
            stream_tokens=stream_tokens or StreamTokens.from_environment(os.environ, self.clock),
            pages=self.watching.pages(
                live_path=settings.live_path,
                ready_path=settings.ready_path,
                with_metrics=settings.show_metrics,
                api=lambda: api,
            ),
        )
        return api

    def router(
        self,
        *,
        principal: Any = None,
        authorize: "Authorize | None" = None,
        **options: Any,
    ) -> "APIRouter":
        """Make the HTTP API as a router of FastAPI; the options are those of `api`.

        `principal=Depends(…)` gives the principal, instead of an authenticator; `authorize` is a
        function of (principal, action, target), instead of an authorizer.
        """
        from gantline.api.fastapi_router import fastapi_router  # only its users have FastAPI
        from gantline.api.function_authorizer import FunctionAuthorizer, KnownByDependency

        if principal is not None:
            options["authenticator"] = KnownByDependency()
        if authorize is not None:
            options["authorizer"] = FunctionAuthorizer(authorize)
        return fastapi_router(self.api(**options), principal=principal)

    # -- working ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def working(self, settings: WorkerSettings | None = None) -> AsyncIterator[Worker]:
        """Open everything a worker needs and make one; `await worker.run()` is the caller's."""
        settings = settings or self.worker
        if not settings.queues:
            settings = msgspec.structs.replace(settings, queues=self.default_queues())
        if self.webhooks is not None:
            self.webhooks.serve(settings.queues)
        declared = self.default_queues()
        for queue in settings.queues.keys() - declared.keys():
            what = "no declared job is in the queue %r; those with jobs are: %s"
            _log.warning(what, queue, ", ".join(declared))
        await self.open()
        from gantline.auth.worker_key import WorkerKey  # who only submits needs none

        async with self.opened_lifespan() as state:
            worker = Worker(
                self.store,
                self.manager,
                self.registry,
                settings,
                clock=self.clock,
                wakeup=self.new_wakeup(),
                hooks=self.hooks,
                tracer=self.tracing,
                observer=self.watching.observer,
                chores=self._chores(),
                storage=self.storage,
                limits=self.limits,
                flows=self._declared_flows,
                consumers=self.consumers,
                schedules=self.declared_schedules,
                state=state,
                find_type=self.find_type,
                admit=WorkerKey(self.store, clock=self.clock).check,
            )
            relaying = self.outbox.relaying() if self.outbox else nullcontext()
            with self.watching.of(worker):
                async with relaying:
                    yield worker

    def _chores(self) -> Sequence[Chore]:
        keep = self._audit_settings.retention
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
                next_step="Name its broker: Gantline(bridge=…) or GANTLINE_BRIDGE.",
            )
        await self.open()
        async with self.bridge.run() as bridge:
            yield bridge

    def opened_lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Opens what handlers share; what it yields is their `ctx.state`."""
        return nullcontext() if self._lifespan is None else self._lifespan(self)

    def default_queues(self, slots: int = DEFAULT_SLOTS) -> Mapping[str, int]:
        """Every queue that a declared job may be in."""
        queues = {queue for handler in self.registry.handlers for queue in handler.all_queues}
        return dict.fromkeys(sorted(queues | {self.defaults.queue}), slots)

    def lifespan(
        self, *, worker: bool = False
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """For a web application: `FastAPI(lifespan=jobs.lifespan(worker=True))`."""

        @asynccontextmanager
        async def manage(web_app: Any) -> AsyncIterator[None]:
            async with self, self.running() if worker else nullcontext():
                yield

        return manage

    # -- being watched ----------------------------------------------------------------------------

    def health_app(
        self,
        *,
        watch: "LoopWatch | None" = None,
        expects_worker: bool = False,
        requires_broker: bool = False,
        live_path: str = "/healthz",
        ready_path: str = "/readyz",
    ) -> "Routes":
        """An ASGI application with `/healthz`, `/readyz` and `/metrics`, to be mounted anywhere.

        `watch` sees the loop that does the work, where another one serves this. With `live_path`
        and `ready_path` the first two are there as well.
        """
        return self.watching.health_app(
            watch=watch,
            expects_worker=expects_worker,
            requires_broker=requires_broker,
            live_path=live_path,
            ready_path=ready_path,
        )


def _closing(app: "weakref.ref[Gantline]") -> Callable[[], None]:
    """After a fork: what the parent has open is not the child's. Asking for the process id with
    every submit would cost a system call each."""

    def close() -> None:
        found = app()
        if found is not None:
            found._opening.is_done = False
            found._lock = threading.Lock()  # a thread that is not here may have held the old one

    return close
