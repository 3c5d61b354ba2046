"""Large databases in seconds: jobs that the store itself wrote, multiplied inside SQLite.

Whatever columns the schema has are copied as they are; only ids and instants differ.
"""

import asyncio
import os
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.jobs import JOB_TYPE, claim, lane_requests, new_job, settle
from benchmarks.stores import opened
from gantline.contract.job import DEFAULT_PRIORITY
from gantline.contract.outcome import Outcome
from gantline.manager.manager import JobManager

# Per table: the column with the job's id, and the instants that differ from copy to copy.
_COPIED: Final = {
    "gantline_job": ("id", ("created_at",)),
    "gantline_ready": ("job_id", ("run_at",)),
    "gantline_log": ("job_id", ("created_at", "at")),
}
_NUMBERED_BY_SQLITE: Final = "sequence"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are alike, spread evenly over their types. Without an outcome they are Queued."""

    jobs: int
    job_types: tuple[str, ...] = (JOB_TYPE,)
    priority: int = DEFAULT_PRIORITY
    delay: timedelta = timedelta(0)
    outcome: Outcome | None = None


Tally = dict[tuple[str, int, str], int]


def seed(path: Path, groups: Sequence[Group]) -> None:
    """Make a database with these jobs, and prove that the store agrees on how many there are."""
    for group in groups:
        before = _tally(path)
        templates = asyncio.run(_insert_templates(path, group))
        _multiply(path, group, templates, before)
    asyncio.run(_check_counts(path, sum(group.jobs for group in groups)))
    _flush(path)


async def _insert_templates(path: Path, group: Group) -> list[bytes]:
    """Store one job of each type in the ordinary way."""
    jobs = [
        new_job(job_type=kind, priority=group.priority, delay=group.delay)
        for kind in group.job_types
    ]
    async with opened(path) as store:
        for new in jobs:
            await store.insert([new])  # one by one, as ordinary traffic: no two are due at once
        if group.outcome is not None:
            runs = await claim(store, lane_requests(len(jobs), *group.job_types))
            # Queued jobs of the same types would be claimed in their place.
            assert {run.job.job_id for run in runs} == {new.job.job_id for new in jobs}
            await settle(JobManager(store), runs, group.outcome)
    return [new.job.job_id.bytes for new in jobs]


def _multiply(path: Path, group: Group, templates: list[bytes], before: Tally) -> None:
    copies, rest = divmod(group.jobs, len(templates))
    assert not rest
    after = _tally(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = OFF")  # a file that breaks here is made anew
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -200000")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("CREATE TEMP TABLE copy (template BLOB, id BLOB, shift INTEGER)")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO copy VALUES (?, ?, ?)", _copies(templates, copies))
    for table, (job_id, instants) in _COPIED.items():
        _copy_rows(connection, table, job_id, instants)
    connection.executemany(
        "UPDATE gantline_tally SET jobs = jobs + ? WHERE tenant = ? AND lane = ? AND status = ?",
        [((jobs - before.get(place, 0)) * (copies - 1), *place) for place, jobs in after.items()],
    )
    connection.execute("COMMIT")
    connection.close()


def _copies(templates: list[bytes], copies: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Types take turns, ids rise with time as version 7 does, and all instants lie in the past."""
    last = int.from_bytes(max(templates), "big")
    total = (copies - 1) * len(templates)
    for number in range(total):
        job_id = (last - ((total - number) << 64)).to_bytes(16, "big")
        yield templates[number % len(templates)], job_id, number - total


def _copy_rows(
    connection: sqlite3.Connection, table: str, job_id: str, instants: tuple[str, ...]
) -> None:
    connection.execute(
        f"CREATE TEMP TABLE template_{table} AS "  # noqa: S608  # constants only
        f"SELECT * FROM {table} WHERE {job_id} IN (SELECT template FROM copy)"
    )
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    values = {name: f"template_{table}.{name}" for name in names}
    values[job_id] = "copy.id"
    values |= {name: f"{values[name]} + copy.shift" for name in instants}
    values |= {name: "NULL" for name in names if name == _NUMBERED_BY_SQLITE}
    connection.execute(
        f"INSERT INTO {table} SELECT {', '.join(values.values())} "  # noqa: S608  # constants only
        f"FROM copy JOIN template_{table} ON template_{table}.{job_id} = copy.template"
    )
    connection.execute(f"DROP TABLE template_{table}")


def _tally(path: Path) -> Tally:
    if not path.exists():
        return {}
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT tenant, lane, status, jobs FROM gantline_tally").fetchall()
    connection.close()
    return {(tenant, lane, status): jobs for tenant, lane, status, jobs in rows}


async def _check_counts(path: Path, jobs: int) -> None:
    async with opened(path) as store:
        counted = await store.counts(tenant_id=None)
    in_all = sum(lane.queued + lane.completed + lane.failed for lane in counted)
    assert in_all == jobs, f"{in_all} jobs instead of {jobs}"


def _flush(path: Path) -> None:
    """Let the disk finish now, so that its work does not fall into what is measured."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
