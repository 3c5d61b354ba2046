"""The log: the events on request (submitted, started, progressed), history and events."""

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.snapshot import LogEntry, LoggedEvent
from gantline.contract.status import Event, JobStatus, Reason
from gantline.stores.sql.rows import log_from_row
from gantline.stores.sqlite.rows import LOG_COLUMNS, Row, insert_rows

_LOG: Final = f"""
INSERT INTO gantline_log (
    job_id, version, change_id, tenant, lane, attempt, crashes, snoozes, fence, priority,
    created_at, session, started_at, percent, phase, event, status, reason, at, actor, is_end)
VALUES ({", ".join("?" * 21)})
"""  # noqa: S608  # constants only


class LogState(NamedTuple):
    """The state of a job, in the order of the columns. The last four are of its run."""

    job_id: bytes
    version: int
    change_id: bytes
    tenant: str
    lane: int
    attempt: int
    crashes: int
    snoozes: int
    fence: int
    priority: int
    created_at: int
    session: str = ""
    started_at: int | None = None
    percent: float | None = None
    phase: str | None = None


def log_submitted(connection: sqlite3.Connection, jobs: Sequence[LogState], now: int) -> None:
    _log(connection, jobs, (Event.SUBMITTED, JobStatus.QUEUED, Reason.SUBMITTED), now)


def log_started(connection: sqlite3.Connection, runs: Sequence[LogState], now: int) -> None:
    _log(connection, runs, (Event.STARTED, JobStatus.RUNNING, Reason.STARTED), now)


def log_progressed(connection: sqlite3.Connection, run: LogState, now: int) -> None:
    _log(connection, [run], (Event.PROGRESSED, JobStatus.RUNNING, Reason.PROGRESSED), now)


def _log(
    connection: sqlite3.Connection,
    rows: Sequence[LogState],
    what: tuple[Event, JobStatus, Reason],
    now: int,
) -> None:
    ending: Row = (*(one.value for one in what), now, "", 0)
    insert_rows(connection, _LOG, [row + ending for row in rows])


def history(connection: sqlite3.Connection, job_id: UUID, tenant_id: str | None) -> list[LogEntry]:
    rows = connection.execute(
        f"""
        SELECT {LOG_COLUMNS} FROM gantline_log AS log
        WHERE job_id = :job AND (:tenant IS NULL OR tenant = :tenant) ORDER BY version
        """,  # noqa: S608  # constants only
        {"job": job_id.bytes, "tenant": tenant_id},
    )
    return [log_from_row(row, uuid_from_bytes) for row in rows]


def events(connection: sqlite3.Connection, *, after: int, limit: int) -> list[LoggedEvent]:
    rows = connection.execute(
        f"""
        SELECT log.sequence, log.tenant, lane.job_type, {LOG_COLUMNS}
        FROM gantline_log AS log JOIN gantline_lane AS lane ON lane.id = log.lane
        WHERE log.sequence > ? ORDER BY log.sequence LIMIT ?
        """,  # noqa: S608  # constants only
        (after, limit),
    )
    return [
        LoggedEvent(row[0], row[1], row[2], log_from_row(row[3:], uuid_from_bytes)) for row in rows
    ]


def last_event(connection: sqlite3.Connection) -> int:
    """Read SQLite's own counter, which also counts rows that were removed."""
    row = connection.execute(
        "SELECT seq FROM sqlite_sequence WHERE name = 'gantline_log'"
    ).fetchone()
    return 0 if row is None else int(row[0])
