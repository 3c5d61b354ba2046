"""One run of a script: starts the processes, does the steps, heals everything, and judges."""

import asyncio
import logging
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import ExitStack, asynccontextmanager, redirect_stderr, suppress
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, assert_never
from unittest.mock import patch
from uuid import UUID

import msgspec
from starlette.types import ASGIApp

from gantline.contract.clock import SystemClock
from gantline.contract.errors import GantlineError, StoreClosed, StoreError
from gantline.contract.query import Cursor, JobFilter
from gantline.contract.recurrence import Every
from gantline.contract.retention import Retention
from gantline.contract.schedule import Schedule
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import REDRIVABLE, JobStatus
from gantline.contract.store import JobStore
from gantline.contract.webhook import DELIVERY_QUEUE, OUTCOMES, WebhookSpec
from gantline.manager.switches import Switches
from gantline.moving.closing import Closing, StoreNames, reopen
from gantline.proof.checker import check
from gantline.proof.history import MemoryHistory, recorded
from gantline.proof.rest import read_rest
from gantline.stores.memory import MemoryStore
from gantline.stores.sqlite.location import Location
from gantline.stores.sqlite.store import SqliteStore
from gantline.testing.simulation.application import (
    LISTENER,
    QUEUES,
    Journal,
    Plan,
    Receiver,
    SimulatedApplication,
    make_application,
)
from gantline.testing.simulation.network import LATEST_EFFECT_SECONDS, Network
from gantline.testing.simulation.outside import Outside, wrong_effects
from gantline.testing.simulation.script import (
    Act,
    Recur,
    Script,
    Submit,
    Switch,
    Trouble,
    Wait,
)
from gantline.testing.simulation.world import Process, World
from gantline.webhooks import http_sender
from gantline.worker.settings import WorkerSettings
from gantline.worker.worker import Worker

_ENDS_WITHIN_SECONDS: Final = 1800.0
"""After the last fault, all that is due must have ended."""
_CLIENTS_SECONDS: Final = 120.0
_STOPS_WITHIN_SECONDS: Final = 60.0
_LOOKED_AT: Final = 50
_FILE: Final = "jobs.db"
_ACTED_ON: Final = {
    "cancel": frozenset({JobStatus.QUEUED, JobStatus.RUNNING}),
    "redrive": REDRIVABLE,
    "delete": REDRIVABLE | {JobStatus.COMPLETED},
}

Wrap = Callable[[JobStore, Process], JobStore]
"""Put something between a process and its store, like a bug or a recorder."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a run."""

    seed: int
    violations: tuple[str, ...]
    digest: str
    virtual_seconds: float
    turns: int
    calls: Counter[str]
    idle_calls: int
    """Claims and reads that found nothing: what passes while nothing happens."""
    faults: Counter[str]
    jobs: int
    runs: int
    happened: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]
    """The record: what was done and what went wrong, with its time."""

    def without_notes(self) -> "Report":
        return msgspec.structs.replace(self, notes=(), happened=())


def simulate(script: Script, *, wrap: Wrap = lambda store, process: store) -> Report:
    """Run a script; the same script gives the same report."""
    logging.disable(logging.CRITICAL)
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory(prefix="gantline-simulation"))
            stack.enter_context(redirect_stderr(StringIO()))  # stacks of workers that give up
            # Coroutines of processes that crashed are never awaited.
            stack.enter_context(warnings.catch_warnings(action="ignore"))
            return _Simulation(script, Path(folder), wrap).run()
    finally:
        logging.disable(logging.NOTSET)


class _Simulation:
    def __init__(self, script: Script, folder: Path, wrap: Wrap) -> None:
        self._script = script
        self._folder = folder
        self._wrap = wrap
        self._world = world = World(script.seed)
        self._network = Network(world, script.chances, is_remote=script.store == "memory")
        if script.faults is not None:
            self._network.allowed = set(script.faults)
        self._journal = Journal(runs=[], heard=[], ends_heard=set(), delivered=[])
        self._outside = Outside(script, self._journal)
        self._history = MemoryHistory()
        self._memory: MemoryStore | None = None
        self._workers: dict[str, Worker] = {}
        self._expected: set[str] = set()
        """The workers that are to be there: what ends is started again."""
        self._submitted: list[tuple[UUID, str]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._violations: list[str] = []
        self._runs = 0
        world.on_end = self._start_again
        self._network.on_call = self._look_at

    def run(self) -> Report:
        world = self._world
        try:
            with patch.object(http_sender, "HttpSender", self._receiver):
                world.run(self._live)
        except Exception as error:
            self._violations.append(f"the run could not go on: {error!r}")
        self._violations += world.errors
        ended = [call for call in self._history.calls if call.is_answered]
        return Report(
            seed=self._script.seed,
            violations=tuple(self._violations),
            digest=world.digest.hexdigest(),
            virtual_seconds=world.now - 1000.0,
            turns=world.turns,
            calls=self._network.calls,
            idle_calls=sum(not call.answers or call.answers == (0,) for call in ended),
            faults=self._network.faults,
            jobs=len(self._submitted),
            runs=self._runs,
            happened=tuple(self._network.happened),
            notes=tuple(world.notes),
        )

    def _receiver(self, *arguments: object, **options: object) -> Receiver:
        return Receiver(self._world.current, self._network, self._journal)

    # -- processes --------------------------------------------------------------------------------

    def _store_of(self, process: Process, *, is_watched: bool = True) -> JobStore:
        """The store as a process opens it; one that is not watched has no faults."""
        store: JobStore
        if self._script.store == "memory":
            if self._memory is None:
                self._memory = MemoryStore(clock=SystemClock())
            store = self._memory
        else:
            location = Location(self._folder / _FILE, sync="normal", busy_seconds=0.0)
            store = SqliteStore(location, clock=SystemClock())
        if not is_watched:
            return store
        connected = self._network.connect(process, self._wrap(store, process))
        return recorded(connected, self._history, process=f"{process.name}/{process.number}")

    def _application(self, process: Process) -> SimulatedApplication:
        keep = self._script.retention
        retention = Retention()
        if keep is not None:
            retention = Retention.split(timedelta(seconds=keep), timedelta(seconds=2 * keep))
        return make_application(
            process,
            self._store_of(process),
            self._network,
            self._journal,
            crash=self._world.crash,
            retention=retention,
        )

    def _start_worker(self, name: str) -> None:
        script = self._script
        settings = WorkerSettings(
            queues=dict.fromkeys([*sorted(set(QUEUES.values())), DELIVERY_QUEUE], script.slots),
            lease=timedelta(seconds=script.lease),
            drain=timedelta(seconds=script.drain),
        )
        process = self._world.start(name)

        async def main() -> None:
            app = self._application(process)
            async with app.working(settings) as worker:
                self._workers[name] = worker
                await worker.run()

        process.run(main)

    def _look_at(self, process: Process) -> None:
        if worker := self._workers.get(process.name):
            self._outside.see(worker)

    def _start_again(self, process: Process) -> None:
        self._workers.pop(process.name, None)
        if process.name in self._expected:
            seconds = self._world.random.uniform(0.1, 5.0)
            self._world.outside.main.call_later(seconds, self._start_if_gone, process.name)

    def _start_if_gone(self, name: str) -> None:
        if name in self._expected and not any(one.name == name for one in self._world.processes):
            self._start_worker(name)

    def _process(self, worker: int) -> Process | None:
        name = f"worker-{worker % self._script.workers}"
        return next((one for one in self._world.processes if one.name == name), None)

    # -- the run ----------------------------------------------------------------------------------

    async def _live(self) -> None:
        truth = self._store_of(self._world.outside, is_watched=False)
        await truth.open()
        client = self._world.start("client")
        self._client = self._application(client)
        self._api = self._client.api(allow_anonymous=True)
        self._listens_after: int | None = None
        self._in_client(client, None)
        for number in range(self._script.workers):
            self._expected.add(f"worker-{number}")
            self._start_worker(f"worker-{number}")
        began = self._world.now
        for step in self._script.steps:
            await asyncio.sleep(max(0.0, began + step.at - self._world.now))
            self._world.note(f"step {type(step).__name__}")
            if isinstance(step, Trouble):
                self._make_trouble(step)
            else:
                self._in_client(client, step)
        await self._calm_down(truth)
        await self._end_all(truth)
        await self._stop_workers()
        await self._judge(truth)
        await truth.close()
        self._runs = len(self._journal.runs)

    def _in_client(
        self, client: Process, step: Submit | Act | Switch | Recur | Wait | None
    ) -> None:
        async def do() -> None:
            # What is refused or unknown is the client's to know: histories are judged, not it.
            with suppress(GantlineError, TimeoutError):
                await (self._listen() if step is None else self._do(step))

        def begin() -> None:
            task = client.main.create_task(do())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        client.main.call_soon(begin)

    async def _do(self, step: Submit | Act | Switch | Recur | Wait) -> None:
        jobs = self._client
        match step:
            case Submit():
                await self._submit(step)
            case Act():
                await self._act(step)
            case Switch():
                async with self._switched(step):
                    await asyncio.sleep(step.seconds)
            case Recur():
                schedule = Schedule(
                    name=step.name,
                    recurrence=Every(step.every),
                    job_type="plain",
                    payload=msgspec.Raw(msgspec.json.encode(Plan())),
                    queue=QUEUES["plain"],
                )
                await jobs.ready()
                await jobs.schedules.create(schedule, origin="api")
                await asyncio.sleep(step.seconds)
                await _insist(lambda: self._look_at_schedule(step.name))
                await _insist(lambda: jobs.schedules.delete("default", step.name, origin="api"))
            case Wait():
                if step.which < len(self._submitted):
                    job_id, tenant = self._submitted[step.which]
                    await jobs.handle(job_id, tenant=tenant).wait(timeout=step.seconds)
            case _:
                assert_never(step)

    async def _look_at_schedule(self, name: str) -> None:
        stored = await self._client.schedules.get("default", name)
        self._outside.note_schedule(stored.record, self._world.wall_clock())

    async def _act(self, step: Act) -> None:
        """Choose among the jobs with which that can be done now, as an operator does."""
        statuses = _ACTED_ON[step.what]
        some = JobFilter(tenant_id=None, job_types=frozenset(QUEUES), statuses=statuses)
        await self._client.ready()
        found = (await self._client.store.find(some, limit=_LOOKED_AT)).items
        first = step.first % max(1, len(found))
        for one in found[first : first + step.count]:
            job = one.job
            await _insist(partial(self._act_on, step.what, job.job_id, job.tenant_id))

    async def _act_on(self, what: str, job_id: UUID, tenant: str) -> None:
        manager = self._client.manager
        match what:
            case "delete":
                await manager.delete([job_id], tenant_id=tenant)
            case "cancel":
                await manager.cancel([job_id], tenant_id=tenant, actor="simulation")
            case _:
                await manager.redrive([job_id], tenant_id=tenant, actor="simulation")

    async def _listen(self) -> None:
        spec = WebhookSpec(
            url="https://receiver.example/hooks", retry_seconds=(5.0, 30.0, 120.0, 300.0)
        )
        assert self._client.webhooks is not None
        await self._client.ready()
        await self._client.webhooks.create(spec, tenant_id=LISTENER, actor="simulation")
        self._listens_after = len(self._submitted)

    async def _submit_over_http(self, step: Submit) -> None:
        """As a client does that has only the API: it knows an accepted job by its answer."""
        body = {"jobType": step.job_type, "payload": msgspec.to_builtins(step.plan)}
        if step.priority is not None:
            body["priority"] = step.priority
        if step.key:
            body["idempotencyKey"] = step.key
        status, answer = await post(self._api, "/api/jobs", body)
        self._world.note(f"client is answered {status}")
        if status == 202:
            self._submitted.append((UUID(answer["jobId"]), "default"))
        elif status >= 500 and status != 503:
            self._violations.append(f"the API answered {status}: {answer}")

    async def _submit(self, step: Submit) -> None:
        if step.over_http and step.count == 1:
            await self._submit_over_http(step)
            return
        job_type = self._client.find_type(step.job_type)
        assert job_type is not None
        options: dict[str, Any] = {"tenant": step.tenant}
        if step.priority is not None:
            options["priority"] = step.priority
        if step.delay:
            options["delay"] = step.delay
        if step.key:
            options["idempotency_key"] = step.key
        if step.count == 1:
            handles = [await job_type.submit(step.plan, **options)]
        else:
            handles = await job_type.submit_many([step.plan] * step.count, **options)
        self._submitted += [(handle.job_id, step.tenant) for handle in handles]

    @asynccontextmanager
    async def _switched(self, step: Switch) -> AsyncIterator[None]:
        await self._client.ready()
        switches, store = self._client.switches, self._client.store
        match step.what:
            case "pause queue":
                await switches.pause_queue(step.name)
                yield
                await _insist(lambda: switches.pause_queue(step.name, paused=False))
            case "pause type":
                await switches.pause_type(step.name)
                yield
                await _insist(lambda: switches.pause_type(step.name, paused=False))
            case "disable type":
                await switches.disable_type(step.name)
                yield
                await _insist(lambda: switches.disable_type(step.name, disabled=False))
            case "close store":
                names = StoreNames("here", "there")
                closing = Closing(names, actor="simulation", notify_switched=None)
                await closing.close(store)
                yield
                await _insist(lambda: reopen(store))
            case _:
                assert_never(step.what)

    def _make_trouble(self, step: Trouble) -> None:
        world, network = self._world, self._network
        until = world.now + step.seconds
        process = self._process(step.worker)
        network.faults[step.what] += 1
        self._outside.note_trouble(step, world.now, "" if process is None else process.name)
        match step.what:
            case "crash" if process is not None:
                world.crash(process)
            case "deploy" if process is not None:
                if worker := self._workers.get(process.name):
                    process.main.call_soon(worker.stop)
            case "freeze" if process is not None:
                process.frozen_until = until
            case "block" if process is not None:
                process.main.blocked_until = until
            case "cut off" if process is not None:
                network.cut_off_until[process.name] = until
            case "freeze store" if network.server is not None:
                network.server.frozen_until = until
            case "jump":
                world.jumped_by += timedelta(seconds=step.seconds)
            case _:
                pass

    # -- the end ----------------------------------------------------------------------------------

    async def _calm_down(self, truth: JobStore) -> None:
        """Nothing goes wrong from now on, and nothing is switched off."""
        await self._wait_for_clients(_CLIENTS_SECONDS)
        self._world.note("calm")
        self._network.is_calm = True
        for process in self._world.processes:
            process.frozen_until = process.main.blocked_until = 0.0
        await asyncio.sleep(LATEST_EFFECT_SECONDS)  # a pause may be under way that nobody waits for
        switches = Switches(truth)
        await _insist(lambda: reopen(truth))
        for queue in sorted(set(QUEUES.values())):
            await _insist(partial(switches.pause_queue, queue, paused=False))
        for job_type in QUEUES:
            await _insist(partial(switches.pause_type, job_type, paused=False))
            await _insist(partial(switches.disable_type, job_type, disabled=False))
        await self._wait_for_clients(_ENDS_WITHIN_SECONDS)
        if self._tasks:
            self._violations.append(f"{len(self._tasks)} calls of the client never end")

    async def _wait_for_clients(self, seconds: float) -> None:
        """What they try again may need that nothing goes wrong any more, or an open store."""
        until = self._world.now + seconds
        while self._tasks and self._world.now < until:  # noqa: ASYNC110  # virtual time is free
            await asyncio.sleep(1.0)

    async def _end_all(self, truth: JobStore) -> None:
        """All that was accepted ends."""
        until = self._world.now + _ENDS_WITHIN_SECONDS
        live: list[JobSnapshot] = []
        undelivered: list[str] = []
        while self._world.now < until:
            jobs = await _all_jobs(truth)
            live = [job for job in jobs if not job.status.is_terminal]
            if not live:
                undelivered = await self._undelivered(truth, jobs)
                if not undelivered:
                    return
            await asyncio.sleep(5.0)
        self._violations += undelivered
        for job in live[:5]:
            log = await truth.history(job.job.job_id, tenant_id=None)
            self._violations.append(
                f"{job.job.job_type} {job.job.job_id} is {job.status} for ever; run {job.run}; "
                f"log {[(row.event, row.reason) for row in log]}; "
                f"workers say {[one.trouble() for one in self._workers.values()]}"
            )

    async def _stop_workers(self) -> None:
        names = sorted(self._expected)
        self._expected.clear()
        until = self._world.now + _STOPS_WITHIN_SECONDS
        while self._world.now < until:
            left = [one for one in self._world.processes if one.name in names]
            if not left:
                return
            for process in left:  # one that is only starting can be asked a little later
                if worker := self._workers.get(process.name):
                    process.main.call_soon(worker.stop)
            await asyncio.sleep(1.0)
        self._violations.append(f"these do not stop: {[process.name for process in left]}")

    async def _judge(self, truth: JobStore) -> None:
        registry = self._client.registry
        policies = {name: registry.policy_for(name) for name in registry.job_types}
        rest = await read_rest(truth)
        judged = check(self._history.calls, rest=rest, policies=policies)
        self._violations += map(str, judged.violations)
        self._violations += self._outside.judge(self._history.calls, rest.jobs.values())
        if self._script.store == "sqlite":
            self._violations += wrong_effects(self._folder / _FILE, rest.jobs)

    async def _undelivered(self, truth: JobStore, jobs: Sequence[JobSnapshot]) -> list[str]:
        """Events that no consumer was given, and outcomes that no receiver was."""
        heard, delivered = {*self._journal.heard}, {*self._journal.delivered}
        after = self._submitted[self._listens_after :] if self._listens_after is not None else []
        listened_to = {job_id for job_id, tenant in after if tenant == LISTENER}
        missing: list[str] = []
        for job in jobs:
            if job.job.job_type not in QUEUES:
                continue
            name = str(job.job.job_id)
            for row in await truth.history(job.job.job_id, tenant_id=None):
                kind = f"job.{row.event}"
                if (name, row.version) not in heard:
                    missing.append(f"{name}: {kind} was never given to the consumer")
                is_due = kind in OUTCOMES and job.job.job_id in listened_to
                if is_due and (name, kind) not in delivered:
                    missing.append(f"{name}: {kind} was never delivered")
        return missing


async def post(api: ASGIApp, path: str, body: object) -> tuple[int, Any]:
    """Send a request to an application in this process; return the status and the document."""
    sent: list[MutableMapping[str, Any]] = []
    unread = [msgspec.json.encode(body)]

    async def receive() -> MutableMapping[str, Any]:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        hangs_up: asyncio.Future[MutableMapping[str, Any]]
        hangs_up = asyncio.get_running_loop().create_future()
        return await hangs_up

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"host", b"simulation")]
    scope: dict[str, Any] = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1"}
    scope |= {"method": "POST", "path": path, "raw_path": path.encode(), "root_path": ""}
    scope |= {"query_string": b"", "scheme": "http", "headers": headers}
    scope |= {"client": ("127.0.0.1", 1), "server": None}
    await api(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], msgspec.json.decode(content) if content else None


async def _insist(make: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await make()
            return
        except (StoreClosed, StoreError):
            await asyncio.sleep(1.0)


async def _all_jobs(store: JobStore) -> list[JobSnapshot]:
    found: list[JobSnapshot] = []
    after: Cursor | None = None
    while True:
        page = await store.find(JobFilter(tenant_id=None), limit=500, after=after)
        found += page.items
        if (after := page.next) is None:
            return found
