"""ctx.emit: what a run emits comes with its completion, or not at all; to all who listen."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from gantline import (
    Context,
    DomainEvent,
    Fixed,
    Gantline,
    InvalidInput,
    JobEvent,
    JobFailed,
    Permanent,
    Retry,
)
from gantline.api.views import history_entry
from gantline.contract.domain_event import EMITTED_LIMIT, MOST_EMITTED
from gantline.contract.errors import RunOver
from gantline.contract.status import JobStatus
from gantline.testing.kit import JobsTest
from tests.servers.postgres import PostgresServer
from tests.test_consumers import QUICK
from tests.test_on import Heard

VERSION_ID = "550e8400-e29b-41d4-a716-446655440000"
SIGNED = {"passport_version_id": VERSION_ID, "key_id": "dev-key-1"}


def passports(store_url: str = "memory://") -> tuple[Gantline, Any]:
    jobs = Gantline(store_url)

    @jobs.job("sign", subject="{version_id}", retry=Fixed(every=timedelta(0), attempts=2))
    async def sign(version_id: str, ctx: Context, *, ends: str = "") -> str:
        ctx.emit("PASSPORT_SIGNED", "PassportVersion", SIGNED, aggregate_id=UUID(VERSION_ID))
        ctx.emit("passport.counted", "Counter")
        if ends == "retries" and ctx.attempt == 1:
            raise Retry("not yet", after=timedelta(0))
        if ends == "fails":
            raise Permanent("NO_KEY", "There is no key.")
        return "signed"

    return jobs, sign


async def test_whoever_listens_hears_it_before_the_end_of_its_job(store_url: str) -> None:
    jobs, sign = passports(store_url)
    signed, of_domain, of_jobs, pages = Heard(), Heard(), Heard(), Heard()

    @jobs.on("PASSPORT_SIGNED")
    async def on_signed(event: DomainEvent) -> None:
        signed((event.aggregate, event.aggregate_id, event.payload, event.event_id))

    @jobs.on("domain.*", job_type=sign)
    def on_domain(event: JobEvent) -> None:
        of_domain(event.type)

    @jobs.on("job.*")
    async def on_job(event: JobEvent) -> None:
        of_jobs(event.type)

    class All:
        name = "all"

        async def consume(self, events: Sequence[JobEvent]) -> None:
            for event in events:
                pages((event.sequence, event.type, event.job.subject_id))

    jobs.add_consumer(All())
    async with jobs, jobs.running(QUICK):
        handle = await sign.send("v1")
        assert await signed.next() == [
            ("PassportVersion", VERSION_ID, SIGNED, f"{handle.job_id}.3.1")
        ]
        assert await of_domain.next(2) == ["PASSPORT_SIGNED", "passport.counted"]
        assert await of_jobs.next() == ["job.completed"]
        types = ["PASSPORT_SIGNED", "passport.counted", "job.completed"]
        assert await pages.next(3) == [(1, one, "v1") for one in types]
    assert not any(heard.has_more for heard in (signed, of_domain, of_jobs, pages))


async def test_a_run_that_does_not_complete_emits_nothing(store_url: str) -> None:
    jobs, sign = passports(store_url)
    heard = Heard()

    @jobs.on("PASSPORT_SIGNED", "job.failed")
    async def hear(event: JobEvent) -> None:
        heard((event.type, event.event_id.partition(".")[2]))

    async with jobs, jobs.running(QUICK):
        failed = await sign.send("v1", ends="fails")
        with pytest.raises(JobFailed):
            await failed.result(timeout=30)
        assert await (await sign.send("v2", ends="retries")).result(timeout=30) == "signed"
        assert await heard.next(2) == [("job.failed", "3"), ("PASSPORT_SIGNED", "5.1")]
    assert not heard.has_more


async def test_threads_emit_too() -> None:
    jobs = Gantline("memory://")

    @jobs.job
    def ship(ctx: Context) -> None:
        ctx.emit("ORDER_SHIPPED", "Order", aggregate_id="o-1")

    async with JobsTest(jobs) as kit:
        await ship.submit()
        assert (await kit.drain()).completed == 1
        (event,) = await kit.emitted()
    assert (event.type, event.aggregate_id, event.payload) == ("ORDER_SHIPPED", "o-1", None)


# -- in a transaction of the handler's own --------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gantline.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(schema=f"w{uuid4().hex}")


async def test_a_transaction_commits_what_was_emitted_before_its_end(sql_url: str) -> None:
    jobs = Gantline(sql_url)
    heard = Heard()

    @jobs.on("domain.*", "job.completed")
    async def hear(event: JobEvent) -> None:
        heard((event.type, event.entry.result))

    @jobs.job(retry=1)
    async def ship(order: str, ctx: Context) -> None:
        ctx.emit("ORDER_PACKED", "Order")
        async with ctx.transaction("parcel"):
            ctx.emit("ORDER_SHIPPED", "Order")
        with pytest.raises(RunOver, match="without ORDER_LOST"):
            ctx.emit("ORDER_LOST", "Order")

    async with jobs, jobs.running(QUICK):
        await (await ship.submit("o-1", subject="o-1")).wait(timeout=30)
        types = ["ORDER_PACKED", "ORDER_SHIPPED", "job.completed"]
        assert await heard.next(3) == [(one, b'"parcel"') for one in types]


async def test_a_transaction_that_is_rolled_back_emits_nothing(sql_url: str) -> None:
    jobs = Gantline(sql_url)

    @jobs.job(retry=1)
    async def ship(ctx: Context) -> None:
        async with ctx.transaction():
            ctx.emit("ORDER_SHIPPED", "Order", aggregate_id="o-1")
            raise Permanent("NO_CARRIER", "There is no carrier.")

    async with jobs, jobs.running(QUICK):
        handle = await ship.submit()
        await handle.wait(timeout=30)
        rows = await jobs.store.history(handle.job_id, tenant_id=None)
    assert [(row.status, row.emitted) for row in rows] == [(JobStatus.FAILED, None)]


async def test_the_history_of_a_job_names_what_its_run_emitted() -> None:
    jobs, sign = passports()
    async with JobsTest(jobs) as kit:
        handle = await sign.send("v1")
        await kit.drain()
        (row,) = await jobs.store.history(handle.job_id, tenant_id=None)
        shown = history_entry(row, with_session=False, with_error_type=False)
        assert shown.emitted == ["PASSPORT_SIGNED", "passport.counted"]


# -- what may be emitted --------------------------------------------------------------------------


async def refusal_of(*arguments: Any, subject: str = "s", **options: Any) -> str:
    """What a handler is told that emits this."""
    jobs = Gantline("memory://")
    refused = ""

    @jobs.job
    async def emits(ctx: Context) -> None:
        nonlocal refused
        try:
            ctx.emit(*arguments, **options)
        except Exception as error:
            refused = str(error)

    async with JobsTest(jobs) as kit:
        await emits.submit(subject=subject)
        await kit.drain()
        assert bool(refused) != bool(await kit.emitted())
    return refused


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a" * 81,
        "two words",
        "über",
        "a\n",
        "job.completed",
        "job.mine",
        "webhook.x",
        "gantline.x",
    ],
)
async def test_a_type_that_cannot_be_is_refused_with_the_rule(name: str) -> None:
    refused = await refusal_of(name, "Order")
    assert "1 to 80 letters, digits, dots, hyphens and underscores" in refused
    assert "does not begin with job., webhook., gantline." in refused


@pytest.mark.parametrize("name", ["completed", "state", "progress", "reset", "message", "error"])
async def test_a_type_that_event_streams_use_is_refused(name: str) -> None:
    assert "is not used by event streams" in await refusal_of(name, "Order")


@pytest.mark.parametrize("name", ["a", "a" * 80, "order.shipped-2_X", "9", "jobs", "gantline"])
async def test_other_types_are_free(name: str) -> None:
    assert not await refusal_of(name, "Order")


async def test_an_aggregate_has_a_kind_and_an_id() -> None:
    assert "does not name a kind" in await refusal_of("A", "")
    assert "does not name a kind" in await refusal_of("A", "Order:1")
    assert "is empty, as the job's subject is" in await refusal_of("A", "Order", subject="")
    assert "control character" in await refusal_of("A", "Order", aggregate_id="a\x00b")
    assert "lone surrogate" in await refusal_of("A", "Order", aggregate_id="a\ud800b")
    assert "longer than 512" in await refusal_of("A", "Order", aggregate_id="a" * 513)


@pytest.mark.parametrize("payload", [{"a": b"bytes"}, "a\ud800b", float("nan"), object()])
async def test_a_payload_is_json_as_that_of_a_job(payload: object) -> None:
    assert "payload" in await refusal_of("A", "Order", payload)


async def test_a_run_emits_so_much_and_no_more() -> None:
    jobs = Gantline("memory://")
    refused = []

    @jobs.job(subject="s")
    async def emits(ctx: Context, number: int, size: int) -> None:
        for _ in range(number):
            try:
                ctx.emit("A", "Order", "x" * size)
            except Exception as error:
                refused.append(str(error))

    async with JobsTest(jobs) as kit:
        await emits.send(number=MOST_EMITTED + 1, size=1)
        await kit.drain()
        assert len(await kit.emitted()) == MOST_EMITTED
        assert refused.pop() == f"A run emits at most {MOST_EMITTED} events and audit entries."
        await emits.send(number=2, size=EMITTED_LIMIT // 2)
        await kit.drain()
        assert len(await kit.emitted()) == MOST_EMITTED + 1
        assert f"the limit is {EMITTED_LIMIT}" in refused.pop()
        await emits.send(number=1, size=EMITTED_LIMIT)
        await kit.drain()
        assert f"the limit is {EMITTED_LIMIT}" in refused.pop()
    assert not refused


async def test_what_is_refused_and_not_caught_fails_the_job() -> None:
    jobs = Gantline("memory://")

    @jobs.job
    async def emits(ctx: Context) -> None:
        ctx.emit("A", "Order", aggregate_id="o-1")
        ctx.emit("two words", "Order", aggregate_id="o-1")

    async with JobsTest(jobs) as kit:
        await emits.submit()
        assert (await kit.drain()).failed == 1
        assert await kit.emitted() == []


async def test_a_listener_for_what_nobody_can_emit_is_refused() -> None:
    jobs = Gantline("memory://")
    for name in ("two words", "job.exploded", "gantline.x", "completed"):
        with pytest.raises(InvalidInput, match="There is no event"):
            jobs.on(name)


# -- at least once --------------------------------------------------------------------------------


async def test_a_listener_that_fails_is_given_what_it_has_not_taken(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it took of the same row does not come again, as long as its reader lives."""
    monkeypatch.setattr("gantline.consumers.consumers._FIRST_RETRY_SECONDS", 0.01)
    jobs, sign = passports(store_url)
    heard, failures = Heard(), 2

    @jobs.on("domain.*", "job.completed", from_start=True)
    async def hear(event: JobEvent) -> None:
        nonlocal failures
        heard(event.type)
        if event.type == "passport.counted" and failures:
            failures -= 1
            raise OSError("away")

    async with jobs, jobs.running(QUICK):
        await sign.send("v1")
        assert await heard.next(5) == [
            "PASSPORT_SIGNED",
            *["passport.counted"] * 3,
            "job.completed",
        ]


async def test_after_a_kill_a_row_that_was_half_taken_comes_again_whole(store_url: str) -> None:
    """Positions are those of rows."""
    jobs, sign = passports(store_url)
    heard, first = Heard(), asyncio.Event()

    @jobs.on("domain.*", name="ear", from_start=True)
    async def hear(event: JobEvent) -> None:
        heard(event.type)
        if event.type == "passport.counted" and not first.is_set():
            first.set()
            raise OSError("away")

    async with jobs:
        async with jobs.running(QUICK):
            await sign.send("v1")
            assert await heard.next(2) == ["PASSPORT_SIGNED", "passport.counted"]
            await first.wait()
        async with jobs.running(QUICK):
            assert await heard.next(2) == ["PASSPORT_SIGNED", "passport.counted"]
