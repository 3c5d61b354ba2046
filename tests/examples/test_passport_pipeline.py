"""The battery passport from documents to exports, on every store; and what can go wrong."""

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

import psycopg
import pytest
import zxingcpp
from PIL import Image

from examples.battery_passport.assembly import make_jobs
from examples.battery_passport.database import Database
from examples.battery_passport.intake import receive
from examples.battery_passport.rules import current_package
from examples.battery_passport.signing import KEY_VARIABLE
from examples.battery_passport.steps import (
    KEEP_UNUSED,
    Rules,
    SealedSnapshot,
    compile_version,
    export_passport,
    retention_sweep,
    run_rule_tests,
    steps,
)
from examples.battery_passport.verify import verify
from gantline import Gantline, JobStatus, WorkerSettings
from gantline.contract.errors import PayloadTooLarge
from gantline.contract.snapshot import JobSnapshot
from gantline.testing import JobsTest
from tests.examples.conftest import PLACES, Place
from tests.examples.passports import (
    JOBS_OF_A_SAMPLE,
    TENANT,
    all_jobs,
    documents,
    lasting_rows,
    upload,
)

PRIORITIES = {
    "RETENTION_SWEEP": 0,
    "BUILD_SNAPSHOT": 1,
    "COMPILE_PASSPORT": 1,
    "SIGN_PASSPORT": 1,
    "PARSE_FACTS": 2,
    "GENERATE_QR": 2,
    "RUN_RULE_TESTS": 2,
    "EXPORT_PASSPORT": 3,
}


class Kit(NamedTuple):
    """The application on a store of its own, and its worker in the test's hands."""

    jobs: Gantline
    test: JobsTest
    database: Database

    async def ended(self, job_type: str) -> JobSnapshot:
        """The only job of a type."""
        (found,) = [job for job in await all_jobs(self.jobs) if job.job.job_type == job_type]
        return found


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    jobs = make_jobs("memory://")  # until the kit gives it a file
    async with JobsTest(jobs) as test:
        await test.drain()  # makes the tables, and publishes the rules
        yield Kit(jobs, test, Database(jobs))


@asynccontextmanager
async def working(place: Place) -> AsyncIterator[Gantline]:
    jobs = make_jobs(place.store, outbox=place.outbox or None)
    quick = WorkerSettings(queues=jobs.default_queues(), poll=timedelta(seconds=0.2))
    async with jobs, jobs.running(quick):
        await (await run_rule_tests.submit(Rules(current_package().rules_id))).result(timeout=30)
        yield jobs


async def exported(jobs: Gantline, tenant: str) -> JobSnapshot:
    """Wait for the last step of a tenant's only passport."""
    async with asyncio.timeout(60):
        while True:
            for job in await all_jobs(jobs, tenant):
                assert job.status not in (JobStatus.FAILED, JobStatus.POISONED), job.last
                if job.job.job_type == export_passport.name and job.status.is_terminal:
                    return job
            await asyncio.sleep(0.02)


async def ended(jobs: Gantline, tenant: str, count: int) -> list[JobSnapshot]:
    """Wait until so many jobs have ended."""
    async with asyncio.timeout(60):
        while True:
            found = await all_jobs(jobs, tenant)
            if len(found) >= count and all(job.status.is_terminal for job in found):
                return found
            await asyncio.sleep(0.02)


def error_of(job: JobSnapshot) -> tuple[JobStatus, str]:
    assert job.last is not None
    assert job.last.error is not None
    return job.status, job.last.error.code


@pytest.mark.parametrize("kind", PLACES)
async def test_from_documents_to_a_passport_for_two_tenants(
    make_place: Callable[[str], Place], kind: str
) -> None:
    async with working(make_place(kind)) as jobs:
        for tenant in (TENANT, "borealis"):
            await upload(jobs, "voltwerk-lmt", tenant=tenant)
        for tenant in (TENANT, "borealis"):
            last = await exported(jobs, tenant)
            # One document's snapshot is enough for a passport; those of the others may come later.
            found = await ended(jobs, tenant, sum(JOBS_OF_A_SAMPLE.values()))
            assert Counter(job.job.job_type for job in found) == JOBS_OF_A_SAMPLE
            assert len({job.job.correlation_id for job in found}) == 3
            assert {job.job.max_attempts for job in found} == {5}
            assert last.job.parent_job_id in {job.job.job_id for job in found}
        rows = await lasting_rows(jobs)
        assert {len({row[0] for row in rows[table]}) for table in rows} == {1, 2}
        passports = {row[0]: row for row in rows["passport_version"]}
        assert passports[TENANT][1] != passports["borealis"][1]
        async with Database(jobs).opened() as books:
            assert not (await verify(books, "borealis", "nonsense"))[0].holds
            png = await books.artefact(TENANT, passports[TENANT][1], "qr.png")
            (code,) = zxingcpp.read_barcodes(Image.open(io.BytesIO(png)).convert("L"))
            checks = await verify(books, TENANT, code.text)
            assert [check.holds for check in checks] == [True] * 5
            assert [check.holds for check in await verify(books, "borealis", code.text)] == [False]


def test_every_job_has_the_priority_and_the_attempts_of_the_specification() -> None:
    found = {job_type.name: job_type for job_type in steps.job_types}
    assert {name: job_type.priority for name, job_type in found.items()} == PRIORITIES
    assert {job_type.handler.policy.retry.attempts for job_type in found.values()} == {5}


async def test_a_passport_waits_for_the_last_document_and_says_for_which(kit: Kit) -> None:
    for file in documents("nordcell-ev")[:2]:
        await receive(kit.jobs, file.name, file.read_bytes(), tenant=TENANT)
    await kit.test.drain()
    found = await all_jobs(kit.jobs)
    assert not any(job.job.job_type == "COMPILE_PASSPORT" for job in found)
    assert any(b"PCF" in (job.last.result or b"") for job in found if job.last)
    await upload(kit.jobs, "nordcell-ev")
    await kit.test.drain()
    assert (await kit.ended("EXPORT_PASSPORT")).status is JobStatus.COMPLETED


async def test_the_same_documents_again_are_the_same_jobs_and_change_nothing(kit: Kit) -> None:
    await upload(kit.jobs, "nordcell-ev")
    await kit.test.drain()
    before = await lasting_rows(kit.jobs)
    assert all(handle.duplicate for handle in await upload(kit.jobs, "nordcell-ev"))
    assert (await kit.test.drain()).completed == 0
    assert await lasting_rows(kit.jobs) == before


async def test_a_newer_document_makes_a_new_version_of_the_same_passport(kit: Kit) -> None:
    await upload(kit.jobs, "nordcell-ev")
    await kit.test.drain()
    better = documents("nordcell-ev")[2].read_bytes().replace(b"21.4", b"19.4")
    await receive(kit.jobs, "pcf.json", better, tenant=TENANT, now="2026-12-01T00:00:00.000000Z")
    await kit.test.drain()
    rows = await lasting_rows(kit.jobs)
    assert len(rows["passport_version"]) == len({row[1] for row in rows["passport_version"]}) == 2
    assert len({row[2] for row in rows["passport_version"]}) == 1
    assert len(rows["fact"]) == 21


async def test_a_run_that_crashes_is_done_again_and_gives_the_same(kit: Kit) -> None:
    await upload(kit.jobs, "nordcell-ev")
    await kit.test.drain()
    whole = await lasting_rows(kit.jobs)
    for job_type in (compile_version, export_passport):
        job = await kit.ended(job_type.name)
        payload = job_type.handler.codec.decode(bytes(job.job.payload))
        await job_type.submit(payload, tenant=TENANT, idempotency_key="")
    assert (await kit.test.drain()).completed == 2
    assert await lasting_rows(kit.jobs) == whole


@pytest.mark.parametrize(
    ("sample", "step", "code"),
    [
        ("oldpack", "COMPILE_PASSPORT", "RULES_NOT_MET"),
        ("hostile", "PARSE_FACTS", "VALIDATION_ERROR"),
    ],
)
async def test_what_is_wrong_for_good_fails_at_once_with_its_code(
    kit: Kit, sample: str, step: str, code: str
) -> None:
    await upload(kit.jobs, sample)
    assert (await kit.test.drain()).failed == 1
    job = await kit.ended(step)
    assert error_of(job) == (JobStatus.FAILED, code)
    assert job.attempt == 1


async def test_without_published_rules_nothing_is_compiled(kit: Kit) -> None:
    await upload(kit.jobs, "nordcell-ev")
    await kit.test.drain()
    compiled = await kit.ended("COMPILE_PASSPORT")
    snapshot_id = compiled.job.data()["snapshot_id"]
    handle = await compile_version.submit(SealedSnapshot(snapshot_id, "unknown"), tenant=TENANT)
    await kit.test.drain()
    assert error_of(await handle.status()) == (JobStatus.FAILED, "RULE_PKG_NOT_PUBLISHED")


async def test_an_open_snapshot_cannot_be_compiled(kit: Kit) -> None:
    (first, *_) = documents("nordcell-ev")
    await receive(kit.jobs, first.name, first.read_bytes(), tenant=TENANT)
    await kit.test.drain()
    snapshot = await kit.ended("BUILD_SNAPSHOT")
    assert snapshot.last is not None
    snapshot_id = (snapshot.last.result or b"").decode().split('"')[3]
    handle = await compile_version.submit(
        SealedSnapshot(snapshot_id, current_package().rules_id), tenant=TENANT
    )
    await kit.test.drain()
    assert error_of(await handle.status()) == (JobStatus.FAILED, "SNAPSHOT_NOT_READY")


async def test_without_a_key_signing_fails_and_goes_on_when_there_is_one(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upload(kit.jobs, "nordcell-ev")
    with monkeypatch.context() as patch:
        patch.delenv(KEY_VARIABLE)
        await kit.test.drain()
    job = await kit.ended("SIGN_PASSPORT")
    assert error_of(job) == (JobStatus.FAILED, "SIGNING_KEY_MISSING")
    await kit.jobs.manager.redrive([job.job.job_id], tenant_id=TENANT, actor="test")
    await kit.test.drain()
    assert (await kit.ended("EXPORT_PASSPORT")).status is JobStatus.COMPLETED


async def test_a_document_that_is_too_large_is_not_accepted(kit: Kit) -> None:
    with pytest.raises(PayloadTooLarge):
        await receive(kit.jobs, "large", b" " * 300_000, tenant=TENANT)
    assert await all_jobs(kit.jobs) == []


async def test_the_sweep_forgets_old_documents_of_which_no_passport_was_made(kit: Kit) -> None:
    old = "2026-01-01T00:00:00.000000Z"
    await upload(kit.jobs, "nordcell-ev")
    for file in documents("voltwerk-lmt")[:2]:
        await receive(kit.jobs, file.name, file.read_bytes(), tenant=TENANT, now=old)
    await upload(kit.jobs, "hostile")
    await kit.test.drain()
    kit.test.clock.advance(KEEP_UNUSED * 20)
    handle = await retention_sweep.submit(None)
    await kit.test.drain()
    assert await handle.result() == {"forgotten": 3}
    rows = await lasting_rows(kit.jobs)
    assert len(rows["document"]) == 3
    assert len(rows["fact"]) == len(rows["reading_fact"]) == len(rows["snapshot_fact"]) == 20


def test_the_sweep_runs_every_hour_and_never_beside_itself() -> None:
    (declared,) = retention_sweep.schedules
    assert declared.schedule.overlap == "skip"
    assert "3600" in repr(declared.schedule.recurrence)


def test_leases_are_those_of_the_specification() -> None:
    worker = make_jobs("memory://").worker
    assert worker.lease == timedelta(seconds=60)
    assert worker.renew_every == timedelta(seconds=30)


async def test_no_artefact_is_kept_of_a_passport_that_is_not_there(
    make_place: Callable[[str], Place],
) -> None:
    """SQLite knows the constraint too, and heeds it only where a connection asks for that."""
    async with working(make_place("postgres")) as jobs:
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            async with Database(jobs).opened() as books:
                await books.add_artefact(TENANT, "unknown", "qr.png", b"")
