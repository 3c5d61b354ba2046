"""What status pages, lists and counts cost on a large database."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from benchmarks.contest.system import OURS
from benchmarks.postgres.seeding import Group, seed, settle_disk
from benchmarks.postgres.stage import Stage
from benchmarks.postgres.store import opened
from benchmarks.scale import short
from gantline.contract.errors import Code
from gantline.contract.job import DEFAULT_TENANT
from gantline.contract.outcome import ErrorInfo, Failure, Success
from gantline.contract.query import JobFilter
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore

_PAGE: Final = 50
_LONGEST_RUN_SECONDS: Final = 1.0
_TENANTS: Final = 1_000
_ONE_OF_MANY: Final = "tenant-7"
_FAILURE: Final = Failure(ErrorInfo(Code.NO_HANDLER, "It cannot be done."), retryable=False)

Read = Callable[[], Awaitable[object]]


def run(stage: Stage) -> None:
    rows = stage.scale.stored_jobs
    stage.say(f"reads among {short(rows)} jobs")
    with stage.database(OURS, "reads") as url:
        seed(url, _population(rows))
        settle_disk(url)
        asyncio.run(_measure(stage, url, f"{short(rows)} jobs"))


def _population(rows: int) -> tuple[Group, ...]:
    """Half in one tenant, half in a thousand; of each half most are done, and some wait."""
    failed, queued = rows // 200, rows // 20
    completed = rows // 2 - failed - queued
    parts = ((completed, Success(b"true")), (failed, _FAILURE), (queued, None))
    return tuple(
        Group(jobs=jobs, tenants=tenants, outcome=outcome)
        for jobs, outcome in parts
        for tenants in (1, _TENANTS)
    )


def _reads(store: JobStore, known: list[UUID]) -> dict[str, Read]:
    def found(job_filter: JobFilter) -> Read:
        return lambda: store.find(job_filter, limit=_PAGE)

    finds = {}
    owners = (
        ("of all tenants", None),
        ("of a large tenant", DEFAULT_TENANT),
        ("of a tenant", _ONE_OF_MANY),
    )
    for whose, tenant in owners:
        finds[f"find newest {whose}"] = found(JobFilter(tenant_id=tenant))
        for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.QUEUED):
            job_filter = JobFilter(tenant_id=tenant, statuses=frozenset({status}))
            finds[f"find {status} {whose}"] = found(job_filter)
    return {
        "get one by id": lambda: store.get([random.choice(known)], tenant_id=None),
        **finds,
        "counts of a tenant": lambda: store.counts(tenant_id=_ONE_OF_MANY),
        "counts of a large tenant": lambda: store.counts(tenant_id=DEFAULT_TENANT),
        "counts of all tenants": lambda: store.counts(tenant_id=None),
    }


async def _measure(stage: Stage, url: str, case: str) -> None:
    async with opened(url) as store:
        page = await store.find(JobFilter(tenant_id=None), limit=1000)
        known = [job.job.job_id for job in page.items]
        for name, read in _reads(store, known).items():
            await read()
            values = [
                await _median_ms(read, stage.scale.reads_per_run)
                for _ in range(stage.scale.worker_runs)
            ]
            stage.add(f"{name}, {case}", "ms", values)


async def _median_ms(read: Read, times: int) -> float:
    """So often at most; a slow read is not made to take minutes."""
    spans: list[float] = []
    while len(spans) < times and sum(spans) < _LONGEST_RUN_SECONDS:
        start = time.perf_counter()
        await read()
        spans.append(time.perf_counter() - start)
    return statistics.median(spans) * 1000
