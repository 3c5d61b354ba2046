"""delete and prune: removing ended jobs, in bounded steps."""

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from operator import attrgetter
from uuid import UUID

from gantline.contract.clock import from_micros, span_micros, to_micros
from gantline.contract.query import Pruned, PruneRule
from gantline.contract.results import DeleteResult
from gantline.contract.status import JobStatus
from gantline.contract.transition import StateGuard
from gantline.runtime import monotonic
from gantline.stores.sql.changes import split_deletes
from gantline.stores.sqlite import dedupe
from gantline.stores.sqlite.apply import read_heads
from gantline.stores.sqlite.counts import Tally
from gantline.stores.sqlite.limits import prune_gates
from gantline.stores.sqlite.rows import Row, execute_in

_OLD = """
SELECT job_id, tenant, lane, status FROM gantline_log
WHERE is_end = 1 AND status = ? AND at < ? AND sequence <= ? ORDER BY at LIMIT ?
"""
_OLDEST = """
SELECT at FROM gantline_log WHERE is_end = 1 AND status = ? ORDER BY at LIMIT 1
"""
# Deleted by a list of ids, a job costs 10 µs; one by one, 22.
_LOG_OF = "DELETE FROM gantline_log WHERE job_id IN {}"
_JOBS = "DELETE FROM gantline_job WHERE id IN {}"
_EXTERNAL_IDS = """
SELECT tenant, lower(hex(external_id)), id FROM gantline_job
WHERE external_id IS NOT NULL AND id IN {}
"""
_EXPIRED_KEYS = """
DELETE FROM gantline_dedupe WHERE (kind, tenant, scope, key) IN
    (SELECT kind, tenant, scope, key FROM gantline_dedupe WHERE until <= ? LIMIT ?)
"""
_EXPIRED_RECORDS = """
DELETE FROM gantline_record WHERE (namespace, key) IN
    (SELECT namespace, key FROM gantline_record WHERE expires_at <= ? LIMIT ?)
"""
_GATE_KEPT = span_micros(timedelta(days=1))
_ANY_SEQUENCE = 2**63 - 1


def delete(
    connection: sqlite3.Connection, jobs: Sequence[tuple[UUID, StateGuard]]
) -> list[DeleteResult]:
    found = read_heads(connection, [job_id.bytes for job_id, _ in jobs])
    results, removed = split_deletes(jobs, found, attrgetter("bytes"))
    freed = [(key, head.job_id) for head in removed if (key := head.key)]
    connection.executemany(
        dedupe.FREE, [(key.tenant_id, key.scope, key.key, job_id) for key, job_id in freed]
    )
    _remove(connection, [(head.job_id, head.tenant, head.lane, head.status) for head in removed])
    return results


def _remove(connection: sqlite3.Connection, jobs: Sequence[Row]) -> None:
    """Each row is an id, and the tenant, lane and status under which the job is counted."""
    ids = [job_id for job_id, _, _, _ in jobs]
    external = execute_in(connection, _EXTERNAL_IDS, ids)
    connection.executemany(dedupe.FREE_EXTERNAL, external)
    execute_in(connection, _LOG_OF, ids)
    execute_in(connection, _JOBS, ids)
    tally = Tally()
    for _, tenant, lane, status in jobs:
        tally.move(tenant, lane, JobStatus(status), None)
    tally.write(connection)


def prune(
    connection: sqlite3.Connection,
    rules: Sequence[PruneRule],
    *,
    limit: int,
    keep_events_after: int | None,
    now: int,
) -> Pruned:
    """The row that ends a job is its newest, so its number shows whether all rows were read."""
    start = monotonic()
    newest = _ANY_SEQUENCE if keep_events_after is None else keep_events_after
    old: list[Row] = []
    for rule in rules:
        values = (rule.status, to_micros(rule.ended_before), newest, limit - len(old))
        old += connection.execute(_OLD, values).fetchall()
    _remove(connection, old)
    dropped_keys = connection.execute(_EXPIRED_KEYS, (now, limit)).rowcount
    dropped_records = connection.execute(_EXPIRED_RECORDS, (now, limit)).rowcount
    prune_gates(connection, now - _GATE_KEPT)
    late, busy = measure_overdue(connection, rules), monotonic() - start
    return Pruned(len(old), dropped_keys, dropped_records, late, busy)


def measure_overdue(connection: sqlite3.Connection, rules: Sequence[PruneRule]) -> timedelta:
    """Say how long ago the oldest job should have been removed."""
    late = timedelta(0)
    for rule in rules:
        for (at,) in connection.execute(_OLDEST, (rule.status,)):
            late = max(late, rule.ended_before - from_micros(at))
    return late
