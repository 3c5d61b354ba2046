"""Millions of jobs in seconds: some that the store itself wrote, multiplied inside PostgreSQL.

Whatever columns the tables have are copied as they are; only ids, tenants and instants differ.
"""

import asyncio
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
import psycopg

from benchmarks.contest.on_gantline import NO_OP
from benchmarks.jobs import claim, lane_requests, new_job, settle
from benchmarks.postgres.store import opened
from gantline.contract.job import DEFAULT_PRIORITY, DEFAULT_TENANT
from gantline.contract.outcome import Outcome
from gantline.manager.manager import JobManager

# Per table: the column with the job's id, the instants that differ from copy to copy, and the
# column that the server numbers.
_COPIED: Final = {
    "job": ("id", ("created_at",), ""),
    "ready": ("job_id", ("created_at", "run_at"), ""),
    "log": ("job_id", ("created_at", "at"), "id"),
}
# Ids rise with time as those of version 7 do; the tag keeps apart what was seeded at other times.
_COPIES: Final = """
CREATE TEMP TABLE copy AS
SELECT template.id AS template, number - %(total)s AS shift,
       (lpad(to_hex(%(millis)s - (%(total)s - number) / 1000), 12, '0') || '7' || %(tag)s
        || lpad(to_hex(number), 12, '0'))::uuid AS id,
       CASE WHEN %(tenants)s = 1 THEN %(tenant)s
            ELSE 'tenant-' || number %% %(tenants)s END AS tenant
FROM generate_series(1, %(total)s) AS number
JOIN unnest(%(templates)s::uuid[]) WITH ORDINALITY AS template (id, place)
  ON template.place = 1 + number %% %(types)s
"""
_TALLY: Final = """
INSERT INTO gantline.tally AS sum (tenant, lane, live, completed, failed, poisoned, cancelled)
SELECT copy.tenant, job.lane, count(*) FILTER (WHERE log.status IS NULL),
       count(*) FILTER (WHERE log.status = 'Completed'),
       count(*) FILTER (WHERE log.status = 'Failed'), 0, 0
FROM copy JOIN gantline.job ON job.id = copy.template
LEFT JOIN gantline.log ON log.job_id = copy.template
GROUP BY copy.tenant, job.lane
ON CONFLICT (tenant, lane) DO UPDATE SET
    live = sum.live + excluded.live, completed = sum.completed + excluded.completed,
    failed = sum.failed + excluded.failed
"""
_EVENTS_AT_ONCE: Final = 100_000


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are alike, spread evenly over their types and tenants. Without outcome: Queued.

    One more of each type is there besides: the template.
    """

    jobs: int
    job_types: tuple[str, ...] = (NO_OP,)
    tenants: int = 1
    priority: int = DEFAULT_PRIORITY
    delay: timedelta = timedelta(0)
    outcome: Outcome | None = None


def seed(url: str, groups: Sequence[Group]) -> None:
    """Add jobs. Those that have ended come first, as nothing of their types may be Queued yet."""
    for group in groups:
        templates = asyncio.run(_insert_templates(url, group))
        _multiply(url, group, templates)
    asyncio.run(_sequence_events(url))


def settle_disk(url: str) -> None:
    """Let the server do now what would fall into what is measured."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


async def _insert_templates(url: str, group: Group) -> list[UUID]:
    """Store one job of each type in the ordinary way."""
    jobs = [
        new_job(job_type=kind, priority=group.priority, delay=group.delay)
        for kind in group.job_types
    ]
    async with opened(url) as store:
        await store.insert(jobs)
        if group.outcome is not None:
            runs = await claim(store, lane_requests(len(jobs), *group.job_types))
            assert {run.job.job_id for run in runs} == {new.job.job_id for new in jobs}
            await settle(JobManager(store), runs, group.outcome)
    return [new.job.job_id for new in jobs]


def _multiply(url: str, group: Group, templates: list[UUID]) -> None:
    values = {
        "total": group.jobs,
        "millis": templates[0].int >> 80,
        "tag": secrets.token_hex(3)[:3] + "8" + secrets.token_hex(2)[:3],
        "tenants": group.tenants,
        "tenant": DEFAULT_TENANT,
        "templates": templates,
        "types": len(templates),
    }
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL synchronous_commit = off")
        connection.execute(_COPIES, values)
        connection.execute("ANALYZE copy")
        for table, (job_id, instants, numbered) in _COPIED.items():
            _copy_rows(connection, table, job_id, instants, numbered)
        connection.execute(_TALLY)


def _copy_rows(
    connection: psycopg.Connection[Any],
    table: str,
    job_id: str,
    instants: tuple[str, ...],
    numbered: str,
) -> None:
    rows = connection.execute(
        "SELECT attname FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
        "AND attgenerated = ''",
        [f"gantline.{table}"],
    )
    names = [name for (name,) in rows if name != numbered]
    values = {name: f"source.{name}" for name in names}
    values |= {job_id: "copy.id", "tenant": "copy.tenant"}
    values |= {name: f"source.{name} + copy.shift" for name in instants}
    statement = (
        f"INSERT INTO gantline.{table} ({', '.join(names)}) SELECT {', '.join(values.values())} "  # noqa: S608
        f"FROM copy JOIN gantline.{table} AS source ON source.{job_id} = copy.template "
        "ORDER BY copy.shift"
    )
    connection.execute(statement.encode())


async def _sequence_events(url: str) -> None:
    """Number what is in the log, or the first worker would do so while it is measured."""
    async with opened(url) as store:
        while await store.sequence(limit=_EVENTS_AT_ONCE):
            pass
