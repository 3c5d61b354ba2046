"""ctx.audit: an entry of the tenant's chain with the completion of its job, once, or none."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from gantline import AuditSettings, Context, Gantline, JobFailed, Permanent
from gantline.audit.chain import AuditChains, AuditEvent, FaultyEntry, NewAuditEvent
from gantline.audit.sinks import StoreAudit
from gantline.audit.verification import PRUNED, verify_chain
from gantline.contract.audit import AuditEntry
from gantline.testing.kit import JobsTest
from tests.audit.conftest import TENANT, Trail
from tests.test_consumers import eventually

SIGNED = {"passport_version_id": "v-1", "key_id": "dev-key-1"}


def passports(store: str = "memory://", **settings: Any) -> tuple[Gantline, Any]:
    jobs = Gantline(store, audit=AuditSettings(**{"from_jobs": True} | settings))

    @jobs.job("sign", subject="{version_id}", retry=1)
    async def sign(version_id: str, ctx: Context, *, fails: bool = False) -> None:
        ctx.audit("PASSPORT_SIGNED", "PassportVersion", SIGNED)
        ctx.emit("PASSPORT_SIGNED", "PassportVersion", SIGNED)
        ctx.audit("KEY_USED", "SigningKey", aggregate_id="dev-key-1")
        if fails:
            raise Permanent("NO_KEY", "There is no key.")

    return jobs, sign


async def chain_of(jobs: Gantline, tenant_id: str = TENANT) -> list[AuditEvent]:
    """Oldest first; unbroken."""
    chains = AuditChains(jobs.store)
    report = await verify_chain(tenant_id, chains.events(tenant_id), now=await jobs.store.ping())
    assert report.findings == []
    found = [event async for event in chains.events(tenant_id)]
    return [event for event in reversed(found) if not isinstance(event, FaultyEntry)]


async def test_it_is_in_the_chain_of_the_tenant_and_says_which_job_did_it() -> None:
    jobs, sign = passports()
    async with JobsTest(jobs) as kit:
        handle = await sign.submit(
            {"version_id": "v-1"}, tenant=TENANT, correlation_id="c-1", subject="v-1"
        )
        await kit.drain()
        signed, used = await chain_of(jobs)
        assert (signed.type, signed.aggregate) == ("PASSPORT_SIGNED", "PassportVersion:v-1")
        assert signed.actor == f"job:{handle.job_id}"
        assert signed.payload == {
            "id": f"{handle.job_id}.3.1",
            "action": "PASSPORT_SIGNED",
            "actorTenant": TENANT,
            "correlationId": "c-1",
            "jobType": "sign",
            "outcome": "allowed",
            "subjectId": "v-1",
            "tenantId": TENANT,
            "what": "PassportVersion:v-1",
            "details": SIGNED,
        }
        assert (used.type, used.aggregate) == ("KEY_USED", "SigningKey:dev-key-1")
        assert used.payload["id"] == f"{handle.job_id}.3.3"
        assert [one.type for one in await kit.audited()] == ["PASSPORT_SIGNED", "KEY_USED"]
        assert [one.number for one in await kit.emitted()] == [2]


async def test_a_job_that_fails_leaves_none() -> None:
    jobs, sign = passports()
    async with JobsTest(jobs) as kit:
        await sign.send("v-1", fails=True)
        await kit.drain()
        assert await chain_of(jobs, "default") == []


async def test_workers_append_it_to_the_chain_of_each_store(store_url: str) -> None:
    jobs, sign = passports(store_url)
    async with jobs, jobs.running():
        handles = [await sign.send(f"v-{number}") for number in range(20)]
        expected = ["PASSPORT_SIGNED", "KEY_USED"] * 20
        await eventually(lambda: _types(jobs), expected)
        events = await chain_of(jobs, "default")
    ids = {f"{handle.job_id}.3.{number}" for handle in handles for number in (1, 3)}
    assert {event.payload["id"] for event in events} == ids


# -- at least once, and in the chain once ---------------------------------------------------------


async def test_a_page_that_comes_again_appends_nothing(store_url: str) -> None:
    """As after a kill between the block and the move of the position."""
    jobs, sign = passports(store_url)
    (declared,) = jobs.consumers
    async with jobs, jobs.running():
        handle = await sign.send("v-1")
        await eventually(lambda: _types(jobs), ["PASSPORT_SIGNED", "KEY_USED"])
        await jobs.audit.record(operators_entry(jobs))
        (row,) = await jobs.store.events(after=0, limit=9)
        page = list(declared.events_of(row, (await handle.status()).job))
        assert [event.event_id[-2:] for event in page] == [".1", ".3"]
        await declared.consumer.consume(page)
        await declared.consumer.consume(page[1:])
        assert await _types(jobs) == ["PASSPORT_SIGNED", "KEY_USED", "pauseQueue"]


async def _types(jobs: Gantline) -> list[str]:
    return [event.type for event in await chain_of(jobs, "default")]


def operators_entry(jobs: Gantline) -> AuditEntry:
    return AuditEntry(
        at=jobs.clock.now(),
        actor="user:me",
        action="pauseQueue",
        outcome="allowed",
        tenant_id="default",
    )


async def test_two_writers_of_one_entry_append_it_once(trail: Trail) -> None:
    await trail.append(3)
    entry = AuditEntry(
        at=trail.clock.now(),
        actor="job:1",
        action="A",
        outcome="allowed",
        tenant_id=TENANT,
        event_id="1.3.1",
    )
    one, other = StoreAudit(trail.store), StoreAudit(trail.store)
    for audit in (one, other, one):
        await audit.record(entry)
    await trail.append(2)
    await other.record(entry)
    events = await trail.events()
    assert [event.type for event in events].count("A") == 1
    assert [event.version for event in events] == [1, 2, 3, 4, 5, 6]


async def test_an_entry_of_an_earlier_job_is_not_looked_for_where_it_cannot_be(
    trail: Trail,
) -> None:
    """Blocks that are older than the entry are not read, and of newer ones only the newest."""
    await trail.append(30)
    trail.clock.advance(timedelta(seconds=1))
    entry = NewAuditEvent(
        aggregate="Order:1",
        type="A",
        actor="job:1",
        payload={"id": "1.3.1"},
        repeated_since=trail.clock.now(),
    )
    looked = []
    block_at = trail.writer._appender(TENANT)._chains.block_at

    async def counted(tenant_id: str, version: int) -> Any:
        looked.append(version)
        return await block_at(tenant_id, version)

    trail.writer._appender(TENANT)._chains.block_at = counted  # type: ignore[method-assign]  # counts
    first = await trail.writer.append(TENANT, entry)
    assert len(looked) <= 2
    assert (await trail.writer.append(TENANT, entry)) == first
    await trail.append(30)
    looked.clear()
    await trail.writer.append(TENANT, entry)
    assert len(looked) <= 22


# -- what an installation may do ------------------------------------------------------------------


async def test_without_the_setting_a_handler_is_told(caplog: pytest.LogCaptureFixture) -> None:
    jobs, sign = passports(from_jobs=False)
    assert [one.name for one in jobs.consumers] == []
    async with jobs, jobs.running():
        handle = await sign.send("v-1")
        with (
            caplog.at_level(logging.CRITICAL),
            pytest.raises(JobFailed, match=r"AuditSettings\(from_jobs=True\)"),
        ):
            await handle.result(timeout=30)


async def test_a_sink_of_the_applications_own_gets_the_entries() -> None:
    class Kept:
        def __init__(self) -> None:
            self.entries: list[AuditEntry] = []

        async def record(self, entry: AuditEntry) -> None:
            self.entries.append(entry)

    kept = Kept()
    jobs, sign = passports(sink=kept)
    async with JobsTest(jobs) as kit:
        await sign.send("v-1")
        await kit.drain()
        assert await chain_of(jobs, "default") == []
    assert [(one.action, one.what, dict(one.details)) for one in kept.entries] == [
        ("PASSPORT_SIGNED", "PassportVersion:v-1", SIGNED),
        ("KEY_USED", "SigningKey:dev-key-1", {}),
    ]
    assert all(one.event_id for one in kept.entries)


@pytest.mark.parametrize("payload", [["a", "list"], "text", {"much": "x" * 4100}])
async def test_its_payload_is_a_small_object(payload: Any) -> None:
    jobs = Gantline("memory://", audit=AuditSettings(from_jobs=True))

    @jobs.job(retry=1)
    async def emits(ctx: Context) -> None:
        ctx.audit("A", "Order", payload, aggregate_id="o-1")

    async with JobsTest(jobs) as kit:
        await emits.submit()
        assert (await kit.drain()).failed == 1
        assert await kit.audited() == []


async def test_an_entry_that_is_named_as_one_of_the_chain_itself_lies_to_nobody() -> None:
    """`pruneAudit` says what retention removed; of a job it says nothing of the kind."""
    jobs = Gantline("memory://", audit=AuditSettings(from_jobs=True))
    details = {"count": 1, "before": "2999-01-01T00:00:00Z", "actor": "x", "last": {}}

    @jobs.job
    async def emits(ctx: Context) -> None:
        ctx.audit(PRUNED, "audit", details, aggregate_id="x")

    async with JobsTest(jobs) as kit:
        await emits.submit()
        await kit.drain()
        assert [one.type for one in await chain_of(jobs, "default")] == [PRUNED]
