"""What clients and operators do in a run: a process of its own, which is never troubled itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import cycle
from typing import Any, Final, assert_never
from uuid import UUID

import msgspec
from starlette.types import ASGIApp

from gantline.contract.errors import GantlineError, StoreClosed, StoreError
from gantline.contract.query import JobFilter
from gantline.contract.status import REDRIVABLE, JobStatus
from gantline.contract.webhook import WebhookSpec
from gantline.moving.closing import Closing, StoreNames, reopen
from gantline.schedules.recurrence import Every
from gantline.schedules.schedule import Schedule
from gantline.testing.simulation.application import (
    LISTENER,
    QUEUES,
    MakeApplication,
    Plan,
)
from gantline.testing.simulation.outside import Outside
from gantline.testing.simulation.script import (
    Act,
    Action,
    Recur,
    Stream,
    Submit,
    Switch,
    Wait,
)
from gantline.testing.simulation.world import World

_LOOKED_AT: Final = 50
_STREAM_PATIENCE_SECONDS: Final = 10.0
"""After so long a stream goes on without the end of its job."""
_ACTED_ON: Final = {
    "cancel": frozenset({JobStatus.QUEUED, JobStatus.RUNNING}),
    "stop": frozenset({JobStatus.RUNNING}),
    "redrive": REDRIVABLE,
    "delete": REDRIVABLE | {JobStatus.COMPLETED},
}

ClientStep = Submit | Stream | Act | Switch | Recur | Wait


class Clients:
    """Does steps, each in a task of its own."""

    def __init__(self, world: World, outside: Outside, make_application: MakeApplication) -> None:
        self._world = world
        self._outside = outside
        self._process = world.start("client")
        self.app = make_application(self._process)
        self._api = self.app.api(allow_anonymous=True)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.submitted: list[tuple[UUID, str]] = []
        """Jobs that were accepted, and their tenants."""
        self._deleted: set[UUID] = set()
        self._listens_after: int | None = None
        self.wrong_answers: list[str] = []

    def begin(self, step: ClientStep) -> None:
        self._in_task(lambda: self._do(step))

    def listen(self) -> None:
        """Have the outcomes of one tenant delivered by a webhook."""
        self._in_task(self._listen)

    async def wait(self, seconds: float) -> int:
        """Wait until all has come to its end; return how many calls have not.

        What they try again may need that nothing goes wrong any more, or an open store.
        """
        until = self._world.now + seconds
        while self._tasks and self._world.now < until:  # noqa: ASYNC110  # virtual time is free
            await asyncio.sleep(1.0)
        return len(self._tasks)

    @property
    def listened_to(self) -> set[UUID]:
        """Jobs that were submitted after the webhook was there, and that nobody has removed."""
        after = self.submitted[self._listens_after :] if self._listens_after is not None else []
        return {job_id for job_id, tenant in after if tenant == LISTENER} - self._deleted

    def _in_task(self, make: Callable[[], Awaitable[None]]) -> None:
        async def do() -> None:
            # What is refused or unknown is the client's to know: histories are judged, not it.
            with suppress(GantlineError, TimeoutError):
                await make()

        def begin() -> None:
            task = self._process.main.create_task(do())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._process.main.call_soon(begin)

    async def _do(self, step: ClientStep) -> None:
        match step:
            case Submit():
                await self._submit(step)
            case Stream():
                await self._stream(step)
            case Act():
                await self._act(step)
            case Switch():
                async with self._switched(step):
                    await asyncio.sleep(step.seconds)
            case Recur():
                await self._recur(step)
            case Wait():
                if step.which < len(self.submitted):
                    job_id, tenant = self.submitted[step.which]
                    await self.app.handle(job_id, tenant=tenant).wait(timeout=step.seconds)
            case _:
                assert_never(step)

    # -- submitting -------------------------------------------------------------------------------

    async def _submit(self, step: Submit) -> None:
        if step.over_http and step.count == 1:
            await self._submit_over_http(step)
            return
        job_type = self.app.find_type(step.job_type)
        assert job_type is not None
        options: dict[str, Any] = {"tenant": step.tenant}
        if step.priority is not None:
            options["priority"] = step.priority
        if step.delay:
            options["delay"] = step.delay
        if step.expires:
            options["expires_in"] = step.expires
        if step.key:
            options["idempotency_key"] = step.key
        if step.group:
            options["group"] = step.group
        if step.count == 1:
            handles = [await job_type.submit(step.plan, **options)]
        else:
            handles = await job_type.submit_many([step.plan] * step.count, **options)
        self.submitted += [(handle.job_id, step.tenant) for handle in handles]

    async def _stream(self, step: Stream) -> None:
        until = self._world.now + step.seconds
        job_type = self.app.find_type(step.job_type)
        assert job_type is not None
        for plan in cycle(step.plans):
            if self._world.now >= until:
                return
            try:
                handle = await job_type.submit(plan, tenant=step.tenant, group=step.group or None)
                self.submitted.append((handle.job_id, step.tenant))
                await handle.wait(timeout=_STREAM_PATIENCE_SECONDS)
            except (GantlineError, TimeoutError):
                await asyncio.sleep(1.0)

    async def _submit_over_http(self, step: Submit) -> None:
        """As a client does that has only the API: it knows an accepted job by its answer."""
        body = {"jobType": step.job_type, "payload": msgspec.to_builtins(step.plan)}
        if step.priority is not None:
            body["priority"] = step.priority
        if step.expires:
            at = self.app.clock.now() + timedelta(seconds=step.expires)
            body["expiresAt"] = at.isoformat()
        if step.key:
            body["idempotencyKey"] = step.key
        status, answer = await post(self._api, "/api/jobs", body)
        self._world.note(f"client is answered {status}")
        if status == 202:
            self.submitted.append((UUID(answer["jobId"]), "default"))
        elif status >= 500 and status != 503:
            self.wrong_answers.append(f"the API answered {status}: {answer}")

    # -- operating --------------------------------------------------------------------------------

    async def _act(self, step: Act) -> None:
        """Choose among the jobs with which that can be done now, as an operator does."""
        statuses = _ACTED_ON[step.what]
        some = JobFilter(tenant_id=None, job_types=frozenset(QUEUES), statuses=statuses)
        await self.app.ready()
        found = (await self.app.store.find(some, limit=_LOOKED_AT)).items
        first = step.first % max(1, len(found))
        for one in found[first : first + step.count]:
            job = one.job
            await insist(partial(self._act_on, step.what, job.job_id, job.tenant_id))

    async def _act_on(self, what: Action, job_id: UUID, tenant: str) -> None:
        manager = self.app.manager
        match what:
            case "delete":
                self._deleted.add(job_id)
                await manager.delete([job_id], tenant_id=tenant)
            case "cancel" | "stop":
                await manager.cancel([job_id], tenant_id=tenant, actor="simulation")
            case "redrive":
                await manager.redrive([job_id], tenant_id=tenant, actor="simulation")
            case _:
                assert_never(what)

    @asynccontextmanager
    async def _switched(self, step: Switch) -> AsyncIterator[None]:
        await self.app.ready()
        switches, store = self.app.switches, self.app.store
        match step.what:
            case "pause queue":
                await switches.pause_queue(step.name)
                yield
                await insist(lambda: switches.pause_queue(step.name, paused=False))
            case "pause type":
                await switches.pause_type(step.name)
                yield
                await insist(lambda: switches.pause_type(step.name, paused=False))
            case "disable type":
                await switches.disable_type(step.name)
                yield
                await insist(lambda: switches.disable_type(step.name, disabled=False))
            case "close store":
                names = StoreNames("here", "there")
                closing = Closing(names, actor="simulation", notify_switched=None)
                with self._outside.closed():
                    await closing.close(store)
                    yield
                    await insist(lambda: reopen(store))
            case _:
                assert_never(step.what)

    async def _recur(self, step: Recur) -> None:
        schedules = self.app.schedules
        schedule = Schedule(
            name=step.name,
            recurrence=Every(step.every),
            job_type="plain",
            payload=msgspec.Raw(msgspec.json.encode(Plan())),
            queue=QUEUES["plain"],
        )
        await self.app.ready()
        await schedules.create(schedule, origin="api")
        await asyncio.sleep(step.seconds)
        await insist(lambda: self._look_at_schedule(step.name))
        await insist(lambda: schedules.delete("default", step.name, origin="api"))

    async def _look_at_schedule(self, name: str) -> None:
        stored = await self.app.schedules.get("default", name)
        self._outside.note_schedule(stored.record)

    async def _listen(self) -> None:
        spec = WebhookSpec(
            url="https://receiver.example/hooks", retry_seconds=(5.0, 10.0, 20.0, 40.0)
        )
        assert self.app.webhooks is not None
        await self.app.ready()
        create = self.app.webhooks.create
        await insist(lambda: create(spec, tenant_id=LISTENER, actor="simulation"))
        self._listens_after = len(self.submitted)


async def insist(make: Callable[[], Awaitable[object]]) -> None:
    """Try again until the store takes it."""
    while True:
        try:
            await make()
            return
        except (StoreClosed, StoreError):
            await asyncio.sleep(1.0)


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
