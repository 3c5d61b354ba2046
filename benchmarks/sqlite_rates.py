"""`rates`: jobs per second into and through the SQLite store, beside the raw limit of SQLite."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import raw_sqlite
from benchmarks.bench import Bench
from benchmarks.jobs import claim, lane_requests, new_jobs, settle
from benchmarks.report import GANTLINE
from benchmarks.scale import Scale
from benchmarks.stores import opened
from gantline.contract.outcome import Success
from gantline.contract.results import Applied
from gantline.contract.submission import NewJob
from gantline.manager.manager import JobManager
from gantline.stores.sqlite import SqliteStore

ENGINE: Final = "sqlite"
RAW: Final = "raw sqlite"
UNIT: Final = "jobs/s"

Rate = Callable[[Path], float]


class Pairing(NamedTuple):
    """A measure of ours, and the raw measure that it stands beside."""

    metric: str
    rate: Rate
    raw: str


def run(bench: Bench) -> None:
    """Take all measures once per run, ours and raw in turn, then compare within each run."""
    raw_rates = _raw_rates(bench.scale)
    pairings = _pairings(bench.scale)
    rates = raw_rates | {pairing.metric: pairing.rate for pairing in pairings}
    values: dict[str, list[float]] = {metric: [] for metric in rates}
    for number in range(bench.scale.runs):
        bench.report.say(f"  run {number + 1} of {bench.scale.runs}")
        for metric, rate in rates.items():
            with bench.empty_file() as path:
                values[metric].append(rate(path))
    for metric in rates:
        bench.report.add(
            engine=ENGINE,
            system=RAW if metric in raw_rates else GANTLINE,
            metric=metric,
            unit=UNIT,
            values=values[metric],
        )
    for pairing in pairings:
        bench.report.compare(
            engine=ENGINE,
            metric=pairing.metric,
            values=values[pairing.metric],
            beside=values[pairing.raw],
            beside_name=pairing.raw,
        )


def _raw_rates(scale: Scale) -> dict[str, Rate]:
    insert, through = raw_sqlite.insert_rate, raw_sqlite.claim_and_delete_rate
    return {
        "raw insert by 500": lambda path: insert(path, scale.batch_jobs, batch=500),
        "raw insert one by one": lambda path: insert(path, scale.single_jobs, batch=1),
        "raw claim + delete by 100": lambda path: through(path, scale.batch_jobs, batch=100),
        "raw claim + delete by 500": lambda path: through(path, scale.batch_jobs, batch=500),
    }


def _pairings(scale: Scale) -> list[Pairing]:
    batch = new_jobs(scale.batch_jobs)
    keyed = new_jobs(scale.batch_jobs, keyed=True)
    singles = new_jobs(scale.single_jobs)
    many_callers = [new_jobs(scale.jobs_per_caller) for _ in range(scale.callers)]
    return [
        Pairing("insert by 500", lambda path: _inserting(path, [batch], 500), "raw insert by 500"),
        Pairing(
            "insert by 500, keyed", lambda path: _inserting(path, [keyed], 500), "raw insert by 500"
        ),
        Pairing(
            "insert one by one",
            lambda path: _inserting(path, [singles], 1),
            "raw insert one by one",
        ),
        Pairing(
            f"insert one by one, {scale.callers} callers",
            lambda path: _inserting(path, many_callers, 1),
            "raw insert one by one",
        ),
        Pairing(
            "claim + finish by 100",
            lambda path: _finishing(path, batch, 100),
            "raw claim + delete by 100",
        ),
        Pairing(
            "claim + finish by 500",
            lambda path: _finishing(path, batch, 500),
            "raw claim + delete by 500",
        ),
    ]


def _inserting(path: Path, callers: list[list[NewJob]], batch: int) -> float:
    """Each caller inserts its own jobs, `batch` per call, waiting for each answer."""

    async def measure() -> float:
        async with opened(path) as store:
            start = time.perf_counter()
            await asyncio.gather(*(_insert_all(store, jobs, batch) for jobs in callers))
            return sum(map(len, callers)) / (time.perf_counter() - start)

    return asyncio.run(measure())


async def _insert_all(store: SqliteStore, jobs: list[NewJob], batch: int) -> None:
    for first in range(0, len(jobs), batch):
        answers = await store.insert(jobs[first : first + batch])
        assert all(isinstance(answer, Applied) for answer in answers)


def _finishing(path: Path, jobs: list[NewJob], batch: int) -> float:
    """One worker's share: claim, decide, complete; a log row and a count for every job."""

    async def measure() -> float:
        async with opened(path) as store:
            await _insert_all(store, jobs, 5_000)
            manager = JobManager(store)
            start = time.perf_counter()
            done = 0
            while runs := await claim(store, lane_requests(batch)):
                await settle(manager, runs, Success(result=b'{"sent":true}'))
                done += len(runs)
            assert done == len(jobs)
            return done / (time.perf_counter() - start)

    return asyncio.run(measure())
