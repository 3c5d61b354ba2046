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

# Rows that are in another order than the list are sorted, so many of them at most.
_MOST_SORTED: Final = 20_000

# CROSS JOIN, since SQLite then reads the tables in this order.
_JOBS: Final = Listed("gantline_job AS job", "job.tenant", "job.created_at", "job.id")
_ENDED: Final = Listed(
    "gantline_log AS log CROSS JOIN gantline_job AS job ON job.id = log.job_id",
    "log.tenant",
    "log.created_at",
    "log.job_id",
)
_RUNNING: Final = _JOBS._replace(
    source="gantline_lease AS lease CROSS JOIN gantline_job AS job ON job.id = lease.job_id",
    is_indexed=False,
)
# Every range of the queue that has jobs has a turn: so only the lanes of a tenant, and in them the
# rows of the instants, are read.
_RANGES: Final = (
    "gantline_turn AS turn CROSS JOIN gantline_ready AS ready "
    "ON ready.lane = turn.lane AND ready.rank = turn.rank AND ready.grp = turn.grp"
)
_QUEUED: Final = _JOBS._replace(
    source=f"{_RANGES} CROSS JOIN gantline_job AS job ON job.id = ready.job_id", is_indexed=False
)
_IN_LANES_OF_TENANT: Final = (
    "turn.lane IN "
    "(SELECT lane FROM gantline_tally WHERE tenant = ? AND status = 'Queued' AND jobs > 0)"
)
_HAS_STATUS: Final = {
    JobStatus.QUEUED: "EXISTS (SELECT 1 FROM gantline_ready AS ready WHERE job_id = job.id{})",
    JobStatus.RUNNING: "EXISTS (SELECT 1 FROM gantline_lease AS lease WHERE job_id = job.id{})",
}
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

    There is one scan per status; where an index of owners or subjects serves, one per way to find a
    job. So each scan follows an index in the order of the list, down to where it may stop.
    """
    narrowed = filter.narrowed()
    if narrowed is None or not limit:
        return Page((), None)
    filter = narrowed
    states: list[State | None] = [*sorted(filter.statuses)] or [None]
    scans = [
        _plan(connection, filter, state, way, now)
        for state in states
        for way in _find_ways(connection, filter, None if state is None else status_of(state))
    ]
    begin = (to_micros(after.created_at), after.job_id.bytes) if after else None
    for passed_over in PASSED_OVER:
        most = limit + passed_over // len(scans)
        ends = [_find_end(connection, filter, scan, begin, most) for scan in scans]
        end = max((end for end in ends if end), default=None)
        rows = [
            row for scan in scans for row in _read(connection, filter, scan, begin, end, limit + 1)
        ]
        found = heapq.nlargest(limit + 1, set(rows))
        if end is None or len(found) > limit:
            break
    ids = [uuid_from_bytes(job_id) for _, job_id in found[:limit]]
    jobs = get(connection, ids, filter.tenant_id)
    # Checked again: meanwhile an id may have been taken by another caller's job.
    items = tuple(job for job in jobs if job and filter.admits(job.job))
    last = found[limit - 1] if len(found) > limit else end
    return Page(items, Cursor(from_micros(last[0]), uuid_from_bytes(last[1])) if last else None)


class _Way(NamedTuple):
    """One way to find a job: a condition for which there is an index, and its value."""

    condition: str
    value: str
    is_visible: bool
    """Whether the caller may see all that is found."""


def _find_ways(
    connection: sqlite3.Connection, filter: JobFilter, status: JobStatus | None
) -> list[_Way | None]:
    """Choose the ways to find what is meant; None means checking every job of the status."""
    whose = filter.whose
    if whose is None and not filter.subject_id and not filter.created_by:
        return [None]
    if status and _are_few(connection, filter.tenant_id, status):
        return [None]
    if filter.subject_id:
        return [_Way(_IS_OF_SUBJECT, filter.subject_id, is_visible=whose is None)]
    if whose is None or filter.created_by:
        return [_Way(_IS_OWNED, filter.created_by or "", is_visible=whose is None)]
    ways: list[_Way | None] = [
        _Way(_IS_OF_SUBJECT, subject, is_visible=True) for subject in sorted(whose.granted)
    ]
    if whose.owner:
        ways.append(_Way(_IS_OWNED, whose.owner, is_visible=True))
    return ways


_NOTHING: Final[Terms] = ([], [])
_STATUS_ROWS: Final = {JobStatus.QUEUED: "gantline_ready", JobStatus.RUNNING: "gantline_lease"}


def _are_few(connection: sqlite3.Connection, tenant_id: str | None, status: JobStatus) -> bool:
    """Whether a status has so few jobs that each can be checked."""
    if status in _STATUS_ROWS:
        return _has_at_most(connection, _FEW, _STATUS_ROWS[status], _NOTHING)
    conditions, values = ["is_end = 1", "status = ?"], list[object]([status])
    if tenant_id is not None:
        conditions.append("tenant = ?")
        values.append(tenant_id)
    return _has_at_most(connection, _FEW, "gantline_log", (conditions, values))


def _has_at_most(connection: sqlite3.Connection, most: int, source: str, terms: Terms) -> bool:
    conditions, values = terms
    where = " AND ".join(conditions) or "1"
    statement = f"SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {where} LIMIT ?)"  # noqa: S608  # built from constants
    row = connection.execute(statement, (*values, most + 1)).fetchone()
    return int(row[0]) <= most


class _Scan(NamedTuple):
    """Rows in the order of a list: the conditions that an index answers, and the others."""

    listed: Listed
    indexed: Terms
    checked: Terms


def _plan(
    connection: sqlite3.Connection,
    filter: JobFilter,
    state: State | None,
    way: _Way | None,
    now: int,
) -> _Scan:
    """Choose how to find the matching jobs in one state."""
    status = None if state is None else status_of(state)
    listed, indexed = _JOBS, _NOTHING
    if way:
        indexed = [way.condition], [way.value]
    elif status is JobStatus.QUEUED:
        listed, indexed = _choose_queued(connection, filter, state, now)
    elif status is JobStatus.RUNNING:
        listed = _RUNNING
    elif status:
        listed, indexed = _ENDED, (["log.is_end = 1 AND log.status = ?"], [status])
    conditions, values = make_state_terms(
        filter, state, placeholder="?", now=str(now), of_last=_of_last
    )
    if status and listed is _JOBS:
        if status in _HAS_STATUS:
            of_state = "".join(f" AND {one}" for one in conditions)
            conditions = [_HAS_STATUS[status].format(of_state)]
        else:
            conditions.append(_HAS_ENDED_AS)
            values.append(status)
    more, more_values = _conditions(filter, way)
    return _Scan(listed, indexed, ([*conditions, *more], [*values, *more_values]))


def _choose_queued(
    connection: sqlite3.Connection, filter: JobFilter, state: State | None, now: int
) -> tuple[Listed, Terms]:
    """Choose the rows of the queue, narrowed by lanes and instants, while they are few to sort."""
    lanes: Terms = (
        ([], []) if filter.tenant_id is None else ([_IN_LANES_OF_TENANT], [filter.tenant_id])
    )
    conditions, values = [*lanes[0]], [*lanes[1]]
    if state is DerivedState.SCHEDULED:
        conditions.append("ready.run_at > ?")
        values.append(now)
    if filter.due_before:
        conditions.append("ready.run_at < ?")
        values.append(to_micros(filter.due_before))
    if _has_at_most(connection, _MOST_SORTED, _RANGES, (conditions, values)):
        return _QUEUED, lanes
    return _JOBS, _NOTHING


def _find_end(
    connection: sqlite3.Connection,
    filter: JobFilter,
    scan: _Scan,
    begin: Position | None,
    most: int,
) -> Row | None:
    """Find how far a scan may go: the position of the last of so many rows, if there are more."""
    listed, indexed = scan.listed, scan.indexed
    if not listed.is_indexed or filter.tenant_id is None:
        return None
    conditions, values = make_part_terms(filter, listed, begin, None, placeholder="?")
    source = listed.source.split(" CROSS JOIN ")[0]
    statement = f"""
        SELECT {listed.created_at}, {listed.job_id} FROM {source}
        WHERE {" AND ".join([*conditions, *indexed[0]])}
        ORDER BY {listed.created_at} DESC, {listed.job_id} DESC LIMIT 1 OFFSET ?
    """  # noqa: S608  # built from constants; every value is a parameter
    row: Row | None = connection.execute(statement, (*values, *indexed[1], most)).fetchone()
    return row


def _read(
    connection: sqlite3.Connection,
    filter: JobFilter,
    scan: _Scan,
    begin: Position | None,
    end: Position | None,
    limit: int,
) -> list[Row]:
    """Read the (created_at, id) of what matches, newest first."""
    listed = scan.listed
    part = make_part_terms(filter, listed, begin, end, placeholder="?")
    conditions = [one for terms in (part, scan.indexed, scan.checked) for one in terms[0]]
    values = [one for terms in (part, scan.indexed, scan.checked) for one in terms[1]]
    statement = f"""
        SELECT {listed.created_at}, {listed.job_id}
        FROM {listed.source} CROSS JOIN gantline_lane AS lane ON lane.id = job.lane
        WHERE {" AND ".join(conditions) or "1"}
        ORDER BY {listed.created_at} DESC, {listed.job_id} DESC LIMIT ?
    """  # noqa: S608  # built from constants; every value is a parameter
    return connection.execute(statement, (*values, limit)).fetchall()


def _conditions(filter: JobFilter, way: _Way | None) -> Terms:
    conditions, values = make_terms(
        filter,
        placeholder="?",
        parent=filter.parent_job_id and filter.parent_job_id.bytes,
        of_last=_of_last,
        attempt=_ATTEMPT,
        among=lambda column, some: ([f"{column} IN {placeholders(len(some))}"], [*some]),
    )
    if (whose := filter.whose) and not (way and way.is_visible):
        granted = sorted(whose.granted)
        conditions.append(f"({_IS_OWNED} OR job.subject IN {placeholders(len(granted))})")
        values += [whose.owner, *granted]
    return conditions, values
