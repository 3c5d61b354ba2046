"""Log rows that types of jobs ask for: submitted, started, progressed."""

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from gantline.contract.status import Event, JobStatus, Reason
from gantline.stores.sqlite.rows import Row, insert_rows

_LOG: Final = f"""
INSERT INTO gantline_log (
    job_id, version, change_id, tenant, lane, attempt, crashes, snoozes, fence, priority,
    created_at, session, started_at, percent, phase, event, status, reason, at, actor, is_end)
VALUES ({", ".join("?" * 21)})
"""  # noqa: S608  # constants only


class Standing(NamedTuple):
    """Where a job stands, in the order of the columns. The last four are of its run."""

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


def log_submitted(connection: sqlite3.Connection, jobs: Sequence[Standing], now: int) -> None:
    _log(connection, jobs, (Event.SUBMITTED, JobStatus.QUEUED, Reason.SUBMITTED), now)


def log_started(connection: sqlite3.Connection, runs: Sequence[Standing], now: int) -> None:
    _log(connection, runs, (Event.STARTED, JobStatus.RUNNING, Reason.STARTED), now)


def log_progressed(connection: sqlite3.Connection, run: Standing, now: int) -> None:
    _log(connection, [run], (Event.PROGRESSED, JobStatus.RUNNING, Reason.PROGRESSED), now)


def _log(
    connection: sqlite3.Connection,
    rows: Sequence[Standing],
    what: tuple[Event, JobStatus, Reason],
    now: int,
) -> None:
    ending: Row = (*(one.value for one in what), now, "", 0)
    insert_rows(connection, _LOG, [row + ending for row in rows])
