"""Reading jobs: by id, and page by page."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.clock import to_micros
from gantline.contract.query import Cursor, JobFilter, Page
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus, State, status_of
from gantline.stores.postgres.arrays import Texts, Uuids
from gantline.stores.postgres.rows import IS_OUTCOME, LOG_COLUMNS
from gantline.stores.postgres.sql import Row, Sql, join_one, left_join_one
from gantline.stores.sql.filters import Terms, make_state_terms, make_terms
from gantline.stores.sql.rows import (
    JOB_COLUMNS,
    JOB_WIDTH,
    LOG_WIDTH,
    job_from_row,
    log_from_row,
    make_snapshot,
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
{join_one("lane", "id", "job.lane")}
{left_join_one("ready", "job_id", "job.id")}
{left_join_one("lease", "job_id", "job.id")}
LEFT JOIN LATERAL (
    SELECT * FROM gantline.log WHERE log.job_id = job.id AND log.{IS_OUTCOME}
    ORDER BY log.version DESC LIMIT 1
) AS log ON true
WHERE job.id = ANY ({{}})
"""  # noqa: S608  # constants only
_BY_ID = _SNAPSHOT.format("%s")


# The table with the jobs of a status, and its columns that have an index in the order of a list.
_JOBS: Final = ("gantline.job", "job.tenant", "job.created_at", "job.id")
_SOURCES: Final = {
    None: _JOBS,
    JobStatus.QUEUED: (
        f"gantline.ready {join_one('job', 'id', 'ready.job_id')}",
        "ready.tenant",
        "ready.created_at",
        "ready.job_id",
    ),
    JobStatus.RUNNING: (
        f"gantline.lease {join_one('job', 'id', 'lease.job_id')}",
        "lease.tenant",
        "lease.created_at",
        "lease.job_id",
    ),
}
_ENDED: Final = (
    f"gantline.log {join_one('job', 'id', 'log.job_id')}",
    "log.tenant",
    "log.created_at",
    "log.job_id",
)
_HAS_STATUS: Final = {
    JobStatus.QUEUED: "EXISTS (SELECT FROM gantline.ready WHERE ready.job_id = job.id{} OFFSET 0)",
    JobStatus.RUNNING: "EXISTS (SELECT FROM gantline.lease WHERE lease.job_id = job.id{} OFFSET 0)",
}
_HAS_ENDED_AS: Final = (
    "EXISTS (SELECT FROM gantline.log AS ended WHERE ended.job_id = job.id AND ended.is_end "
    "AND ended.status = %s::text::gantline.job_status OFFSET 0)"
)
_IS_THEIRS: Final = "(job.created_by = %s AND job.created_by <> '' OR job.subject = ANY (%s))"
# Up to so many jobs of a status are checked one by one. With more, an index of owners or subjects
# finds the jobs of a caller who may see only his own.
_FEW: Final = 200


def _of_last(column: str) -> str:
    return (
        f"(SELECT last.{column} FROM gantline.log AS last "  # noqa: S608  # constants only
        f"WHERE last.job_id = job.id AND last.{IS_OUTCOME} ORDER BY last.version DESC LIMIT 1)"
    )


_ATTEMPT: Final = f"""coalesce(
    (SELECT waiting.attempt FROM gantline.ready AS waiting WHERE waiting.job_id = job.id),
    (SELECT running.attempt FROM gantline.lease AS running WHERE running.job_id = job.id),
    {_of_last("attempt")})"""  # noqa: S608  # constants only


async def get(sql: Sql, job_ids: Sequence[UUID], tenant_id: str | None) -> list[JobSnapshot | None]:
    rows = await sql.rows(_BY_ID, Uuids(list(dict.fromkeys(job_ids))))
    found = {row[2]: row for row in rows}
    ordered = [found.get(job_id) for job_id in job_ids]
    return [
        _read_snapshot(row) if row is not None and tenant_id in (None, row[3]) else None
        for row in ordered
    ]


def _read_snapshot(row: Row) -> JobSnapshot:
    job, log = row[2:], row[2 + JOB_WIDTH :]
    last = log_from_row(log) if log[0] is not None else None
    return make_snapshot(job_from_row(job, (row[0], row[1])), last, log[LOG_WIDTH:])


async def find(
    sql: Sql, filter: JobFilter, *, limit: int, after: Cursor | None, now: int | None
) -> Page:
    """Merge keyset scans, one per status, and read the jobs of the page.

    Where the caller sees only his own jobs, one per way to see a job: so each follows an index in
    the order of the list. All in one statement, which has one snapshot: else a job that moves would
    be found twice, or not at all, or in a status that nobody asked for.
    """
    narrowed = filter.narrowed()
    if narrowed is None or not limit:
        return Page((), None)
    filter = narrowed
    states: list[State | None] = [*sorted(filter.statuses)] or [None]
    scans, values = [], list[object]()
    for state in states:
        for way in await _find_ways(sql, filter, None if state is None else status_of(state)):
            scan, of_scan = _scan(filter, state, limit + 1, after, way, now)
            scans.append(f"({scan})")
            values += of_scan
    # A union, because a job that is seen in two ways is one.
    page = f"""ARRAY(
        SELECT id FROM ({" UNION ".join(scans)}) AS found
        ORDER BY created_at DESC, id DESC LIMIT %s)
    """  # noqa: S608  # built from constants; every value is a parameter
    rows = await sql.rows(_SNAPSHOT.format(page), *values, limit + 1)
    found = sorted(map(_read_snapshot, rows), key=_position, reverse=True)
    next_page = Cursor(*_position(found[limit - 1])) if len(found) > limit else None
    return Page(tuple(found[:limit]), next_page)


def _position(job: JobSnapshot) -> tuple[datetime, UUID]:
    return job.job.created_at, job.job.job_id


class _Way(NamedTuple):
    """One way to see a job: a condition for which there is an index, and its values."""

    condition: str
    names: Sequence[str]


async def _find_ways(sql: Sql, filter: JobFilter, status: JobStatus | None) -> list[_Way | None]:
    """Choose the ways to find what is visible; None means checking every job of the status."""
    whose = filter.whose
    if whose is None or filter.subject_id or filter.created_by:
        return [None]
    if status and await _are_few(sql, filter.tenant_id, status):
        return [None]
    ways: list[_Way | None] = []
    if whose.owner:
        ways.append(_Way("job.created_by = name AND job.created_by <> ''", [whose.owner]))
    if whose.granted:
        ways.append(_Way("job.subject = name AND job.subject <> ''", sorted(whose.granted)))
    return ways


async def _are_few(sql: Sql, tenant_id: str | None, status: JobStatus) -> bool:
    """Whether a status has so few jobs that each can be checked."""
    table, tenant, _, _ = _SOURCES.get(status, _ENDED)
    conditions, values = ["true"], list[object]()
    if status not in _SOURCES:
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
    filter: JobFilter,
    state: State | None,
    limit: int,
    after: Cursor | None,
    way: _Way | None,
    now: int | None,
) -> tuple[str, list[object]]:
    """Make the query for the (created_at, id) of matching jobs in one state, newest first."""
    status = None if state is None else status_of(state)
    source, tenant, created_at, job_id = table = _JOBS if way else _SOURCES.get(status, _ENDED)
    conditions, values = _conditions(filter, way, created_at)
    of_state, state_values = make_state_terms(
        filter,
        state,
        placeholder="%s",
        now="(SELECT gantline.micros())" if now is None else str(now),
        of_last=_of_last,
    )
    if way and status:
        more = "".join(f" AND {one}" for one in of_state)
        conditions.append(_HAS_STATUS.get(status, _HAS_ENDED_AS).format(more))
        values += state_values if status in _HAS_STATUS else [str(status)]
    else:
        conditions += of_state
        values += state_values
    if table == _ENDED:
        conditions.append("log.is_end AND log.status = %s::text::gantline.job_status")
        values.append(str(status))
    if filter.tenant_id is not None:
        conditions.append(f"{tenant} = %s")
        values.append(filter.tenant_id)
    if after:
        conditions.append(f"({created_at}, {job_id}) < (%s, %s)")
        values += [to_micros(after.created_at), after.job_id]
    scan = f"""
        SELECT {created_at} AS created_at, {job_id} AS id
        FROM {source} {join_one("lane", "id", "job.lane")}
        WHERE {" AND ".join(conditions) or "true"}
        ORDER BY {created_at} DESC, {job_id} DESC LIMIT %s
    """  # noqa: S608  # built from constants; every value is a parameter
    if way is None:
        return scan, [*values, limit]
    by_name = f"""
        SELECT found.* FROM unnest(%s) AS way (name) CROSS JOIN LATERAL ({scan}) AS found
        ORDER BY created_at DESC, id DESC LIMIT %s
    """  # noqa: S608  # built from constants; every value is a parameter
    return by_name, [Texts(way.names), *values, limit, limit]


def _conditions(filter: JobFilter, way: _Way | None, created_at: str) -> Terms:
    conditions, values = make_terms(
        filter,
        placeholder="%s",
        created_at=created_at,
        parent=filter.parent_job_id,
        of_last=_of_last,
        attempt=_ATTEMPT,
        among=lambda column, some: ([f"{column} = ANY (%s)"], [Texts(some)]),
    )
    if way:
        conditions.append(way.condition)
    elif whose := filter.whose:
        conditions.append(_IS_THEIRS)
        values += [whose.owner, Texts(sorted(whose.granted))]
    return conditions, values
