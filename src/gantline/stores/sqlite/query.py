"""Reading jobs: by id, and page by page."""

import heapq
import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.clock import from_micros, to_micros
from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.query import Cursor, JobFilter, Page
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import DerivedState, JobStatus, State, status_of
from gantline.stores.ranks import PRIORITIES
from gantline.stores.sql.filters import Terms, make_state_terms, make_terms
from gantline.stores.sql.rows import (
    JOB_COLUMNS,
    JOB_WIDTH,
    LOG_WIDTH,
    job_from_row,
    log_from_row,
    make_snapshot,
)
from gantline.stores.sqlite.counts import count_queued
from gantline.stores.sqlite.rows import IS_OUTCOME, LOG_COLUMNS, Row, execute_in, placeholders

_SNAPSHOT = f"""
SELECT {JOB_COLUMNS}, lane.queue, lane.job_type,
       {LOG_COLUMNS}, log.crashes, log.snoozes, log.priority,
       ready.run_at, ready.version, ready.attempt, ready.crashes, ready.snoozes, ready.fence,
       ready.rank % {PRIORITIES},
       lease.version, lease.attempt, lease.crashes, lease.snoozes, lease.fence, lease.priority,
       lease.session, lease.started_at, lease.until, lease.percent, lease.phase,
       lease.cancel_requested
FROM gantline_job AS job
JOIN gantline_lane AS lane ON lane.id = job.lane
LEFT JOIN gantline_ready AS ready ON ready.job_id = job.id
LEFT JOIN gantline_lease AS lease ON lease.job_id = job.id
LEFT JOIN gantline_log AS log ON log.sequence = (
    SELECT sequence FROM gantline_log WHERE job_id = job.id AND {IS_OUTCOME}
    ORDER BY version DESC LIMIT 1)
WHERE job.id IN {{}}
"""  # noqa: S608  # constants only

# With more Queued jobs than this it is faster to scan all jobs, newest first, than to sort these.
_MANY_QUEUED: Final = 20_000

_SOURCES: Final = {
    None: "gantline_job AS job",
    JobStatus.QUEUED: "gantline_ready AS ready JOIN gantline_job AS job ON job.id = ready.job_id",
    JobStatus.RUNNING: "gantline_lease AS lease JOIN gantline_job AS job ON job.id = lease.job_id",
}
_ENDED: Final = "gantline_log AS log JOIN gantline_job AS job ON job.id = log.job_id"
_HAS_STATUS: Final = {
    JobStatus.QUEUED: "EXISTS (SELECT 1 FROM gantline_ready AS ready WHERE job_id = job.id{})",
    JobStatus.RUNNING: "EXISTS (SELECT 1 FROM gantline_lease AS lease WHERE job_id = job.id{})",
}
# Every range of the queue that has jobs has a floor: so only the rows of the instants are read.
_IN_RANGES: Final = (
    "gantline_floor AS floor CROSS JOIN gantline_ready AS ready "
    "ON ready.lane = floor.lane AND ready.rank = floor.rank"
)
_HAS_ENDED_AS: Final = (
    "EXISTS (SELECT 1 FROM gantline_log AS ended "
    "WHERE ended.job_id = job.id AND ended.is_end = 1 AND ended.status = ?)"
)
_IS_OWNED: Final = "(job.created_by = ? AND job.created_by <> '')"
_IS_OF_SUBJECT: Final = "(job.subject = ? AND job.subject <> '')"
# Up to so many jobs of a status are checked one by one. With more, an index of owners or subjects
# finds the jobs of a caller who may see only his own.
_FEW: Final = 200


def _of_last(column: str) -> str:
    return (
        f"(SELECT {column} FROM gantline_log AS last "  # noqa: S608  # constants only
        f"WHERE last.job_id = job.id AND {IS_OUTCOME} ORDER BY version DESC LIMIT 1)"
    )


_ATTEMPT: Final = f"""coalesce(
    (SELECT attempt FROM gantline_ready WHERE job_id = job.id),
    (SELECT attempt FROM gantline_lease WHERE job_id = job.id),
    {_of_last("attempt")})"""  # noqa: S608  # constants only


def get(
    connection: sqlite3.Connection, job_ids: Sequence[UUID], tenant_id: str | None
) -> list[JobSnapshot | None]:
    ids = [job_id.bytes for job_id in job_ids]
    found = {row[0]: row for row in execute_in(connection, _SNAPSHOT, [*dict.fromkeys(ids)])}
    rows = [found.get(job_id) for job_id in ids]
    return [
        _read_snapshot(row) if row is not None and tenant_id in (None, row[1]) else None
        for row in rows
    ]


def _read_snapshot(row: Row) -> JobSnapshot:
    log = row[JOB_WIDTH + 2 :]
    last = log_from_row(log, uuid_from_bytes) if log[0] is not None else None
    return make_snapshot(job_from_row(row, row[JOB_WIDTH:], uuid_from_bytes), last, log[LOG_WIDTH:])


def find(
    connection: sqlite3.Connection,
    filter: JobFilter,
    *,
    limit: int,
    after: Cursor | None,
    now: int,
) -> Page:
    """Merge keyset scans, then read the jobs of the page.

    There is one scan per status; where the caller may see only his own jobs, one per way to see a
    job. So each scan follows an index in the order of the list.
    """
    narrowed = filter.narrowed()
    if narrowed is None:
        return Page((), None)
    filter = narrowed
    states: list[State | None] = [*sorted(filter.statuses)] or [None]
    scans = [
        _scan(connection, filter, state, limit + 1, after, way, now)
        for state in states
        for way in _find_ways(connection, filter, None if state is None else status_of(state))
    ]
    found = heapq.nlargest(limit + 1, {position for scan in scans for position in scan})
    ids = [uuid_from_bytes(job_id) for _, job_id in found[:limit]]
    jobs = get(connection, ids, filter.tenant_id)
    # Checked again: meanwhile an id may have been taken by another caller's job.
    items = tuple(job for job in jobs if job and filter.admits(job.job))
    last = found[limit - 1] if len(found) > limit > 0 else None
    return Page(items, Cursor(from_micros(last[0]), uuid_from_bytes(last[1])) if last else None)


class _Way(NamedTuple):
    """One way to see a job: a condition for which there is an index, and its value."""

    condition: str
    value: str


def _find_ways(
    connection: sqlite3.Connection, filter: JobFilter, status: JobStatus | None
) -> list[_Way | None]:
    """Choose the ways to find what is visible; None means checking every job of the status."""
    whose = filter.whose
    if whose is None or filter.subject_id or filter.created_by:
        return [None]
    if status and _are_few(connection, filter.tenant_id, status):
        return [None]
    ways: list[_Way | None] = [_Way(_IS_OF_SUBJECT, subject) for subject in sorted(whose.granted)]
    if whose.owner:
        ways.append(_Way(_IS_OWNED, whose.owner))
    return ways


def _are_few(connection: sqlite3.Connection, tenant_id: str | None, status: JobStatus) -> bool:
    """Whether a status has so few jobs that each can be checked."""
    values: list[object] = []
    if status in _SOURCES:
        found = _SOURCES[status].split(" JOIN ")[0]
    else:
        found = "gantline_log WHERE is_end = 1 AND status = ?"
        values.append(status)
        if tenant_id is not None:
            found += " AND tenant = ?"
            values.append(tenant_id)
    statement = f"SELECT count(*) FROM (SELECT 1 FROM {found} LIMIT ?)"  # noqa: S608  # constants only
    row = connection.execute(statement, (*values, _FEW + 1)).fetchone()
    return int(row[0]) <= _FEW


def _scan(
    connection: sqlite3.Connection,
    filter: JobFilter,
    state: State | None,
    limit: int,
    after: Cursor | None,
    way: _Way | None,
    now: int,
) -> list[Row]:
    """The (created_at, id) of matching jobs in one state, newest first."""
    status = None if state is None else status_of(state)
    source, order = _SOURCES.get(status, _ENDED), "job"
    conditions, values = make_state_terms(
        filter, state, placeholder="?", now=str(now), of_last=_of_last
    )
    if status is JobStatus.QUEUED and not way:
        source = _source_of_queued(connection, filter, state, now)
    elif way:
        source = _SOURCES[None]
    if status and source == _SOURCES[None]:
        if status in _HAS_STATUS:
            of_state = "".join(f" AND {one}" for one in conditions)
            conditions = [_HAS_STATUS[status].format(of_state)]
        else:
            conditions.append(_HAS_ENDED_AS)
            values.append(status)
    elif source == _ENDED:
        order = "log"
        conditions.append("log.is_end = 1 AND log.status = ?")
        values.append(status)
        if filter.tenant_id is not None:
            conditions.append("log.tenant = ?")
            values.append(filter.tenant_id)
    created_at, job_id = f"{order}.created_at", f"{order}.{'job_id' if order == 'log' else 'id'}"
    of_filter, of_values = _conditions(filter, way, created_at)
    conditions += of_filter
    values += of_values
    if after:
        conditions.append(f"({created_at}, {job_id}) < (?, ?)")
        values += [to_micros(after.created_at), after.job_id.bytes]
    where = " AND ".join(conditions) or "1"
    statement = f"""
        SELECT {created_at}, {job_id}
        FROM {source} JOIN gantline_lane AS lane ON lane.id = job.lane
        WHERE {where} ORDER BY {created_at} DESC, {job_id} DESC LIMIT ?
    """  # noqa: S608  # built from constants; every value is a parameter
    return connection.execute(statement, (*values, limit)).fetchall()


def _source_of_queued(
    connection: sqlite3.Connection, filter: JobFilter, state: State | None, now: int
) -> str:
    """Choose the rows of the queue, or of an instant's part of it, while they are few to sort."""
    if count_queued(connection, filter.tenant_id) <= _MANY_QUEUED:
        return _SOURCES[JobStatus.QUEUED]
    spans, values = list[str](), list[object]()
    if state is DerivedState.SCHEDULED:
        spans.append("ready.run_at > ?")
        values.append(now)
    if filter.due_before:
        spans.append("ready.run_at < ?")
        values.append(to_micros(filter.due_before))
    if spans:
        statement = f"""
            SELECT count(*) FROM (
                SELECT 1 FROM {_IN_RANGES} WHERE {" AND ".join(spans)} LIMIT ?)
        """  # noqa: S608  # built from constants; every value is a parameter
        row = connection.execute(statement, (*values, _MANY_QUEUED + 1)).fetchone()
        if int(row[0]) <= _MANY_QUEUED:
            return f"{_IN_RANGES} JOIN gantline_job AS job ON job.id = ready.job_id"
    return _SOURCES[None]


def _conditions(filter: JobFilter, way: _Way | None, created_at: str) -> Terms:
    conditions, values = make_terms(
        filter,
        placeholder="?",
        created_at=created_at,
        parent=filter.parent_job_id and filter.parent_job_id.bytes,
        of_last=_of_last,
        attempt=_ATTEMPT,
        among=lambda column, some: ([f"{column} IN {placeholders(len(some))}"], [*some]),
    )
    if filter.tenant_id is not None:
        conditions.append("job.tenant = ?")
        values.append(filter.tenant_id)
    if way:
        conditions.append(way.condition)
        values.append(way.value)
    elif whose := filter.whose:
        granted = sorted(whose.granted)
        conditions.append(f"({_IS_OWNED} OR job.subject IN {placeholders(len(granted))})")
        values += [whose.owner, *granted]
    return conditions, values
