"""dump, load and clear: copying all content of the file, page by page."""

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, assert_never

from gantline.contract.clock import to_micros
from gantline.contract.flow import group_number
from gantline.contract.job import Job
from gantline.contract.job_id import uuid_from_bytes
from gantline.contract.snapshot import rank
from gantline.contract.status import ON_REQUEST, JobStatus
from gantline.contract.stored import (
    Dumped,
    Marks,
    Part,
    Stored,
    StoredEntry,
    StoredJob,
    StoredKey,
    StoredRecord,
    StoredTerm,
)
from gantline.contract.submission import NewJob
from gantline.stores.sql.rows import (
    key_from_row,
    log_from_row,
    make_page,
    read_position,
    record_from_row,
)
from gantline.stores.sqlite.counts import Tally
from gantline.stores.sqlite.insert import Lanes
from gantline.stores.sqlite.query import get
from gantline.stores.sqlite.ready import ReadyRow, enqueue, let_expire
from gantline.stores.sqlite.rows import (
    LOG_COLUMNS,
    Row,
    execute_in,
    insert_rows,
    job_to_row,
    placeholders,
)

_IDS = "SELECT id, fingerprint FROM gantline_job WHERE id > ? ORDER BY id LIMIT ?"
_LOG = f"""
SELECT log.sequence, log.change_id, {LOG_COLUMNS} FROM gantline_log AS log
WHERE log.job_id IN {{}} ORDER BY log.job_id, log.version
"""  # noqa: S608  # constants only
_KEYS = """
SELECT kind, tenant, scope, key, job_id, fingerprint, until FROM gantline_dedupe
WHERE (kind, tenant, scope, key) > (?, ?, ?, ?) ORDER BY kind, tenant, scope, key LIMIT ?
"""
_RECORDS = """
SELECT namespace, key, value, version, expires_at, replaced FROM gantline_record
WHERE (namespace, key) > (?, ?) ORDER BY namespace, key LIMIT ?
"""
_TERMS = "SELECT role, term FROM gantline_leader WHERE role > ? ORDER BY role LIMIT ?"
_NUMBERS = "SELECT name, seq FROM sqlite_sequence"

_KNOWN = "SELECT id FROM gantline_job WHERE id IN {}"
_ADD_JOB = f"INSERT INTO gantline_job VALUES {placeholders(20)}"  # noqa: S608  # constants only
_ADD_LOG = f"""
INSERT INTO gantline_log (
    sequence, job_id, version, change_id, tenant, lane, event, status, reason, at, attempt, crashes,
    snoozes, fence, priority, session, started_at, error_code, error_message, error_detail, result,
    result_omitted, actor, created_at, is_end, percent, phase, emitted)
VALUES {placeholders(28)}
"""  # noqa: S608  # constants only
_ADD_KEY = "INSERT OR IGNORE INTO gantline_dedupe VALUES (?, ?, ?, ?, ?, ?, ?)"
_ADD_RECORD = """
INSERT INTO gantline_record (namespace, key, value, version, expires_at, replaced)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (namespace, key) DO NOTHING
"""
_ADD_TERM = """
INSERT OR IGNORE INTO gantline_leader (role, owner, term, until) VALUES (?, '', ?, 0)
"""
_RAISE_NUMBER = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
# SQLite numbers a table by itself once it has had a row.
_BEGIN_NUMBER = """
INSERT INTO sqlite_sequence (name, seq) SELECT :name, 0
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = :name)
"""
_NUMBERED: Final = ("gantline_log", "gantline_record")
_TABLES: Final = (
    *("log", "ready", "turn", "tenant_turn", "grouped", "rotation", "gate", "lease", "job"),
    *("dedupe", "tally", "record", "leader"),
)
# So no turn is due when it is loaded: the next claim finds those that are.
_BEFORE_ALL: Final = -(2**63)


def dump(connection: sqlite3.Connection, part: Part, after: str, limit: int) -> Dumped:
    position = read_position(after) if after else None
    match part:
        case Part.JOBS:
            return _dump_jobs(connection, bytes.fromhex(position[0]) if position else b"", limit)
        case Part.KEYS:
            rows = connection.execute(_KEYS, (*(position or [""] * 4), limit)).fetchall()
            return make_page([key_from_row(row, uuid_from_bytes) for row in rows], rows, 4, limit)
        case Part.RECORDS:
            rows = connection.execute(_RECORDS, (*(position or [""] * 2), limit)).fetchall()
            return make_page([StoredRecord(record_from_row(row)) for row in rows], rows, 2, limit)
        case Part.TERMS:
            rows = connection.execute(_TERMS, (*(position or [""]), limit)).fetchall()
            return make_page([StoredTerm(*row) for row in rows], rows, 1, limit)
        case Part.MARKS:
            numbers = dict(connection.execute(_NUMBERS).fetchall())
            return Dumped((Marks(*(numbers.get(name, 0) for name in _NUMBERED)),))
        case _:
            assert_never(part)


def _dump_jobs(connection: sqlite3.Connection, after: bytes, limit: int) -> Dumped:
    found = connection.execute(_IDS, (after, limit)).fetchall()
    ids = [row[0] for row in found]
    logs: defaultdict[bytes, list[StoredEntry]] = defaultdict(list)
    for row in execute_in(connection, _LOG, ids) if ids else ():
        entry = log_from_row(row[2:], uuid_from_bytes)
        change_id = None if entry.event in ON_REQUEST else uuid_from_bytes(row[1])
        logs[row[2]].append(StoredEntry(row[0], change_id, entry))
    jobs = get(connection, [uuid_from_bytes(job_id) for job_id in ids], None)
    items = [
        StoredJob.of(job, fingerprint, logs[job_id])
        for (job_id, fingerprint), job in zip(found, jobs, strict=True)
        if job is not None
    ]
    return make_page(items, [(job_id.hex(),) for job_id in ids], 1, limit)


# -- load -----------------------------------------------------------------------------------------


def load(connection: sqlite3.Connection, items: Sequence[Stored]) -> None:
    _load_jobs(connection, [item for item in items if isinstance(item, StoredJob)])
    for item in items:
        match item:
            case StoredJob():
                pass
            case StoredKey():
                connection.execute(_ADD_KEY, _key_row(item))
            case StoredRecord(record):
                until = record.expires_at and to_micros(record.expires_at)
                named = (record.namespace, record.key, record.value, record.version)
                connection.execute(_ADD_RECORD, (*named, until, record.replaced))
            case StoredTerm(role, term):
                connection.execute(_ADD_TERM, (role, term))
            case Marks(last_event, last_record):
                for name, number in zip(_NUMBERED, (last_event, last_record), strict=True):
                    connection.execute(_BEGIN_NUMBER, {"name": name})
                    connection.execute(_RAISE_NUMBER, (number, name))
            case _:
                assert_never(item)


def _key_row(key: StoredKey) -> Row:
    until = None if key.until is None else to_micros(key.until)
    held = (key.job_id.bytes, key.fingerprint, until)
    return (key.kind.value, key.tenant_id, key.scope, key.key, *held)


def _load_jobs(connection: sqlite3.Connection, jobs: Sequence[StoredJob]) -> None:
    ids = [stored.job.job_id.bytes for stored in jobs]
    known = {row[0] for row in execute_in(connection, _KNOWN, ids)} if ids else set()
    lanes, tally = Lanes(connection), Tally()
    rows: list[Row] = []
    queued: list[ReadyRow] = []
    fresh: list[Job] = []
    logged: list[Row] = []
    for stored in jobs:
        job = stored.job
        if job.job_id.bytes in known:
            continue
        lane = lanes[job.queue, job.job_type]
        scheduled_at = None if job.scheduled_at is None else to_micros(job.scheduled_at)
        rows.append(job_to_row(NewJob(job, stored.fingerprint), lane, scheduled_at))
        if stored.status is JobStatus.QUEUED:
            queued.append(_ready_row(stored, lane))
            if stored.is_new:
                fresh.append(job)
        logged += [_log_row(stored, row, lane) for row in stored.log]
        tally.move(job.tenant_id, lane, None, stored.status)
    insert_rows(connection, _ADD_JOB, rows)
    enqueue(connection, queued, _BEFORE_ALL)
    let_expire(connection, fresh)
    insert_rows(connection, _ADD_LOG, logged)
    tally.write(connection)


def _ready_row(stored: StoredJob, lane: int) -> ReadyRow:
    job = stored.job
    return ReadyRow(
        to_micros(stored.run_at or job.created_at),
        job.job_id.bytes,
        lane,
        rank(stored.priority, stored.crashes),
        group_number(job.tenant_id, job.group),
        job.tenant_id,
        stored.version,
        stored.attempt,
        stored.crashes,
        stored.snoozes,
        stored.fence,
    )


def _log_row(stored: StoredJob, row: StoredEntry, lane: int) -> Row:
    """Crashes, snoozes and priority are read only from the row that ends a job."""
    entry, job, error = row.entry, stored.job, row.entry.error
    return (
        row.sequence,
        job.job_id.bytes,
        entry.version,
        (row.change_id or job.job_id).bytes,
        job.tenant_id,
        lane,
        entry.event.value,
        entry.status.value,
        entry.reason,
        to_micros(entry.at),
        entry.attempt,
        stored.crashes,
        stored.snoozes,
        entry.fence,
        stored.priority,
        entry.session,
        None if entry.started_at is None else to_micros(entry.started_at),
        error.code if error else None,
        error.message if error else None,
        error.detail if error else None,
        entry.result,
        entry.result_omitted,
        entry.actor,
        to_micros(job.created_at),
        int(row is stored.end),
        entry.percent,
        entry.phase or None,
        entry.emitted,
    )


def clear(connection: sqlite3.Connection) -> None:
    """Remove everything but the lanes, which are only names. Without a condition this is fast."""
    for table in _TABLES:
        connection.execute(f"DELETE FROM gantline_{table}")  # noqa: S608  # constants only
    connection.execute(f"DELETE FROM sqlite_sequence WHERE name IN {placeholders(2)}", _NUMBERED)  # noqa: S608
