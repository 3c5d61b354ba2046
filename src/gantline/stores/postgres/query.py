"""Reading jobs: by id, and page by page."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.clock import from_micros, to_micros
from gantline.contract.query import Cursor, JobFilter, Page
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus, State, status_of
from gantline.stores.postgres.arrays import Texts, Uuids
from gantline.stores.postgres.rows import IS_OUTCOME, LOG_COLUMNS
from gantline.stores.postgres.sql import Row, Sql, join_one, left_join_one
from gantline.stores.sql.filters import (
    PASSED_OVER,
    Listed,
    Position,
    Terms,
    make_part_terms,
    make_state_terms,
    make_terms,
)
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


_JOBS: Final = Listed("gantline.job", "job.tenant", "job.created_at", "job.id")
_SOURCES: Final = {
    None: _JOBS,
    JobStatus.QUEUED: Listed(
        f"gantline.ready {join_one('job', 'id', 'ready.job_id')}",
        "ready.tenant",
        "ready.created_at",
        "ready.job_id",
    ),
    # As many as run at once: they are sorted.
    JobStatus.RUNNING: Listed(
        f"gantline.lease {join_one('job', 'id', 'lease.job_id')}",
        "lease.tenant",
        "lease.created_at",
        "lease.job_id",
        is_indexed=False,
    ),
}
_ENDED: Final = Listed(
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
_IS_OWNED: Final = "job.created_by = name AND job.created_by <> ''"
_IS_OF_SUBJECT: Final = "job.subject = name AND job.subject <> ''"
_IS_THEIRS: Final = "(job.created_by = %s AND job.created_by <> '' OR job.subject = ANY (%s))"
# Up to so many jobs of a status are checked one by one. With more, an index of owners or subjects
# finds the jobs of a caller who may see only his own.
_FEW: Final = 200
# To skip more at once, or without fresh statistics, the planner may sort all jobs of a tenant: so
# 200,000 rows were read instead of 20,000, with steps of 2,000 too.
_MOST_SKIPPED: Final = 250


def _of_last(column: str) -> str:
    return (
        f"(SELECT last.{column} FROM gantline.log AS last "  # noqa: S608  # constants only
        f"WHERE last.job_id = job.id AND last.{IS_OUTCOME} ORDER BY last.version DESC LIMIT 1)"
    )


# A job that was removed by hand has left its row here.
_PAST_EXPIRY = f"""
SELECT ready.job_id FROM gantline.ready {join_one("job", "id", "ready.job_id")}
WHERE ready.expires_at <= coalesce(%s, gantline.micros())
ORDER BY ready.expires_at, ready.job_id LIMIT %s
"""  # noqa: S608  # constants only

_ATTEMPT: Final = f"""coalesce(
    (SELECT waiting.attempt FROM gantline.ready AS waiting WHERE waiting.job_id = job.id),
    (SELECT running.attempt FROM gantline.lease AS running WHERE running.job_id = job.id),
    {_of_last("attempt")})"""  # noqa: S608  # constants only


async def past_expiry(sql: Sql, *, limit: int, now: int | None) -> list[UUID]:
    return [row[0] for row in await sql.rows(_PAST_EXPIRY, now, limit)]


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

    Where an index of owners or subjects serves, one per way to find a job: so each follows an index
    in the order of the list, down to where it may stop. All in one statement, which has one
    snapshot: else a job that moves would be found twice, or not at all, or in a status that nobody
    asked for.
    """
    narrowed = filter.narrowed()
    if narrowed is None or not limit:
        return Page((), None)
    filter = narrowed
    states: list[State | None] = [*sorted(filter.statuses)] or [None]
    scans = [
        _plan(filter, state, way, now)
        for state in states
        for way in await _find_ways(sql, filter, None if state is None else status_of(state))
    ]
    begin = (to_micros(after.created_at), after.job_id) if after else None
    for passed_over in PASSED_OVER:
        end = await _find_end(sql, filter, scans, begin, limit + passed_over // len(scans))
        found = await _read(sql, filter, scans, begin, end, limit + 1)
        if end is None or len(found) > limit:
            break
    if len(found) > limit:
        return Page(tuple(found[:limit]), Cursor(*_position(found[limit - 1])))
    return Page(tuple(found), Cursor(from_micros(end[0]), end[1]) if end else None)


async def _find_end(
    sql: Sql, filter: JobFilter, scans: Sequence["_Scan"], begin: Position | None, most: int
) -> tuple[int, UUID] | None:
    """Find how far the scans may go: where they have read so many rows, if there are more."""
    indexed = [scan for scan in scans if scan.listed.is_indexed]
    if filter.tenant_id is None or not indexed:
        return None
    if most > _MOST_SKIPPED:
        ends = [await _find_end_in_steps(sql, filter, scan, begin, most) for scan in indexed]
        return max((end for end in ends if end), default=None)
    selects = [_select(filter, scan, begin, None, limit=1, skipped=most) for scan in indexed]
    statement, values = _newest_of(selects, 1)
    rows = await sql.rows(statement, *values)
    return (rows[0][0], rows[0][1]) if rows else None


async def _find_end_in_steps(
    sql: Sql, filter: JobFilter, scan: "_Scan", begin: Position | None, most: int
) -> tuple[int, UUID] | None:
    end: tuple[int, UUID] | None = None
    left = most + 1
    while left:
        step = left if scan.way else min(left, _MOST_SKIPPED)
        select, values = _select(filter, scan, end or begin, None, limit=1, skipped=step - 1)
        rows = await sql.rows(select, *values)
        if not rows:
            return None
        end, left = (rows[0][0], rows[0][1]), left - step
    return end


async def _read(
    sql: Sql,
    filter: JobFilter,
    scans: Sequence["_Scan"],
    begin: Position | None,
    end: Position | None,
    limit: int,
) -> list[JobSnapshot]:
    selects = [_select(filter, scan, begin, end, limit=limit) for scan in scans]
    newest, values = _newest_of(selects, limit)
    page = f"ARRAY(SELECT id FROM ({newest}) AS page)"  # noqa: S608  # built from constants
    rows = await sql.rows(_SNAPSHOT.format(page), *values)
    return sorted(map(_read_snapshot, rows), key=_position, reverse=True)


def _newest_of(selects: Sequence[tuple[str, list[object]]], limit: int) -> tuple[str, list[object]]:
    """Write a union, because a job that is found in two ways is one."""
    union = " UNION ".join(f"({select})" for select, _ in selects)
    statement = f"""
        SELECT created_at, id FROM ({union}) AS found ORDER BY created_at DESC, id DESC LIMIT %s
    """  # noqa: S608  # built from constants; every value is a parameter
    return statement, [*(value for _, values in selects for value in values), limit]


def _position(job: JobSnapshot) -> tuple[datetime, UUID]:
    return job.job.created_at, job.job.job_id


class _Way(NamedTuple):
    """One way to find a job: a condition for which there is an index, and its values."""

    condition: str
    names: Sequence[str]
    is_visible: bool
    """Whether the caller may see all that is found."""


async def _find_ways(sql: Sql, filter: JobFilter, status: JobStatus | None) -> list[_Way | None]:
    """Choose the ways to find what is meant; None means checking every job of the status."""
    whose = filter.whose
    if whose is None and not filter.subject_id and not filter.created_by:
        return [None]
    if status and await _are_few(sql, filter.tenant_id, status):
        return [None]
    if filter.subject_id:
        return [_Way(_IS_OF_SUBJECT, [filter.subject_id], is_visible=whose is None)]
    if whose is None or filter.created_by:
        return [_Way(_IS_OWNED, [filter.created_by or ""], is_visible=whose is None)]
    ways: list[_Way | None] = []
    if whose.owner:
        ways.append(_Way(_IS_OWNED, [whose.owner], is_visible=True))
    if whose.granted:
        ways.append(_Way(_IS_OF_SUBJECT, sorted(whose.granted), is_visible=True))
    return ways


async def _are_few(sql: Sql, tenant_id: str | None, status: JobStatus) -> bool:
    """Whether a status has so few jobs that each can be checked."""
    listed = _SOURCES.get(status, _ENDED)
    conditions, values = ["true"], list[object]()
    if status not in _SOURCES:
        conditions.append("log.is_end AND log.status = %s::text::gantline.job_status")
        values.append(str(status))
    if tenant_id is not None and status is not JobStatus.RUNNING:
        conditions.append(f"{listed.tenant} = %s")
        values.append(tenant_id)
    ((found,),) = await sql.rows(
        f"""
        SELECT count(*) FROM (
            SELECT FROM {listed.source.split()[0]} WHERE {" AND ".join(conditions)} LIMIT %s) AS few
        """,  # noqa: S608  # built from constants; every value is a parameter
        *values,
        _FEW + 1,
    )
    return int(found) <= _FEW


class _Scan(NamedTuple):
    """Rows in the order of a list: the conditions that an index answers, and the others."""

    listed: Listed
    way: _Way | None
    indexed: Terms
    checked: Terms


def _plan(filter: JobFilter, state: State | None, way: _Way | None, now: int | None) -> _Scan:
    """Choose how to find the matching jobs in one state."""
    status = None if state is None else status_of(state)
    listed = _JOBS if way else _SOURCES.get(status, _ENDED)
    indexed: Terms = ([], [])
    if way:
        indexed = [way.condition], []
    elif listed is _ENDED:
        indexed = ["log.is_end AND log.status = %s::text::gantline.job_status"], [str(status)]
    conditions, values = make_state_terms(
        filter,
        state,
        placeholder="%s",
        now="(SELECT gantline.micros())" if now is None else str(now),
        of_last=_of_last,
    )
    if way and status:
        if status in _HAS_STATUS:
            of_state = "".join(f" AND {one}" for one in conditions)
            conditions = [_HAS_STATUS[status].format(of_state)]
        else:
            conditions.append(_HAS_ENDED_AS)
            values.append(str(status))
    more, more_values = _conditions(filter, way)
    return _Scan(listed, way, indexed, ([*conditions, *more], [*values, *more_values]))


def _select(
    filter: JobFilter,
    scan: _Scan,
    begin: Position | None,
    end: Position | None,
    *,
    limit: int,
    skipped: int | None = None,
) -> tuple[str, list[object]]:
    """Write the query for the (created_at, id) of what matches in a part of a list, newest first.

    With `skipped`, of all that the index leads through, but so many.
    """
    listed = scan.listed
    part = make_part_terms(filter, listed, begin, end, placeholder="%s")
    source, terms = listed.source.split()[0], [part, scan.indexed]
    if skipped is None:
        source = f"{listed.source} {join_one('lane', 'id', 'job.lane')}"
        terms.append(scan.checked)
    conditions = [one for some, _ in terms for one in some]
    values = [one for _, some in terms for one in some]
    select = f"""
        SELECT {listed.created_at} AS created_at, {listed.job_id} AS id
        FROM {source} WHERE {" AND ".join(conditions) or "true"}
        ORDER BY {listed.created_at} DESC, {listed.job_id} DESC LIMIT %s OFFSET %s
    """  # noqa: S608  # built from constants; every value is a parameter
    values += [limit, skipped or 0]
    if scan.way is None:
        return select, values
    by_name = f"""
        SELECT found.* FROM unnest(%s) AS way (name) CROSS JOIN LATERAL ({select}) AS found
        ORDER BY created_at DESC, id DESC LIMIT %s
    """  # noqa: S608  # built from constants; every value is a parameter
    return by_name, [Texts(scan.way.names), *values, limit]


def _conditions(filter: JobFilter, way: _Way | None) -> Terms:
    conditions, values = make_terms(
        filter,
        placeholder="%s",
        parent=filter.parent_job_id,
        of_last=_of_last,
        attempt=_ATTEMPT,
        among=lambda column, some: ([f"{column} = ANY (%s)"], [Texts(some)]),
    )
    if (whose := filter.whose) and not (way and way.is_visible):
        conditions.append(_IS_THEIRS)
        values += [whose.owner, Texts(sorted(whose.granted))]
    return conditions, values
