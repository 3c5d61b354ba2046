"""Every way in, against every reason to refuse: each holds, with the same code everywhere.

Only code of the application and operators of the installation name a queue that the type does not
declare, and nobody one of our own.

What was accepted is not refused later: a follow-up and a job that leaves an outbox go in whatever
the cap says. Where nobody can be told, a message of the bridge is held and a schedule notes the
reason.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

import httpx2
import msgspec
import psycopg
import pytest
import uvicorn
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.routing import Mount

from gantline import Context, Gantline, JobDefaults, JobGroup, JobStatus
from gantline.bridge.intake import Intake
from gantline.bridge.message import Message, Rejected
from gantline.cli.main import main
from gantline.contract.errors import Code, GantlineError, InvalidInput, QueueFull
from gantline.contract.query import JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.manager.switches import Switches
from gantline.moving.closing import reopen
from gantline.schedules.scheduler import Scheduler
from gantline.stores.postgres.location import parse_url
from gantline.testing import FakeClock
from gantline.worker.settings import WorkerSettings
from tests.ear import PATIENCE_SECONDS
from tests.moving_stores import close
from tests.servers.postgres import PostgresServer, free_port

TYPE: Final = "ways-in"
PARENT: Final = "parent"
ACCEPTED: Final = "accepted"
QUICK: Final = WorkerSettings(
    queues={"default": 10}, drain=timedelta(0), maintain_every=None, poll=timedelta(seconds=0.05)
)


class Place:
    """An application on an empty store."""

    def __init__(self, url: str, *, outbox: str | None = None) -> None:
        self.url = url
        self.clock = FakeClock()
        self.jobs = Gantline(url, outbox=outbox)
        self.jobs.move_to(url, clock=self.clock)

        @self.jobs.job(TYPE)
        async def handler(value: int) -> None: ...

        @self.jobs.job(PARENT)
        async def parent(value: int, ctx: Context) -> None:
            ctx.follow_up(handler, value)

        self.type, self.parent = handler, parent

    async def found(self, job_type: str = TYPE) -> list[JobSnapshot]:
        job_filter = JobFilter(tenant_id=None, job_types=frozenset({job_type}))
        return list((await self.jobs.store.find(job_filter, limit=10)).items)


# -- the ways -------------------------------------------------------------------------------------

Reason = Callable[[Place], Awaitable[None]]


class Way(Protocol):
    """Submit one job, to the queue of its type or to another one; return its code or ACCEPTED."""

    __name__: str

    async def __call__(self, place: Place, *, queue: str | None = None) -> str: ...


async def by_python(place: Place, *, queue: str | None = None) -> str:
    await place.type.submit(1, queue=queue)
    return ACCEPTED


async def by_many(place: Place, *, queue: str | None = None) -> str:
    await place.type.submit_many([1], queue=queue)
    return ACCEPTED


async def by_envelope(place: Place, *, queue: str | None = None) -> str:
    await place.jobs.submit_envelope({"jobType": TYPE, "payload": 1, "queue": queue})
    return ACCEPTED


async def by_sync(place: Place, *, queue: str | None = None) -> str:
    await asyncio.to_thread(place.type.submit_sync, 1, queue=queue)
    return ACCEPTED


async def by_transaction(place: Place, *, queue: str | None = None) -> str:
    async with place.jobs.transaction() as connection:
        await place.type.submit(1, connection=connection, queue=queue)
    return ACCEPTED


async def by_http(place: Place, *, queue: str | None = None) -> str:
    return await _posted(place, "/api/jobs", {"jobType": TYPE, "payload": 1, "queue": queue})


async def by_batch(place: Place, *, queue: str | None = None) -> str:
    async with _asked(place) as client:
        body = {"jobs": [{"jobType": TYPE, "payload": 1, "queue": queue}]}
        (item,) = (await client.post("/api/jobs/batch", json=body)).json()["items"]
    return str(item["problem"]["errorCode"]) if item.get("problem") else ACCEPTED


async def by_endpoint(place: Place, *, queue: str | None = None) -> str:
    """It leaves no choice of a queue."""
    return await _posted(place, "/orders", 1)


async def by_command(place: Place, *, queue: str | None = None) -> str:
    return await _command(place, queue, "--store", place.url)


async def by_command_to_a_server(place: Place, *, queue: str | None = None) -> str:
    port = free_port()
    config = uvicorn.Config(_served(place), port=port, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not server.started:  # noqa: ASYNC110  # it has no signal of its own
                await asyncio.sleep(0.01)
        return await _command(place, queue, "--url", f"http://127.0.0.1:{port}")
    finally:
        server.should_exit = True
        await serving


def _served(place: Place) -> Starlette:
    api = place.jobs.api(allow_anonymous=True)
    return Starlette(routes=[api.enqueue("/orders", place.type), Mount("/", api)])


@asynccontextmanager
async def _asked(place: Place) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=_served(place))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def _posted(place: Place, path: str, body: object) -> str:
    async with _asked(place) as client:
        answer = await client.post(path, json=body)
    return ACCEPTED if answer.status_code == 202 else str(answer.json()["errorCode"])


async def _command(place: Place, queue: str | None, *where: str) -> str:
    words = [*where, "job", "submit", TYPE, "1", *(["--queue", queue] if queue else [])]
    done = await asyncio.to_thread(CliRunner().invoke, main, words, standalone_mode=True)
    return ACCEPTED if done.exit_code == 0 else _code_in(done.stderr)


def _code_in(text: str) -> str:
    """People read a sentence, not a code."""
    said = {
        "is switched off": Code.JOB_TYPE_DISABLED,
        "may wait in the queue": Code.QUEUE_FULL,
        "is closed": Code.STORE_CLOSED,
        "jobs:route": Code.FORBIDDEN,
        "is one of Gantline's own": Code.VALIDATION_ERROR,
    }
    return next((code for words, code in said.items() if words in text), text)


WAYS: Final = (
    *(by_python, by_many, by_envelope, by_sync, by_transaction),
    *(by_http, by_batch, by_endpoint, by_command, by_command_to_a_server),
)


# -- the reasons ----------------------------------------------------------------------------------


async def disabled(place: Place) -> None:
    await place.jobs.switches.disable_type(TYPE)


async def full(place: Place) -> None:
    await place.jobs.switches.cap_queue("default", 0)


async def full_for_a_tenant(place: Place) -> None:
    await place.jobs.switches.cap_queue("default", None, per_tenant=0)


async def closed(place: Place) -> None:
    await close(place.jobs.store)
    place.jobs.switches.invalidate()


async def nothing(place: Place) -> None: ...


REASONS: Final[dict[Reason, str]] = {
    disabled: Code.JOB_TYPE_DISABLED,
    full: Code.QUEUE_FULL,
    full_for_a_tenant: Code.QUEUE_FULL,
    closed: Code.STORE_CLOSED,
    nothing: ACCEPTED,
}
each_reason = pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.__name__)


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Place]:
    async with place.jobs:
        yield place


async def answer_of(way: Way, place: Place, *, queue: str | None = None) -> str:
    try:
        return await way(place, queue=queue)
    except GantlineError as error:
        return error.code


# -- the walk -------------------------------------------------------------------------------------


@each_reason
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_who_submits_is_refused_with_the_same_code(
    way: Way, reason: Reason, tmp_path: Path
) -> None:
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db")) as place:
        await reason(place)
        expected = REASONS[reason]
        assert await answer_of(way, place) == expected
        assert len(await place.found()) == (expected == ACCEPTED)


@each_reason
async def test_an_outbox_takes_nothing_that_the_store_would_refuse(
    reason: Reason, tmp_path: Path
) -> None:
    outbox = f"sqlite:///{tmp_path}/outbox.db"
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db", outbox=outbox)) as place:
        await reason(place)
        assert await answer_of(by_transaction, place) == REASONS[reason]


@each_reason
async def test_sql_refuses_with_the_same_code(reason: Reason, postgres: PostgresServer) -> None:
    url = postgres.url(schema=f"w{uuid4().hex}")
    location = parse_url(url)

    async def by_sql(place: Place) -> str:
        async with await psycopg.AsyncConnection.connect(location.conninfo) as connection:
            submit = location.sql("SELECT gantline.submit(%s)")
            body = msgspec.json.encode({"jobType": TYPE, "payload": 1, "idempotencyKey": "k"})
            try:
                await connection.execute(submit, (body.decode(),))
            except psycopg.errors.ObjectNotInPrerequisiteState as error:
                return str(error).partition(":")[0]
        return ACCEPTED

    async with opened(Place(url)) as place:
        await reason(place)
        assert await by_sql(place) == REASONS[reason]
        assert len(await place.found()) == (REASONS[reason] == ACCEPTED)


async def test_sql_words_a_cap_as_every_other_way_in_does(postgres: PostgresServer) -> None:
    url = postgres.url(schema=f"w{uuid4().hex}")
    location = parse_url(url)
    body = msgspec.json.encode({"jobType": TYPE, "payload": 1}).decode()
    async with opened(Place(url)) as place:
        await place.type.submit(1)
        for cap, per_tenant in ((0, None), (1, None), (None, 0), (None, 1)):
            await place.jobs.switches.cap_queue("default", cap, per_tenant=per_tenant)
            with pytest.raises(QueueFull) as refused:
                await place.type.submit(1)
            async with await psycopg.AsyncConnection.connect(location.conninfo) as connection:
                with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as by_sql:
                    await connection.execute(location.sql("SELECT gantline.submit(%s)"), (body,))
            assert by_sql.value.diag.message_primary == f"QUEUE_FULL: {refused.value.cause}"


@pytest.mark.parametrize("named", [{"idempotencyKey": "k"}, {"jobId": str(UUID(int=9))}], ids=str)
async def test_what_was_accepted_before_is_no_refusal_in_sql(
    postgres: PostgresServer, named: dict[str, str]
) -> None:
    url = postgres.url(schema=f"w{uuid4().hex}")
    location = parse_url(url)
    body = msgspec.json.encode({"jobType": TYPE, "payload": 1} | named).decode()
    async with opened(Place(url)) as place:
        outcomes = []
        for reason in (nothing, disabled, full, full_for_a_tenant, closed):
            await reason(place)
            async with await psycopg.AsyncConnection.connect(location.conninfo) as connection:
                submit = location.sql("SELECT outcome FROM gantline.submit(%s)")
                outcomes += await (await connection.execute(submit, (body,))).fetchall()
        assert outcomes == [("accepted",), *[("duplicate",)] * 4]


# -- a queue that the type does not declare -------------------------------------------------------

FROM_OUTSIDE: Final = (by_http, by_batch, by_command_to_a_server)
CHOOSING: Final = tuple(way for way in WAYS if way is not by_endpoint)
each_choosing = pytest.mark.parametrize("way", CHOOSING, ids=lambda way: way.__name__)


@each_choosing
async def test_only_code_and_operators_of_the_installation_name_another_queue(
    way: Way, tmp_path: Path
) -> None:
    """Who asks a server here is an operator of his tenant."""
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db")) as place:
        expected = Code.FORBIDDEN if way in FROM_OUTSIDE else ACCEPTED
        assert await answer_of(way, place, queue="elsewhere") == expected
        assert len(await place.found()) == (expected == ACCEPTED)


@pytest.mark.parametrize("queue", ["webhooks", "gantline.outbox"])
@each_choosing
async def test_nobody_names_a_queue_of_our_own(way: Way, queue: str, tmp_path: Path) -> None:
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db")) as place:
        assert await answer_of(way, place, queue=queue) == Code.VALIDATION_ERROR
        assert not await place.found()


@pytest.mark.parametrize("queue", ["webhooks", "gantline.outbox"])
async def test_an_outbox_takes_nothing_for_a_queue_of_our_own(queue: str, tmp_path: Path) -> None:
    outbox = f"sqlite:///{tmp_path}/outbox.db"
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db", outbox=outbox)) as place:
        assert await answer_of(by_transaction, place, queue=queue) == Code.VALIDATION_ERROR


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("queue", "webhooks", "queue of job 1 is one of Gantline's own"),
        ("queue", "gantline.outbox", "queue of job 1 is one of Gantline's own"),
        ("scheduledAt", "9999-12-31T00:00:00Z", "scheduledAt of job 1 is more than 3650 days"),
        ("delaySeconds", 4e8, "delaySeconds of job 1 is more than 3650 days ahead"),
    ],
)
async def test_sql_names_no_queue_of_our_own_and_no_far_future(
    field: str, value: object, said: str, postgres: PostgresServer
) -> None:
    url = postgres.url(schema=f"w{uuid4().hex}")
    location = parse_url(url)
    body = msgspec.json.encode({"jobType": TYPE, "payload": 1, field: value}).decode()
    async with opened(Place(url)) as place:
        async with await psycopg.AsyncConnection.connect(location.conninfo) as connection:
            with pytest.raises(psycopg.errors.InvalidParameterValue, match=said):
                await connection.execute(location.sql("SELECT gantline.submit(%s)"), (body,))
        assert not await place.found()


async def test_sql_counts_as_waiting_what_is_due_and_the_tenants_own(
    postgres: PostgresServer,
) -> None:
    url = postgres.url(schema=f"w{uuid4().hex}")
    location = parse_url(url)

    async def is_taken(**fields: object) -> bool:
        body = msgspec.json.encode({"jobType": TYPE, "payload": 1, **fields}).decode()
        async with await psycopg.AsyncConnection.connect(location.conninfo) as connection:
            try:
                await connection.execute(location.sql("SELECT gantline.submit(%s)"), (body,))
            except psycopg.errors.ObjectNotInPrerequisiteState:
                return False
        return True

    async with opened(Place(url)) as place:
        await place.jobs.switches.cap_queue("default", 3, per_tenant=2)
        for _ in range(4):
            assert await is_taken(delaySeconds=3600)
        assert [await is_taken() for _ in range(3)] == [True, True, False]
        assert [await is_taken(tenantId="other") for _ in range(2)] == [True, False]
        assert await is_taken(queue="another")


@pytest.mark.parametrize("field", ["queue", "queues"])
def test_no_type_is_declared_for_a_queue_of_our_own(field: str) -> None:
    jobs = Gantline("memory://")
    for name in ("webhooks", "gantline.x"):
        options: dict[str, Any] = {field: name if field == "queue" else ["a", name]}
        with pytest.raises(InvalidInput, match=f"'{name}' is one of Gantline's own. Name another"):

            @jobs.job("declared", **options)
            async def declared() -> None: ...

    with pytest.raises(InvalidInput, match="is one of Gantline's own"):
        Gantline("memory://", defaults=JobDefaults(queue="webhooks"))
    with pytest.raises(InvalidInput, match="is one of Gantline's own"):

        @JobGroup(queue="webhooks").job("grouped")
        async def grouped() -> None: ...


async def test_no_schedule_and_no_follow_up_goes_to_a_queue_of_our_own(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/gantline.db")
    with pytest.raises(InvalidInput, match="is one of Gantline's own"):
        place.type.every(timedelta(minutes=1), payload=1, queue="webhooks")

    @place.jobs.job("stray")
    async def stray(value: int, ctx: Context) -> None:
        ctx.follow_up(place.type, value, queue="webhooks")

    async with opened(place):
        handle = await stray.submit(1)
        async with place.jobs.running(QUICK):
            ended = await handle.wait(PATIENCE_SECONDS)
        assert (ended.status, await place.found()) == (JobStatus.FAILED, [])


async def test_the_bridge_puts_nothing_into_a_queue_of_our_own(tmp_path: Path) -> None:
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db")) as place:
        intake = Intake(place.jobs, tenant="default")
        body = msgspec.json.encode({"jobType": TYPE, "payload": 1, "queue": "webhooks"})
        with suppress(Rejected):
            await intake.take(Message(body=body, message_id="m"))
        assert {lane.queue for lane in await place.jobs.store.counts(tenant_id=None)} <= {"default"}


@pytest.mark.parametrize("created_at", [None, "9999-12-30T00:00:00Z"])
async def test_the_bridge_takes_nothing_for_a_far_future(
    created_at: str | None, tmp_path: Path
) -> None:
    """Not even by a createdAt that is as far."""
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db")) as place:
        intake = Intake(place.jobs, tenant="default")
        times = {"scheduledAt": "9999-12-31T00:00:00Z", "createdAt": created_at}
        body = msgspec.json.encode({"jobType": TYPE, "payload": 1, **times})
        with pytest.raises(Rejected):
            await intake.take(Message(body=body, message_id="m"))
        assert not await place.found()


async def test_the_declared_queues_of_a_type_are_served_by_every_worker(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/gantline.db")

    @place.jobs.job("wide", queues=("bulk",))
    async def wide(value: int) -> None: ...

    async with opened(place):
        handle = await wide.submit(1, queue="bulk")
        async with place.jobs.running(msgspec.structs.replace(QUICK, queues={})):
            assert (await handle.wait(PATIENCE_SECONDS)).status is JobStatus.COMPLETED


@pytest.mark.parametrize("far", [timedelta(days=3651), timedelta(days=2_000_000)])
async def test_code_names_no_far_future(far: timedelta, tmp_path: Path) -> None:
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db")) as place:
        now = place.clock.now()
        with pytest.raises(InvalidInput, match="#/scheduledAt: is more than 3650 days after"):
            await place.type.submit(1, at=now + far)
        await place.type.submit(1, at=now + timedelta(days=3650))


# -- where nobody can be told ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", [disabled, full, full_for_a_tenant, closed], ids=lambda reason: reason.__name__
)
async def test_the_bridge_holds_its_message_until_the_job_is_taken(
    reason: Reason, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db")) as place:
        await reason(place)
        intake = Intake(place.jobs, tenant="default")
        body = msgspec.json.encode({"jobType": TYPE, "payload": 1})
        taking = asyncio.create_task(intake.take(Message(body=body, message_id="m")))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "wait with the broker" not in caplog.text:  # noqa: ASYNC110  # a log has no signal
                await asyncio.sleep(0.01)
        assert not taking.done()
        assert not await place.found()
        await _allow(place)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await taking
        assert len(await place.found()) == 1


async def _allow(place: Place) -> None:
    switches = Switches(place.jobs.store)
    await switches.disable_type(TYPE, disabled=False)
    await switches.cap_queue("default", None, per_tenant=None)
    await switches.refresh(max_age_seconds=0)
    if switches.closed is not None:
        await reopen(place.jobs.store)
    place.jobs.switches.invalidate()


@pytest.mark.parametrize(
    ("reason", "noted"),
    [
        (disabled, "The job type 'ways-in' is switched off."),
        (full, "0 jobs may wait in the queue 'default', and no more."),
        (full_for_a_tenant, "0 jobs of a tenant may wait in the queue 'default', and no more."),
        (closed, None),
    ],
    ids=["disabled", "full", "full for a tenant", "closed"],
)
async def test_a_schedule_notes_what_was_refused_and_fires_where_its_store_goes(
    reason: Reason, noted: str | None, tmp_path: Path
) -> None:
    place = Place(f"sqlite:///{tmp_path}/gantline.db")
    place.type.every(timedelta(minutes=1), payload=1, name="minutely")
    async with opened(place):
        for schedule in place.jobs.declared_schedules:
            await place.jobs.schedules.create(schedule, origin="code")
        await reason(place)
        place.clock.advance(timedelta(minutes=1))
        await Scheduler(place.jobs.store, place.jobs.manager, "leader").run_once()
        fires = (await place.jobs.schedules.get("default", "minutely")).record.fires
        assert [fire.reason for fire in fires] == ([] if noted is None else [noted])
        assert not await place.found()


@pytest.mark.parametrize(
    ("reason", "ends"),
    [
        (disabled, JobStatus.FAILED),
        (full, JobStatus.COMPLETED),
        (full_for_a_tenant, JobStatus.COMPLETED),
    ],
    ids=["disabled", "full", "full for a tenant"],
)
async def test_a_follow_up_is_stored_and_fails_where_its_type_is_switched_off(
    reason: Reason, ends: JobStatus, tmp_path: Path
) -> None:
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db")) as place:
        handle = await place.parent.submit(1)
        await reason(place)
        async with place.jobs.running(QUICK):
            assert (await handle.wait(PATIENCE_SECONDS)).status is JobStatus.COMPLETED
            (follow_up,) = await place.found()
            await _ended(place)
        (follow_up,) = await place.found()
        assert follow_up.status is ends


async def test_what_waits_in_an_outbox_is_moved_though_the_queue_is_full(tmp_path: Path) -> None:
    outbox = f"sqlite:///{tmp_path}/outbox.db"
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db", outbox=outbox)) as place:
        assert await answer_of(by_transaction, place) == ACCEPTED
        await full(place)
        assert place.jobs.outbox is not None
        assert await place.jobs.outbox.relay().run_once() == 1
        assert len(await place.found()) == 1


async def test_what_waits_in_an_outbox_stays_there_while_the_store_is_closed(
    tmp_path: Path,
) -> None:
    outbox = f"sqlite:///{tmp_path}/outbox.db"
    async with opened(Place(f"sqlite:///{tmp_path}/gantline.db", outbox=outbox)) as place:
        assert await answer_of(by_transaction, place) == ACCEPTED
        await closed(place)
        assert place.jobs.outbox is not None
        with pytest.raises(GantlineError) as refused:
            await place.jobs.outbox.relay().run_once()
        assert refused.value.code == Code.STORE_CLOSED
        await _allow(place)
        assert await place.jobs.outbox.relay().run_once() == 1
        assert len(await place.found()) == 1


async def _ended(place: Place) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not all(job.status.is_terminal for job in await place.found()):  # noqa: ASYNC110  # it has no handle
            await asyncio.sleep(0.01)
