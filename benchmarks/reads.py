"""`reads`: what status pages, lists and counts cost on a large SQLite file."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final
from uuid import UUID

from benchmarks.bench import Bench
from benchmarks.report import GANTLINE
from benchmarks.scale import short
from benchmarks.seeding import Group
from benchmarks.stores import opened
from gantline.contract.errors import Code
from gantline.contract.job import DEFAULT_TENANT
from gantline.contract.outcome import ErrorInfo, Failure
from gantline.contract.query import JobFilter
from gantline.contract.status import JobStatus
from gantline.stores.sqlite import SqliteStore

PAGE: Final = 50
_ERROR: Final = ErrorInfo(Code.NO_HANDLER, "It cannot be done.")

Read = Callable[[], Awaitable[object]]
Reads = Callable[[SqliteStore, list[UUID]], dict[str, Read]]


def run(bench: Bench) -> None:
    scale = bench.scale
    failed = Group(jobs=scale.most // 100, outcome=Failure(_ERROR, retryable=False))
    pending = Group(jobs=scale.most)
    asyncio.run(_measure(bench, (failed, pending), f"{short(scale.most)} pending", _every_read))
    future = Group(jobs=scale.most, priority=0, delay=timedelta(days=1))
    few = Group(jobs=scale.few)
    asyncio.run(_measure(bench, (future, few), f"{short(scale.most)} future", _counts_only))


def _every_read(store: SqliteStore, known: list[UUID]) -> dict[str, Read]:
    def found(job_filter: JobFilter) -> Read:
        return lambda: store.find(job_filter, limit=PAGE)

    return {
        "get one by id": lambda: store.get([random.choice(known)], tenant_id=DEFAULT_TENANT),
        "find newest of a tenant": found(JobFilter()),
        "find Failed": found(JobFilter(statuses=frozenset({JobStatus.FAILED}))),
        "find Queued": found(JobFilter(statuses=frozenset({JobStatus.QUEUED}))),
        "find newest of all tenants": found(JobFilter(tenant_id=None)),
        **_counts_only(store, known),
    }


def _counts_only(store: SqliteStore, known: list[UUID]) -> dict[str, Read]:
    return {
        "counts of a tenant": lambda: store.counts(tenant_id=DEFAULT_TENANT),
        "counts of all tenants": lambda: store.counts(tenant_id=None),
    }


async def _measure(bench: Bench, groups: tuple[Group, ...], case: str, reads: Reads) -> None:
    bench.report.say(f"  {case}")
    path = await asyncio.to_thread(bench.seeded_file, *groups)
    async with opened(path) as store:
        page = await store.find(JobFilter(), limit=1000)
        known = [job.job.job_id for job in page.items]
        for name, read in reads(store, known).items():
            bench.report.add(
                engine="sqlite",
                system=GANTLINE,
                metric=f"{name}, {case}",
                unit="ms",
                values=[
                    await _median_ms(read, bench.scale.reads_per_run)
                    for _ in range(bench.scale.runs)
                ],
            )


async def _median_ms(read: Read, times: int) -> float:
    spans = []
    for _ in range(times):
        start = time.perf_counter()
        await read()
        spans.append(time.perf_counter() - start)
    return statistics.median(spans) * 1000
