"""Jobs that expire: how it is said, what is refused, and that nobody's handler is called."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import msgspec
import psycopg
import pytest
from click.testing import CliRunner, Result

from gantline import Context, Gantline
from gantline.app.declare import JobOptions
from gantline.app.job_type import JobType
from gantline.bridge.message import Message, build_job, read_envelope
from gantline.cli.main import main
from gantline.client.submission import new_job
from gantline.contract.errors import InvalidInput
from gantline.contract.job import read_job
from gantline.contract.status import Event, JobStatus, Reason
from gantline.contract.submission import NewJob, SubmitOptions
from gantline.manager import maintenance
from gantline.manager.maintenance import Maintenance
from gantline.manager.observer import Observer
from gantline.manager.relay import wrapped
from gantline.manager.submitter import Submission
from gantline.manager.switches import Switches
from gantline.stores.postgres.location import parse_url
from gantline.stores.sqlite import ready
from gantline.stores.sqlite.schema import migrate
from gantline.testing import JobsTest
from gantline.testing.conformance import Bench
from gantline.testing.factories import CREATED_AT, make_job, number
from tests.harness import MemoryHarness
from tests.moving_stores import close
from tests.servers.postgres import PostgresServer

HOUR = timedelta(hours=1)
NAN = float("nan")


class Shop:
    """An application with one job type on a store of its own; `called` is what it ran."""

    def __init__(self, **options: Any) -> None:
        self.jobs = Gantline("memory://")
        self.called: list[str] = []

        @self.jobs.job("mail", **options)
        async def mail(to: str) -> None:
            self.called.append(to)

        self.mail: JobType[[str], None] = mail


# -- how it is said -------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [HOUR, 3600, 3600.0])
async def test_it_is_counted_from_the_submit(span: timedelta | float) -> None:
    shop = Shop()
    async with JobsTest(shop.jobs) as kit:
        await shop.mail.submit("a", expires_in=span)
        await shop.mail.submit_many(["b", "c"], expires_in=span)
        await shop.mail.options(expires_in=span).send("d")
        found = await kit.submitted(shop.mail)
        assert len(found) == 4
        assert {job.status.job.expires_at for job in found.all} == {kit.clock.now() + HOUR}


async def test_a_type_may_say_it_for_its_jobs() -> None:
    shop = Shop(expires_in=60)
    async with JobsTest(shop.jobs) as kit:
        await shop.mail.submit("a")
        await shop.mail.submit("b", expires_in=HOUR)
        await shop.mail.submit("c", expires_in=None)
        await shop.jobs.submit_envelope({"jobType": "mail", "payload": "d"})
        expires = [job.status.job.expires_at for job in (await kit.submitted(shop.mail)).all]
        minute = kit.clock.now() + timedelta(minutes=1)
        assert expires == [minute, kit.clock.now() + HOUR, minute, minute]


async def test_a_follow_up_may_expire() -> None:
    jobs = Gantline("memory://")

    @jobs.job("second")
    async def second(number: int) -> None: ...

    @jobs.job("first")
    async def first(ctx: Context) -> None:
        ctx.follow_up(second, 1, expires_in=HOUR)

    async with JobsTest(jobs) as kit:
        await first.submit()
        await kit.drain()
        job = (await kit.submitted(second)).one().status.job
        assert job.expires_at == kit.clock.now() + HOUR


@pytest.mark.parametrize(
    ("of_type", "of_schedule", "seconds"),
    [
        ({}, {}, None),
        ({"expires_in": 60}, {}, 60),
        ({"expires_in": 60}, {"expires_in": HOUR}, 3600),
    ],
)
def test_the_jobs_of_a_schedule_expire_as_it_or_their_type_says(
    of_type: JobOptions, of_schedule: Any, seconds: float | None
) -> None:
    shop = Shop(**of_type)
    shop.mail.every(HOUR, payload="a", **of_schedule)
    (declared,) = shop.mail.schedules
    assert declared.schedule.expires_in_seconds == seconds
    expires_at = None if seconds is None else CREATED_AT + timedelta(seconds=seconds)
    assert declared.schedule.expires_at(CREATED_AT) == expires_at


async def test_an_envelope_says_it_as_an_instant() -> None:
    shop = Shop()
    async with JobsTest(shop.jobs) as kit:
        at = kit.clock.now() + HOUR
        said = {"jobType": "mail", "payload": "a", "expiresAt": at.isoformat()}
        await shop.jobs.submit_envelope(said)
        job = (await kit.submitted(shop.mail)).one().status.job
        assert job.expires_at == at
        assert msgspec.json.decode(job.to_json())["expiresAt"] == at.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_an_envelope_without_it_is_written_without_it() -> None:
    assert b"expiresAt" not in make_job().to_json()


async def test_over_http_it_is_taken_and_shown() -> None:
    shop = Shop()
    async with JobsTest(shop.jobs) as kit:
        transport = httpx2.ASGITransport(app=shop.jobs.api(allow_anonymous=True))
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            at = kit.clock.now() + HOUR
            body = {"jobType": "mail", "payload": "a", "expiresAt": at.isoformat()}
            accepted = await client.post("/api/jobs", json=body)
            shown = (await client.get(accepted.headers["location"])).json()
            assert datetime.fromisoformat(shown["expiresAt"]) == at
            refused = await client.post("/api/jobs", json=body | {"delaySeconds": 3600})
            assert refused.status_code == 422
            assert [one["pointer"] for one in refused.json()["errors"]] == ["#/expiresAt"]
            kit.clock.advance(HOUR)
            await kit.drain()
            ended = (await client.get(accepted.headers["location"])).json()
            assert (ended["status"], ended["reason"]) == ("Cancelled", "Expired")


async def test_a_command_takes_a_span(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gantline.db"

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, ["--store", url, "-o", "json", "job", *words])

    done = await asyncio.to_thread(run, "submit", "mail", '"a"', "--expires-in", "1h")
    job_id = json.loads(done.stdout)["jobId"]
    job = json.loads((await asyncio.to_thread(run, "get", job_id)).stdout)
    created, expires = (datetime.fromisoformat(job[name]) for name in ("createdAt", "expiresAt"))
    assert expires - created == HOUR
    for span, why in (("0", "expires_in is 0 s"), ("nan", "number of seconds"), ("-5", "-5")):
        refused = await asyncio.to_thread(run, "submit", "mail", "1", "--expires-in", span)
        assert refused.exit_code == 2
        assert why in refused.stderr


def test_a_client_counts_by_its_own_clock() -> None:
    before = datetime.now(UTC)
    at = new_job("mail", "a", expires_in=3600).expires_at
    assert at is not None
    assert before + HOUR <= at <= datetime.now(UTC) + HOUR
    assert new_job("mail", "a").expires_at is None
    with pytest.raises(InvalidInput, match="expires_in is 0 s"):
        new_job("mail", "a", expires_in=0)


def test_a_broker_brings_it() -> None:
    said = {"jobType": "mail", "jobId": str(number(1)), "expiresAt": "2026-01-01T13:00:00Z"}
    message = Message(body=msgspec.json.encode(said))
    job = build_job(read_envelope(message), message, tenant="t", trusts_tenant=False)
    assert job.expires_at == datetime(2026, 1, 1, 13, tzinfo=UTC)


async def test_an_outbox_keeps_it(tmp_path: Path) -> None:
    shop = Shop()
    at = datetime.now(UTC) + HOUR
    new = NewJob(make_job(job_type="mail", expires_at=at), b"")
    moved = read_job(bytes(wrapped(new, datetime.now(UTC)).job.payload))
    assert moved.expires_at == at
    assert shop.jobs.manager.submitter.prepare(Submission(moved)).job.expires_at == at


async def test_sql_takes_it_and_a_callers_transaction(postgres: PostgresServer) -> None:
    url = postgres.url(schema=f"e{uuid4().hex}")
    location = parse_url(url)
    submit = location.sql("SELECT job_id FROM gantline.submit(%s)")
    shop = Shop()
    shop.jobs.move_to(url)
    at = datetime.now(UTC) + HOUR

    async def by_sql(connection: psycopg.AsyncConnection[Any], **said: object) -> UUID:
        body = msgspec.json.encode({"jobType": "mail", "payload": "a", **said}).decode()
        (row,) = await (await connection.execute(submit, (body,))).fetchall()
        return UUID(str(row[0]))

    async with shop.jobs, await psycopg.AsyncConnection.connect(location.conninfo) as connection:
        job_ids = [await by_sql(connection, expiresAt=at), await by_sql(connection, expiresAt=None)]
        handle = await shop.mail.submit("b", connection=connection, expires_in=HOUR)
        await connection.commit()
        jobs = await shop.jobs.store.get([*job_ids, handle.job_id], tenant_id=None)
        first, second, third = [job.job for job in jobs if job is not None]
        assert (first.expires_at, second.expires_at) == (at, None)
        assert third.expires_at == third.created_at + HOUR
        for said, why in (
            ({"expiresAt": at, "delaySeconds": 3600.1}, "expiresAt of job 1 is not after"),
            ({"expiresAt": at, "scheduledAt": at}, "expiresAt of job 1 is not after"),
            ({"expiresAt": datetime.now(UTC)}, "expiresAt of job 1 is not after"),
            ({"expiresAt": "9999-12-31T00:00:00Z"}, "expiresAt of job 1 is more than 3650 days"),
        ):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match=why):
                await by_sql(connection, **said)
            await connection.rollback()


# -- what is refused ------------------------------------------------------------------------------

OUT_OF_BOUNDS = r"expires_in is .*\. It must be from 0\.001 s to 3650 days"
REFUSED: list[tuple[SubmitOptions, str]] = [
    ({"expires_in": 0}, OUT_OF_BOUNDS),
    ({"expires_in": timedelta(days=3651)}, OUT_OF_BOUNDS),
    ({"expires_in": -5}, r"expires_in is -5 s\. It must be from"),
    ({"expires_in": NAN}, r"expires_in is nan\. It must be a timedelta or seconds"),
    ({"expires_in": float("inf")}, r"expires_in is inf\. It must be a timedelta or seconds"),
    ({"expires_in": HOUR, "delay": HOUR}, r"#/expiresAt: is .* first due at .* expire later"),
    ({"expires_in": HOUR, "delay": 2 * HOUR}, r"would never start"),
    ({"expires_in": HOUR, "at": datetime.max.replace(tzinfo=UTC)}, r"3650 days"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
async def test_what_could_never_start_is_refused(options: SubmitOptions, why: str) -> None:
    shop = Shop()
    async with JobsTest(shop.jobs) as kit:
        with pytest.raises(InvalidInput, match=why):
            await shop.mail.submit("a", **options)
        assert len(await kit.submitted(shop.mail)) == 0


@pytest.mark.parametrize("span", [0, -1, NAN, timedelta(days=3651)])
def test_a_type_and_a_schedule_refuse_it_where_they_are_declared(span: Any) -> None:
    with pytest.raises(InvalidInput, match="expires_in"):
        Shop(expires_in=span)
    with pytest.raises(InvalidInput, match="expires"):
        Shop().mail.every(HOUR, payload="a", expires_in=span)


async def test_an_envelope_that_comes_late_is_stored_and_ends_at_once() -> None:
    """What was asked for is known, and that it came too late."""
    shop = Shop()
    async with JobsTest(shop.jobs) as kit:
        created, expires = (kit.clock.now() - hours * HOUR for hours in (5, 1))
        said = {"jobType": "mail", "payload": "a", "createdAt": created.isoformat()}
        await shop.jobs.submit_envelope(said | {"expiresAt": expires.isoformat()})
        assert (await kit.drain()).cancelled == 1
        assert shop.called == []


# -- what becomes of it ---------------------------------------------------------------------------


async def test_the_handler_of_a_job_that_is_claimed_too_late_is_not_called() -> None:
    shop = Shop()
    async with JobsTest(shop.jobs) as kit:
        handle = await shop.mail.submit("late", expires_in=HOUR, idempotency_key="key")
        await shop.mail.submit("any time")
        kit.clock.advance(HOUR)
        drained = await kit.drain()
        assert (drained.cancelled, drained.completed) == (1, 1)
        assert shop.called == ["any time"]
        job = await handle.status()
        assert (job.status, job.attempt) == (JobStatus.CANCELLED, 0)
        (row,) = await shop.jobs.store.history(handle.job_id, tenant_id=None)
        assert (row.event, row.reason) == (Event.CANCELLED, Reason.EXPIRED)
        again = await shop.mail.submit("late", idempotency_key="key")
        assert again.job_id != handle.job_id


async def test_a_retry_after_that_time_is_made() -> None:
    shop = Shop()
    attempts: list[int] = []

    @shop.jobs.job("flaky")
    async def flaky(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError

    async with JobsTest(shop.jobs) as kit:
        await flaky.submit(expires_in=1)
        await kit.drain()
        kit.clock.advance(HOUR)
        assert (await kit.drain()).completed == 1
        assert attempts == [1, 2]


def test_on_sqlite_only_what_expires_is_read() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        asked = f"EXPLAIN QUERY PLAN {ready._PAST_EXPIRY}"
        plan = [row[3] for row in connection.execute(asked, (0, 10))]
    first, *rest = plan
    assert first.startswith("SEARCH ready USING")
    assert "INDEX gantline_ready_expiring (expires_at<?)" in first
    assert not [step for step in rest if "SCAN" in step or "TEMP" in step]


class Listening(Observer):
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def acted(self, jobs: Any, settled: Any) -> None:
        self.reasons += [one.transition.reason for one in settled if one.accepted]


@asynccontextmanager
async def bench_with_expired(count: int) -> AsyncIterator[Bench]:
    bench = await Bench.on(MemoryHarness())
    await bench.submit_many(count, expires_at=bench.clock.now() + HOUR, queue="nobody serves it")
    await bench.submit_many(2)
    bench.clock.advance(HOUR)
    yield bench
    await bench.close()


async def test_the_leader_cancels_what_nobody_claims() -> None:
    observer = Listening()
    async with bench_with_expired(3) as bench:
        leader = Maintenance(bench.store, Switches(bench.store), "a", observer=observer)
        report = await leader.run_once()
        assert report is not None
        assert (report.expired, report.did_nothing) == (3, False)
        assert observer.reasons == [Reason.EXPIRED] * 3
        assert await bench.recount() == dict.fromkeys(JobStatus, 0) | {"Queued": 2, "Cancelled": 3}
        again = await leader.run_once()
        assert again is not None
        assert (again.expired, again.did_nothing) == (0, True)


async def test_a_backlog_that_expires_at_once_does_not_hold_the_leader_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "_EXPIRED_AT_ONCE", 2)
    monkeypatch.setattr(maintenance, "_EXPIRED_PAGES", 2)
    async with bench_with_expired(7) as bench:
        leader = Maintenance(bench.store, Switches(bench.store), "a")
        reports = [await leader.run_once() for _ in range(3)]
        assert [report and report.expired for report in reports] == [4, 3, 0]


async def test_nothing_expires_in_a_store_that_is_being_copied() -> None:
    async with bench_with_expired(1) as bench:
        switches = Switches(bench.store)
        await close(bench.store)
        leader = Maintenance(bench.store, switches, "a")
        report = await leader.run_once()
        assert report is not None
        assert report.expired == 0
        assert (await bench.recount())["Queued"] == 3
