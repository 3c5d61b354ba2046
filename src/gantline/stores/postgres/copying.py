"""dump, load and clear: copying all content of a schema, page by page."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, assert_never
from uuid import UUID

from gantline.contract.clock import to_micros
from gantline.contract.flow import group_number
from gantline.contract.records import Record
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
from gantline.contract.submission import KeyKind, NewJob
from gantline.stores.postgres.arrays import Array, Bigints, Booleans, Bytes, Integers, Texts, Uuids
from gantline.stores.postgres.counts import Tally, fold
from gantline.stores.postgres.events import Numbers
from gantline.stores.postgres.lanes import Lanes
from gantline.stores.postgres.query import get
from gantline.stores.postgres.rows import LOG_COLUMNS, expiries, job_columns
from gantline.stores.postgres.sql import Sql
from gantline.stores.postgres.turns import NewTurn, add_turns
from gantline.stores.sql.rows import (
    key_from_row,
    log_from_row,
    make_page,
    read_position,
    record_from_row,
)

_FIRST_IDS = "SELECT id, fingerprint FROM gantline.job ORDER BY id LIMIT %s"
_IDS = "SELECT id, fingerprint FROM gantline.job WHERE id > %s ORDER BY id LIMIT %s"
_LOG = f"""
SELECT log.id, log.change_id, {LOG_COLUMNS} FROM gantline.log
WHERE log.job_id = ANY (%s) ORDER BY log.job_id, log.version
"""  # noqa: S608  # constants only
_KEYS = """
SELECT tenant, scope, key, kind::text, job_id, fingerprint, until FROM gantline.dedupe
WHERE (tenant, scope, key, kind) > (%s, %s, %s, %s::text::gantline.key_kind)
ORDER BY tenant, scope, key, kind LIMIT %s
"""
_RECORDS = """
SELECT namespace, key, value, version, expires_at, replaced FROM gantline.record
WHERE (namespace, key) > (%s, %s) ORDER BY namespace, key LIMIT %s
"""
_TERMS = "SELECT role, term FROM gantline.leader WHERE role > %s ORDER BY role LIMIT %s"
# Only a role with rights on a sequence may read its last value.
_MARKS = """
SELECT (SELECT last FROM gantline.event_cursor WHERE only_row = 1),
       greatest(0, (SELECT max(version) FROM gantline.record),
                CASE WHEN has_sequence_privilege(versions.name, 'SELECT, USAGE')
                     THEN pg_sequence_last_value(versions.name) END)
FROM (SELECT pg_get_serial_sequence('gantline.record', 'version')::regclass AS name) AS versions
"""

_KNOWN = "SELECT id FROM gantline.job WHERE id = ANY (%s)"
_ADD_JOBS = """
INSERT INTO gantline.job (
    id, tenant, lane, subject, correlation, idempotency_key, fingerprint, attempt, max_attempts,
    payload, payload_version, priority, created_at, scheduled_at, created_by, parent, trace_context,
    external_id, expires_at, group_name)
SELECT * FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_ADD_READY = """
INSERT INTO gantline.ready (
    lane, run_at, version, fence, created_at, attempt, crashes, snoozes, priority, keyed, job_id,
    tenant, expires_at, grp)
SELECT * FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_ADD_LOG = """
INSERT INTO gantline.log (
    id, version, lane, fence, at, created_at, started_at, event, status, attempt, crashes, snoozes,
    priority, is_end, percent, job_id, change_id, tenant, reason, session, actor, error_code,
    error_message, error_detail, result, result_omitted, phase, emitted)
OVERRIDING SYSTEM VALUE
SELECT id, version, lane, fence, at, created_at, started_at, event::gantline.job_event,
       status::gantline.job_status, attempt, crashes, snoozes, priority, is_end,
       percent::double precision, job_id, change_id, tenant, reason, session, actor, error_code,
       error_message, error_detail, result, result_omitted, phase, emitted
FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
            %s, %s, %s, %s, %s, %s) AS row (
    id, version, lane, fence, at, created_at, started_at, event, status, attempt, crashes, snoozes,
    priority, is_end, percent, job_id, change_id, tenant, reason, session, actor, error_code,
    error_message, error_detail, result, result_omitted, phase, emitted)
"""
_ADD_KEYS = """
INSERT INTO gantline.dedupe (until, kind, job_id, tenant, scope, key, fingerprint)
SELECT until, kind::gantline.key_kind, job_id, tenant, scope, key, fingerprint
FROM unnest(%s, %s, %s, %s, %s, %s, %s) AS row (
    until, kind, job_id, tenant, scope, key, fingerprint)
ON CONFLICT (tenant, scope, key, kind) DO NOTHING
"""
_ADD_RECORDS = """
INSERT INTO gantline.record (namespace, key, value, version, expires_at, replaced)
OVERRIDING SYSTEM VALUE
SELECT * FROM unnest(%s, %s, %s, %s, %s, %s) ON CONFLICT (namespace, key) DO NOTHING
"""
_ADD_TERM = """
INSERT INTO gantline.leader (role, owner, term, until) VALUES (%s, '', %s, 0)
ON CONFLICT (role) DO NOTHING
"""
# The sequencer must not number these rows: they have numbers, which come with Marks.
_KEEP_NUMBERS = "UPDATE gantline.event_cursor SET high = greatest(high, %s) WHERE only_row = 1"
# The id of a loaded row is its event number. The ids of removed rows are never used again.
_NUMBER = """
INSERT INTO gantline.event_batch (first, last, log_ids)
SELECT batch.first, batch.last, ARRAY(SELECT generate_series(batch.first, batch.last))
FROM (
    SELECT greatest(chunk * %(size)s + 1, cursor.last + 1) AS first,
           least((chunk + 1) * %(size)s, %(last)s) AS last
    FROM gantline.event_cursor AS cursor
    CROSS JOIN LATERAL (
        SELECT DISTINCT (log.id - 1) / %(size)s AS chunk FROM gantline.log
        WHERE log.id > cursor.last AND log.id <= %(last)s) AS chunks
) AS batch
"""
_RAISE_CURSOR = """
UPDATE gantline.event_cursor SET last = greatest(last, %(last)s), high = greatest(high, %(last)s)
WHERE only_row = 1
"""
_RAISE_IDS = """
SELECT setval(pg_get_serial_sequence('gantline.log', 'id'), greatest(
    %(number)s, pg_sequence_last_value(pg_get_serial_sequence('gantline.log', 'id')::regclass)))
WHERE %(number)s > 0
"""
_RAISE_VERSIONS = """
SELECT setval(pg_get_serial_sequence('gantline.record', 'version'), greatest(
    %(number)s,
    pg_sequence_last_value(pg_get_serial_sequence('gantline.record', 'version')::regclass)))
WHERE %(number)s > 0
"""
_BEGIN_NUMBERS = """
SELECT setval(pg_get_serial_sequence('gantline.log', 'id'), 1, false),
       setval(pg_get_serial_sequence('gantline.record', 'version'), 1, false)
"""
_BEGIN_CURSOR = "UPDATE gantline.event_cursor SET last = 0, high = 0"
_REMOVE = """
DELETE FROM gantline.{} WHERE ctid = ANY (ARRAY(SELECT ctid FROM gantline.{} LIMIT %s))
"""
_CLEAR: Final = (
    *("log", "ready", "turn", "lease", "gate", "job", "dedupe", "record", "leader"),
    *("tally", "tally_delta", "event_batch", "event_gap"),
)
_BATCH_SIZE: Final = 1_000
_ROWS_AT_ONCE: Final = 20_000


async def dump(sql: Sql, part: Part, after: str, limit: int, numbers: Numbers) -> Dumped:
    position = read_position(after) if after else None
    match part:
        case Part.JOBS:
            return await _dump_jobs(sql, UUID(position[0]) if position else None, limit, numbers)
        case Part.KEYS:
            rows = await sql.rows(_KEYS, *(position or ["", "", "", KeyKind.JOB.value]), limit)
            return make_page(
                [key_from_row((row[3], *row[:3], *row[4:])) for row in rows], rows, 4, limit
            )
        case Part.RECORDS:
            rows = await sql.rows(_RECORDS, *(position or ["", ""]), limit)
            return make_page([StoredRecord(record_from_row(row)) for row in rows], rows, 2, limit)
        case Part.TERMS:
            rows = await sql.rows(_TERMS, *(position or [""]), limit)
            return make_page([StoredTerm(*row) for row in rows], rows, 1, limit)
        case Part.MARKS:
            return Dumped((Marks(*(await sql.rows(_MARKS))[0]),))
        case _:
            assert_never(part)


async def _dump_jobs(sql: Sql, after: UUID | None, limit: int, numbers: Numbers) -> Dumped:
    if after is None:
        await numbers.read(sql)
        found = await sql.rows(_FIRST_IDS, limit)
    else:
        found = await sql.rows(_IDS, after, limit)
    ids = [row[0] for row in found]
    logs = await _logs(sql, ids, numbers)
    items = [
        StoredJob.of(job, fingerprint, logs[job_id])
        for (job_id, fingerprint), job in zip(found, await get(sql, ids, None), strict=True)
        if job is not None
    ]
    return make_page(items, found, 1, limit)


async def _logs(sql: Sql, ids: Sequence[UUID], known: Numbers) -> dict[UUID, list[StoredEntry]]:
    rows = await sql.rows(_LOG, Uuids(ids))
    numbers = await known.find(sql, [row[0] for row in rows])
    logs: defaultdict[UUID, list[StoredEntry]] = defaultdict(list)
    for row in rows:
        entry = log_from_row(row[2:])
        change_id = None if entry.event in ON_REQUEST else row[1]
        logs[row[2]].append(StoredEntry(numbers[row[0]], change_id, entry))
    return logs


# -- load -----------------------------------------------------------------------------------------


async def load(sql: Sql, items: Sequence[Stored], lanes: Lanes) -> None:
    """Load in the caller's transaction. The lanes must have been loaded before."""
    await _load_jobs(sql, [item for item in items if isinstance(item, StoredJob)], lanes)
    await _load_keys(sql, [item for item in items if isinstance(item, StoredKey)])
    await _load_records(sql, [item.record for item in items if isinstance(item, StoredRecord)])
    for item in items:
        if isinstance(item, StoredTerm):
            await sql.run(_ADD_TERM, item.role, item.term)
        elif isinstance(item, Marks):
            await sql.run_with(_NUMBER, {"last": item.last_event, "size": _BATCH_SIZE})
            await sql.run_with(_RAISE_CURSOR, {"last": item.last_event})
            await sql.named(_RAISE_IDS, {"number": item.last_event})
            await sql.named(_RAISE_VERSIONS, {"number": item.last_record})


async def _load_jobs(sql: Sql, jobs: Sequence[StoredJob], lanes: Lanes) -> None:
    known = {row[0] for row in await sql.rows(_KNOWN, Uuids([one.job.job_id for one in jobs]))}
    new = [stored for stored in jobs if stored.job.job_id not in known]
    if not new:
        return
    numbers = [lanes[(stored.job.queue, stored.job.job_type)] for stored in new]
    await sql.run(
        _ADD_JOBS,
        *job_columns([NewJob(one.job, one.fingerprint) for one in new], numbers),
        Uuids([one.job.external_id for one in new]),
        expiries([one.job for one in new]),
        Texts([one.job.group for one in new]),
    )
    await sql.run(_ADD_READY, *_ready_columns(new, numbers))
    await add_turns(sql, _turns_of(new, numbers))
    rows = [
        (stored, lane, row) for stored, lane in zip(new, numbers, strict=True) for row in stored.log
    ]
    if rows:
        await sql.run(_ADD_LOG, *_log_columns(rows))
        await sql.run(_KEEP_NUMBERS, max(row.sequence for _, _, row in rows))
    tally = Tally()
    for stored, lane in zip(new, numbers, strict=True):
        tally.move(stored.job.tenant_id, lane, None, stored.status)
    await tally.write(sql)
    await fold(sql)


def _ready_columns(jobs: Sequence[StoredJob], lanes: Sequence[int]) -> list[Array]:
    pairs = zip(jobs, lanes, strict=True)
    queued = [(one, lane) for one, lane in pairs if one.status is JobStatus.QUEUED]
    return [
        Bigints([lane for _, lane in queued]),
        Bigints([to_micros(one.run_at or one.job.created_at) for one, _ in queued]),
        Bigints([one.version for one, _ in queued]),
        Bigints([one.fence for one, _ in queued]),
        Bigints([to_micros(one.job.created_at) for one, _ in queued]),
        Integers([one.attempt for one, _ in queued]),
        Integers([one.crashes for one, _ in queued]),
        Integers([one.snoozes for one, _ in queued]),
        Integers([one.priority for one, _ in queued]),
        Booleans([one.job.idempotency_key != "" for one, _ in queued]),
        Uuids([one.job.job_id for one, _ in queued]),
        Texts([one.job.tenant_id for one, _ in queued]),
        Bigints(
            [
                to_micros(one.job.expires_at) if one.is_new and one.job.expires_at else None
                for one, _ in queued
            ]
        ),
        Bigints([group_number(one.job.tenant_id, one.job.group) for one, _ in queued]),
    ]


def _turns_of(jobs: Sequence[StoredJob], lanes: Sequence[int]) -> Iterator[NewTurn]:
    for one, lane in zip(jobs, lanes, strict=True):
        if one.status is JobStatus.QUEUED:
            yield NewTurn(
                lane,
                rank(one.priority, one.crashes),
                group_number(one.job.tenant_id, ""),
                group_number(one.job.tenant_id, one.job.group),
                to_micros(one.run_at or one.job.created_at),
            )


def _log_columns(rows: Sequence[tuple[StoredJob, int, StoredEntry]]) -> list[Array]:
    """Crashes, snoozes and priority are read only from the row that ends a job."""
    jobs = [stored for stored, _, _ in rows]
    entries = [row.entry for _, _, row in rows]
    errors = [entry.error for entry in entries]
    return [
        Bigints([row.sequence for _, _, row in rows]),
        Bigints([entry.version for entry in entries]),
        Bigints([lane for _, lane, _ in rows]),
        Bigints([entry.fence for entry in entries]),
        Bigints([to_micros(entry.at) for entry in entries]),
        Bigints([to_micros(stored.job.created_at) for stored in jobs]),
        Bigints([entry.started_at and to_micros(entry.started_at) for entry in entries]),
        Texts([entry.event.value for entry in entries]),
        Texts([entry.status.value for entry in entries]),
        Integers([entry.attempt for entry in entries]),
        Integers([stored.crashes for stored in jobs]),
        Integers([stored.snoozes for stored in jobs]),
        Integers([stored.priority for stored in jobs]),
        Booleans([row is stored.end for stored, _, row in rows]),
        Texts([entry.percent for entry in entries]),
        Uuids([stored.job.job_id for stored in jobs]),
        Uuids([row.change_id or stored.job.job_id for stored, _, row in rows]),
        Texts([stored.job.tenant_id for stored in jobs]),
        Texts([entry.reason for entry in entries]),
        Texts([entry.session for entry in entries]),
        Texts([entry.actor for entry in entries]),
        Texts([error and error.code for error in errors]),
        Texts([error and error.message for error in errors]),
        Texts([error and error.detail for error in errors]),
        Bytes([entry.result for entry in entries]),
        Texts([entry.result_omitted for entry in entries]),
        Texts([entry.phase or None for entry in entries]),
        Bytes([entry.emitted for entry in entries]),
    ]


async def _load_keys(sql: Sql, keys: Sequence[StoredKey]) -> None:
    if keys:
        await sql.run(
            _ADD_KEYS,
            Bigints([key.until and to_micros(key.until) for key in keys]),
            Texts([key.kind.value for key in keys]),
            Uuids([key.job_id for key in keys]),
            Texts([key.tenant_id for key in keys]),
            Texts([key.scope for key in keys]),
            Texts([key.key for key in keys]),
            Bytes([key.fingerprint for key in keys]),
        )


async def _load_records(sql: Sql, records: Sequence[Record]) -> None:
    if records:
        await sql.run(
            _ADD_RECORDS,
            Texts([record.namespace for record in records]),
            Texts([record.key for record in records]),
            Bytes([record.value for record in records]),
            Bigints([record.version for record in records]),
            Bigints([record.expires_at and to_micros(record.expires_at) for record in records]),
            Bigints([record.replaced for record in records]),
        )


# -- clear ----------------------------------------------------------------------------------------


async def clear_some(sql: Sql) -> bool:
    """Remove some rows; return whether there may be more. Lanes stay: processes cache them."""
    left = _ROWS_AT_ONCE
    for table in _CLEAR:
        left -= await sql.run(_REMOVE.format(table, table), left) if left else 0
    if not left:
        return True
    await sql.rows(_BEGIN_NUMBERS)
    await sql.run(_BEGIN_CURSOR)
    return False
