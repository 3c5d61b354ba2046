"""The envelope of seed 001, with members that nobody knows, through every door: the same job."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import httpx2
import msgspec
import psycopg
import pytest
import uvicorn
from click.testing import CliRunner, Result

from gantline import Gantline, Handle, InvalidInput, JobStatus, SyncHandle
from gantline.bridge.intake import Intake
from gantline.bridge.message import Message, Rejected
from gantline.cli.main import main
from gantline.contract.envelope import MEMBERS, ignored
from gantline.contract.errors import Code, GantlineError, InvalidEnvelope, InvalidFormat
from gantline.contract.job import Job, read_job
from gantline.contract.query import JobFilter
from gantline.stores.postgres.location import parse_url
from gantline.testing import FakeClock
from tests.contract.test_job import EXAMPLE
from tests.ear import PATIENCE_SECONDS
from tests.servers.postgres import free_port

STRANGE: Final = {"partitionKey": "p-1", "$type": "JobContract, Spaarke", "\x1b[31m": {"a": [1]}}
SENT: Final = json.dumps(json.loads(EXAMPLE) | STRANGE).encode()
TYPE: Final = "ai-indexing"
BOTH_TIMES: Final = {"delaySeconds": 1, "scheduledAt": "2026-01-01T00:00:00Z"}


class Said(NamedTuple):
    """What a door answered: whether it was a duplicate, and all that it told."""

    duplicate: bool
    text: str


Door = Callable[[Gantline, str, bytes], Awaitable[Said]]


def shop(url: str) -> Gantline:
    jobs = Gantline(url)

    @jobs.job(TYPE)
    async def index(payload: dict[str, Any]) -> dict[str, str]:
        return {"did": payload["action"]}

    return jobs


# -- the doors ------------------------------------------------------------------------------------


def of_handle(handle: Handle[Any] | SyncHandle[Any]) -> Said:
    return Said(handle.duplicate, str([tuple(warning) for warning in handle.warnings]))


async def by_bytes(jobs: Gantline, url: str, sent: bytes) -> Said:
    return of_handle(await jobs.submit_envelope(sent))


async def by_text(jobs: Gantline, url: str, sent: bytes) -> Said:
    return of_handle(await jobs.submit_envelope(sent.decode()))


async def by_dict(jobs: Gantline, url: str, sent: bytes) -> Said:
    return of_handle(await jobs.submit_envelope(json.loads(sent)))


async def by_sync(jobs: Gantline, url: str, sent: bytes) -> Said:
    return of_handle(await asyncio.to_thread(jobs.submit_envelope_sync, sent))


async def by_transaction(jobs: Gantline, url: str, sent: bytes) -> Said:
    async with jobs.transaction() as connection:
        return of_handle(await jobs.submit_envelope(sent, connection=connection))


async def by_http(jobs: Gantline, url: str, sent: bytes) -> Said:
    return await _posted(jobs, "/api/jobs", sent)


async def by_batch(jobs: Gantline, url: str, sent: bytes) -> Said:
    return await _posted(jobs, "/api/jobs/batch", b'{"jobs": [%b]}' % sent)


async def _posted(jobs: Gantline, path: str, body: bytes) -> Said:
    transport = httpx2.ASGITransport(app=jobs.api(allow_anonymous=True))
    headers = {"content-type": "application/json"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.post(path, content=body, headers=headers)
    assert answer.status_code == 202, answer.text
    document = answer.json()
    job = document["items"][0]["job"] if "items" in document else document
    assert job is not None, answer.text
    return Said(job["duplicate"], answer.text)


async def by_command(jobs: Gantline, url: str, sent: bytes) -> Said:
    return of_command(await command(sent, "--store", url))


async def by_command_to_a_server(jobs: Gantline, url: str, sent: bytes) -> Said:
    port = free_port()
    app = jobs.api(allow_anonymous=True)
    config = uvicorn.Config(app, port=port, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not server.started:  # noqa: ASYNC110  # it has no signal of its own
                await asyncio.sleep(0.01)
        return of_command(await command(sent, "--url", f"http://127.0.0.1:{port}"))
    finally:
        server.should_exit = True
        await serving


async def command(sent: bytes, *where: str) -> Result:
    words = [*where, "-o", "json", "job", "submit", "--envelope", "-"]
    invoke = CliRunner().invoke
    return await asyncio.to_thread(invoke, main, words, input=sent, standalone_mode=True)


def of_command(done: Result) -> Said:
    assert done.exit_code == 0, done.stderr
    return Said(json.loads(done.stdout)["duplicate"], done.stderr)


async def by_sql(jobs: Gantline, url: str, sent: bytes) -> Said:
    location, notices = parse_url(url), list[str]()
    async with await psycopg.AsyncConnection.connect(location.conninfo) as connection:
        connection.add_notice_handler(lambda one: notices.append(one.message_primary or ""))
        statement = location.sql("SELECT outcome FROM gantline.submit(%s)")
        (row,) = await (await connection.execute(statement, (sent.decode(),))).fetchall()
    return Said(row[0] == "duplicate", "".join(notices))


async def by_bridge(jobs: Gantline, url: str, sent: bytes) -> Said:
    intake = Intake(jobs, tenant="default")
    await intake.take(Message(body=sent))
    return Said(intake.taken["duplicate"] == 1, "")


FROM_PYTHON: Final = (by_bytes, by_text, by_dict, by_sync)
EVERYWHERE: Final[tuple[Door, ...]] = (*FROM_PYTHON, by_http, by_batch, by_bridge)
DOORS: Final[dict[str, tuple[Door, ...]]] = {
    "memory": tuple(door for door in EVERYWHERE if door is not by_sync),
    "sqlite": (*EVERYWHERE, by_transaction, by_command, by_command_to_a_server),
    "postgres": (*EVERYWHERE, by_transaction, by_command, by_command_to_a_server, by_sql),
    "redis": (*EVERYWHERE, by_command, by_command_to_a_server),
}


def doors_of(url: str) -> tuple[Door, ...]:
    return next(doors for kind, doors in DOORS.items() if url.startswith(kind))


async def found(jobs: Gantline) -> list[Job]:
    page = await jobs.store.find(JobFilter(tenant_id=None), limit=50)
    return [snapshot.job for snapshot in page.items]


# -- the table ------------------------------------------------------------------------------------


async def test_by_every_door_it_is_the_same_job(store_url: str) -> None:
    """The first one makes it; to all others it is a duplicate. Whichever is the first."""
    doors = doors_of(store_url)
    async with shop(store_url) as jobs:
        for number, first in enumerate(doors):
            mine = {"jobId": str(UUID(int=number + 1)), "idempotencyKey": f"doc-v{number}"}
            sent = json.dumps(json.loads(SENT) | mine).encode()
            said = {first: await first(jobs, store_url, sent)}
            said |= {door: await door(jobs, store_url, sent) for door in doors if door != first}
            assert [one.duplicate for one in said.values()] == [False] + [True] * (len(doors) - 1)
            (job,) = [job for job in await found(jobs) if job.external_id == UUID(mine["jobId"])]
            expected = msgspec.structs.replace(
                read_job(json.dumps(json.loads(EXAMPLE) | mine)),
                job_id=job.job_id,
                external_id=UUID(mine["jobId"]),
                created_by=job.created_by,  # who it was, the door knows
                payload=job.payload,  # some keep its spaces
            )
            assert (job, job.data()) == (expected, {"action": "index"}), first.__name__
            for door, one in said.items():
                if door is not by_bridge:  # it tells its log
                    assert "partitionKey" in one.text, door.__name__
                    assert "$type" in one.text, door.__name__
                    assert "\x1b" not in one.text, door.__name__


async def test_what_was_submitted_by_its_envelope_is_run(store_url: str) -> None:
    async with shop(store_url) as jobs:
        handle = await jobs.submit_envelope(SENT)
        async with jobs.running():
            assert await handle.result(PATIENCE_SECONDS) == {"did": "index"}


@pytest.mark.parametrize("created_at", ["9999-12-30T00:00:00Z", None])
async def test_no_door_takes_what_was_created_in_the_future(
    store_url: str, created_at: str | None
) -> None:
    at = created_at or (datetime.now(UTC) + timedelta(days=1, minutes=5)).isoformat()
    sent = json.dumps(json.loads(EXAMPLE) | {"createdAt": at}).encode()
    async with shop(store_url) as jobs:
        for door in doors_of(store_url):
            with pytest.raises((GantlineError, Rejected, AssertionError, psycopg.Error)) as refused:
                await door(jobs, store_url, sent)
            assert "in the future" in str(refused.value), door.__name__
        assert await found(jobs) == []


async def test_by_every_door_an_attempt_has_used_those_before_it(store_url: str) -> None:
    async with shop(store_url) as jobs:
        for number, door in enumerate(doors_of(store_url)):
            mine = {"jobId": str(UUID(int=number + 1)), "idempotencyKey": "", "attempt": 3}
            await door(jobs, store_url, json.dumps(json.loads(EXAMPLE) | mine).encode())
        page = await jobs.store.find(JobFilter(tenant_id=None), limit=50)
        assert {(one.attempt, one.job.attempt) for one in page.items} == {(2, 3)}


async def test_the_bridge_says_once_what_it_ignores(caplog: pytest.LogCaptureFixture) -> None:
    async with shop("memory://") as jobs:
        intake = Intake(jobs, tenant="default")
        for number in range(3):
            mine = {"jobId": str(UUID(int=number + 1)), "idempotencyKey": ""}
            await intake.take(Message(body=json.dumps(json.loads(SENT) | mine).encode()))
    (line,) = [one for one in caplog.messages if "are ignored" in one]
    assert line == (
        "messages of ai-indexing have members that are ignored, as "
        "#/partitionKey, #/$type, #/\\x1b[31m"
    )


# -- in Python ------------------------------------------------------------------------------------


async def test_a_job_is_taken_as_the_envelope_that_it_writes() -> None:
    async with shop("memory://") as jobs:
        job = read_job(EXAMPLE)
        first = await jobs.submit_envelope(job)
        again = await jobs.submit_envelope(EXAMPLE)
        assert (again.job_id, again.duplicate, first.warnings) == (first.job_id, True, ())
        stored = (await first.status()).job
        resent = await jobs.submit_envelope(stored)  # has an id that this tenant knows
        assert (resent.job_id, resent.duplicate) == (first.job_id, True)
        assert [warning.pointer for warning in resent.warnings] == ["#/externalId"]


async def test_what_an_envelope_does_not_say_its_type_does() -> None:
    jobs = Gantline("memory://")

    class Document(msgspec.Struct):
        document_id: str
        pages: int = 1

    @jobs.job(
        "index",
        queue="documents",
        priority=1,
        retry=7,
        subject="{document_id}",
        idempotency_key="doc-{document_id}",
        version=2,
        upgrade=lambda data, version: {"document_id": data["id"]},
    )
    async def index(document: Document) -> None: ...

    async with jobs:
        handle = await jobs.submit_envelope({"jobType": "index", "payload": {"document_id": "d1"}})
        job = (await handle.status()).job
        assert (job.queue, job.priority, job.max_attempts) == ("documents", 1, 7)
        assert (job.subject_id, job.idempotency_key, job.payload_version) == ("d1", "doc-d1", 2)
        assert job.data() == {"document_id": "d1", "pages": 1}
        assert job.external_id is None
        old = {"jobType": "index", "payload": {"id": "d2"}, "payloadVersion": 1}
        upgraded = (await (await jobs.submit_envelope(old)).status()).job
        assert upgraded.data() == {"document_id": "d2", "pages": 1}
        with pytest.raises(InvalidInput, match="is newer than 2"):
            await jobs.submit_envelope({**old, "payloadVersion": 3})
        with pytest.raises(InvalidInput, match="document_id"):
            await jobs.submit_envelope({"jobType": "index", "payload": {"document_id": 7}})


async def test_a_type_that_is_not_declared_here_is_for_workers_elsewhere() -> None:
    clock = FakeClock()
    jobs = Gantline("memory://")
    jobs.move_to("memory://", clock=clock)
    async with jobs:
        at = clock.now() + timedelta(hours=1)
        said = {"jobType": "elsewhere", "payload": {"n": 1}, "queue": "q", "scheduledAt": at}
        handle = await jobs.submit_envelope(said)
        found = await handle.status()
        assert (found.status, found.run_at) == (JobStatus.QUEUED, at)
        assert (found.job.queue, found.job.created_at) == ("q", clock.now())
        late = await jobs.submit_envelope({"jobType": "elsewhere", "delaySeconds": 60})
        assert (await late.status()).run_at == clock.now() + timedelta(minutes=1)


@pytest.mark.parametrize("name", ["gantline.webhook-delivery", "gantline.bridge-send"])
async def test_nobody_submits_a_job_of_gantlines_own(name: str) -> None:
    """A delivery made up would be signed and sent."""
    async with shop("memory://") as jobs:
        with pytest.raises(InvalidEnvelope, match="is one of Gantline's own"):
            await jobs.submit_envelope({"jobType": name, "payload": {}})


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (b"", Code.INVALID_FORMAT),
        ("[]", Code.INVALID_FORMAT),
        (b"\xff", Code.INVALID_FORMAT),
        ({}, Code.VALIDATION_ERROR),
        ({"jobType": TYPE, "payload": b"bytes"}, Code.VALIDATION_ERROR),
        ({"jobType": TYPE, "attempt": 0}, Code.VALIDATION_ERROR),
        ({"jobType": TYPE, "payload": {}, **BOTH_TIMES}, Code.VALIDATION_ERROR),
        ({"jobType": TYPE, "payload": {"x": "x" * 70_000}}, Code.PAYLOAD_TOO_LARGE),
        ({"jobType": "unheard-of", "payload": "x" * 70_000}, Code.PAYLOAD_TOO_LARGE),
        ({"jobType": "unheard-of", "queue": "webhooks"}, Code.VALIDATION_ERROR),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_refused(envelope: Any, code: str) -> None:
    async with shop("memory://") as jobs:
        with pytest.raises(InvalidInput) as refused:
            await jobs.submit_envelope(envelope)
        assert refused.value.code == code
        assert (code == Code.INVALID_FORMAT) == isinstance(refused.value, InvalidFormat)
        assert await found(jobs) == []


async def test_members_that_are_not_known_may_be_anything() -> None:
    async with shop("memory://") as jobs:
        strange: dict[Any, Any] = {"\ud800": 1, 7: object(), "at": datetime.now(UTC)}
        handle = await jobs.submit_envelope(json.loads(EXAMPLE) | strange)
        assert [pointer for pointer, _ in handle.warnings] == ["#/\\ud800", "#/7", "#/at"]


def test_an_envelope_may_say_what_a_job_has_and_how_long_to_wait() -> None:
    ours = frozenset(Job.__struct_encode_fields__)
    assert ours - MEMBERS == {"externalId"}
    assert MEMBERS - ours == {"delaySeconds"}
    assert ignored(MEMBERS) == ()


# -- on the command line ----------------------------------------------------------------------


async def test_a_command_reads_an_envelope_from_a_file(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path}/gantline.db", tmp_path / "job.json"
    path.write_bytes(SENT)
    words = ["--store", url, "job", "submit", "--envelope", str(path)]
    done = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert done.exit_code == 0
    assert "Warning: #/partitionKey is not known here and was ignored" in done.stderr
    both = await asyncio.to_thread(CliRunner().invoke, main, [*words, "mail"])
    neither = await asyncio.to_thread(CliRunner().invoke, main, words[:-2])
    assert (both.exit_code, neither.exit_code) == (2, 2)
    assert "An envelope says all of its job itself." in both.stderr
    assert "Give JOB_TYPE, or --envelope." in neither.stderr


@pytest.mark.parametrize(("job_type", "code"), [("index", 0), ("unheard-of", 2)])
async def test_with_an_application_a_command_holds_an_envelope_to_its_types(
    job_type: str, code: int, tmp_path: Path
) -> None:
    where = [
        "--store",
        f"sqlite:///{tmp_path}/{uuid4()}.db",
        "--app",
        "tests.bridge.bridged_app:jobs",
    ]
    done = await command(msgspec.json.encode({"jobType": job_type, "payload": {"n": 1}}), *where)
    assert done.exit_code == code, done.stderr
    assert ("declares no job" in done.stderr) == (code == 2)
