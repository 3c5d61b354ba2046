"""Reading jobs: by id, and page by page."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.clock import to_micros
from gantline.contract.query import Cursor, JobFilter, Page
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.stores.postgres.arrays import Texts, Uuids
from gantline.stores.postgres.rows import IS_OUTCOME, LOG_COLUMNS
from gantline.stores.postgres.sql import Row, Sql, looked_up, looked_up_if_there
from gantline.stores.sql.rows import (
    JOB_COLUMNS,
    JOB_WIDTH,
    LOG_WIDTH,
    job_from_row,
    log_from_row,
    snapshot,
)

_SNAPSHOT = f"""
SELECT lane.queue, lane.job_type, {JOB_COLUMNS},
       {LOG_COLUMNS}, log.crashes, log.snoozes, log.priority,
       ready.run_at, ready.version, ready.attempt, ready.crashes, ready.snoozes, ready.fence,
       ready.priority,
       lease.version, lease.attempt, lease.crashes, lease.snoozes, lease.fence, lease.priority,
       lease.session, lease.started_at, lease.until, lease.percent, lease.phase,
       lease.cancel_requested
FROM gantline.job
{looked_up("lane", "id", "job.lane")}
{looked_up_if_there("ready", "job_id", "job.id")}
{looked_up_if_there("lease", "job_id", "job.id")}
LEFT JOIN LATERAL (
    SELECT * FROM gantline.log WHERE log.job_id = job.id AND log.{IS_OUTCOME}
    ORDER BY log.version DESC LIMIT 1
) AS log ON true
WHERE job.id = ANY ({{}})
"""  # noqa: S608  # constants only
_BY_ID = _SNAPSHOT.format("%s")


# Where jobs of a status are, and the columns by which they are kept in the order of a list.
_JOBS: Final = ("gantline.job", "job.tenant", "job.created_at", "job.id")
_PLACES: Final = {
    None: _JOBS,
    JobStatus.QUEUED: (
        f"gantline.ready {looked_up('job', 'id', 'ready.job_id')}",
        "ready.tenant",
        "ready.created_at",
        "ready.job_id",
    ),
    JobStatus.RUNNING: (
        f"gantline.lease {looked_up('job', 'id', 'lease.job_id')}",
        "lease.tenant",
        "lease.created_at",
        "lease.job_id",
    ),
}
_ENDED: Final = (
    f"gantline.log {looked_up('job', 'id', 'log.job_id')}",
    "log.tenant",
    "log.created_at",
    "log.job_id",
)
_STANDS_IN: Final = {
    JobStatus.QUEUED: "EXISTS (SELECT FROM gantline.ready WHERE ready.job_id = job.id OFFSET 0)",
    JobStatus.RUNNING: "EXISTS (SELECT FROM gantline.lease WHERE lease.job_id = job.id OFFSET 0)",
}
_HAS_ENDED_AS: Final = (
    "EXISTS (SELECT FROM gantline.log AS ended WHERE ended.job_id = job.id AND ended.is_end "
    "AND ended.status = %s::text::gantline.job_status OFFSET 0)"
)
_IS_THEIRS: Final = "(job.created_by = %s AND job.created_by <> '' OR job.subject = ANY (%s))"
# Up to so many jobs of a status are looked at one by one; beyond it, those who see only their own
# are led by an index of owners or subjects.
_FEW: Final = 200
_LAST_REASON: Final = (
    "(SELECT last.reason FROM gantline.log AS last "  # noqa: S608  # constants only
    f"WHERE last.job_id = job.id AND last.{IS_OUTCOME} ORDER BY last.version DESC LIMIT 1)"
)


async def get(sql: Sql, job_ids: Sequence[UUID], tenant_id: str | None) -> list[JobSnapshot | None]:
    rows = await sql.rows(_BY_ID, Uuids(list(dict.fromkeys(job_ids))))
    found = {row[2]: row for row in rows}
    asked = [found.get(job_id) for job_id in job_ids]
    return [
        _snapshot(row) if row is not None and tenant_id in (None, row[3]) else None for row in asked
    ]


def _snapshot(row: Row) -> JobSnapshot:
    job, log = row[2:], row[2 + JOB_WIDTH :]
    last = log_from_row(log) if log[0] is not None else None
    return snapshot(job_from_row(job, (row[0], row[1])), last, log[LOG_WIDTH:])


async def find(sql: Sql, wanted: JobFilter, *, limit: int, after: Cursor | None) -> Page:
    """One keyset scan per status, merged, and the jobs of the page.

    Where somebody sees only what is his own, one per way to see a job: so each follows an index in
    the order of the list. All in one statement, which has one snapshot: else a job that moves would
    be found twice, or not at all, or in a status that nobody asked for.
    """
    visible = wanted.narrowed()
    if visible is None or not limit:
        return Page((), None)
    wanted = visible
    statuses: list[JobStatus | None] = [*sorted(wanted.statuses)] or [None]
    scans, values = [], list[object]()
    for status in statuses:
        for way in await _ways(sql, wanted, status):
            scan, of_scan = _scan(wanted, status, limit + 1, after, way)
            scans.append(f"({scan})")
            values += of_scan
    # A union, because a job that is seen in two ways is one.
    page = f"""ARRAY(
        SELECT id FROM ({" UNION ".join(scans)}) AS place
        ORDER BY created_at DESC, id DESC LIMIT %s)
    """  # noqa: S608  # built from constants; every value is a parameter
    rows = await sql.rows(_SNAPSHOT.format(page), *values, limit + 1)
    found = sorted(map(_snapshot, rows), key=_place, reverse=True)
    next_page = Cursor(*_place(found[limit - 1])) if len(found) > limit else None
    return Page(tuple(found[:limit]), next_page)


def _place(job: JobSnapshot) -> tuple[datetime, UUID]:
    return job.job.created_at, job.job.job_id


class _Way(NamedTuple):
    """One way to see a job: a condition that an index of the jobs answers, and who or what."""

    condition: str
    names: Sequence[str]


async def _ways(sql: Sql, wanted: JobFilter, status: JobStatus | None) -> list[_Way | None]:
    """How to find what is visible; None for looking at every job of the status."""
    whose = wanted.whose
    if whose is None or wanted.subject_id or wanted.created_by:
        return [None]
    if status and await _are_few(sql, wanted.tenant_id, status):
        return [None]
    ways: list[_Way | None] = []
    if whose.owner:
        ways.append(_Way("job.created_by = name AND job.created_by <> ''", [whose.owner]))
    if whose.granted:
        ways.append(_Way("job.subject = name AND job.subject <> ''", sorted(whose.granted)))
    return ways


async def _are_few(sql: Sql, tenant_id: str | None, status: JobStatus) -> bool:
    """Whether there are so few jobs in a status that looking at each costs nothing."""
    table, tenant, _, _ = _PLACES.get(status, _ENDED)
    conditions, values = ["true"], list[object]()
    if status not in _PLACES:
        conditions.append("log.is_end AND log.status = %s::text::gantline.job_status")
        values.append(str(status))
    if tenant_id is not None and status is not JobStatus.RUNNING:
        conditions.append(f"{tenant} = %s")
        values.append(tenant_id)
    ((found,),) = await sql.rows(
        f"""
        SELECT count(*) FROM (
            SELECT FROM {table.split()[0]} WHERE {" AND ".join(conditions)} LIMIT %s) AS few
        """,  # noqa: S608  # built from constants; every value is a parameter
        *values,
        _FEW + 1,
    )
    return int(found) <= _FEW


def _scan(
    wanted: JobFilter,
    status: JobStatus | None,
    limit: int,
    after: Cursor | None,
    way: _Way | None,
) -> tuple[str, list[object]]:
    """Say how to find the (created_at, id) of matching jobs in one status, newest first."""
    source, tenant, created_at, job_id = place = _JOBS if way else _PLACES.get(status, _ENDED)
    conditions, values = _conditions(wanted, way)
    if way and status:
        conditions.append(_STANDS_IN.get(status, _HAS_ENDED_AS))
        values += [] if status in _STANDS_IN else [str(status)]
    if place == _ENDED:
        conditions.append("log.is_end AND log.status = %s::text::gantline.job_status")
        values.append(str(status))
    if wanted.tenant_id is not None:
        conditions.append(f"{tenant} = %s")
        values.append(wanted.tenant_id)
    if after:
        conditions.append(f"({created_at}, {job_id}) < (%s, %s)")
        values += [to_micros(after.created_at), after.job_id]
    scan = f"""
        SELECT {created_at} AS created_at, {job_id} AS id
        FROM {source} {looked_up("lane", "id", "job.lane")}
        WHERE {" AND ".join(conditions) or "true"}
        ORDER BY {created_at} DESC, {job_id} DESC LIMIT %s
    """  # noqa: S608  # built from constants; every value is a parameter
    if way is None:
        return scan, [*values, limit]
    by_name = f"""
        SELECT place.* FROM unnest(%s) AS way (name) CROSS JOIN LATERAL ({scan}) AS place
        ORDER BY created_at DESC, id DESC LIMIT %s
    """  # noqa: S608  # built from constants; every value is a parameter
    return by_name, [Texts(way.names), *values, limit, limit]


def _conditions(wanted: JobFilter, way: _Way | None) -> tuple[list[str], list[object]]:
    equal = {
        "job.subject = %s": wanted.subject_id,
        "job.created_by = %s": wanted.created_by,
        "job.correlation = %s": wanted.correlation_id,
        "job.parent = %s": wanted.parent_job_id,
        "job.created_at >= %s": wanted.created_from and to_micros(wanted.created_from),
        "job.created_at < %s": wanted.created_before and to_micros(wanted.created_before),
    }
    among = {
        "lane.job_type": wanted.job_types,
        "lane.queue": wanted.queues,
        _LAST_REASON: wanted.reasons,
    }
    conditions = [condition for condition, value in equal.items() if value is not None]
    values: list[object] = [value for value in equal.values() if value is not None]
    for column, choices in among.items():
        if choices:
            conditions.append(f"{column} = ANY (%s)")
            values.append(Texts(sorted(choices)))
    # The terms with <> let the partial indexes be used.
    if wanted.subject_id:
        conditions.append("job.subject <> ''")
    if wanted.created_by:
        conditions.append("job.created_by <> ''")
    if way:
        conditions.append(way.condition)
    elif whose := wanted.whose:
        conditions.append(_IS_THEIRS)
        values += [whose.owner, Texts(sorted(whose.granted))]
    return conditions, values
