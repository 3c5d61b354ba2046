"""delete and prune: taking ended jobs out again, in bounded steps."""

import sqlite3
from collections.abc import Sequence
from uuid import UUID

from windlass.contract.clock import to_micros
from windlass.contract.query import Pruned, PruneRule
from windlass.contract.results import Applied, DeleteResult, NotFound, Stale
from windlass.contract.transition import StateGuard
from windlass.stores.sql.head import Head
from windlass.stores.sqlite import keys
from windlass.stores.sqlite.apply import heads
from windlass.stores.sqlite.tally import Tally

_OLD = """
SELECT job_id FROM windlass_log
WHERE is_end = 1 AND status = ? AND at < ? AND sequence <= ? ORDER BY at LIMIT ?
"""
_EXPIRED_KEYS = """
DELETE FROM windlass_dedupe WHERE (kind, tenant, scope, key) IN
    (SELECT kind, tenant, scope, key FROM windlass_dedupe WHERE until <= ? LIMIT ?)
"""
_EXPIRED_RECORDS = """
DELETE FROM windlass_record WHERE (namespace, key) IN
    (SELECT namespace, key FROM windlass_record WHERE expires_at <= ? LIMIT ?)
"""
_ANY_SEQUENCE = 2**63 - 1


def delete(
    connection: sqlite3.Connection, jobs: Sequence[tuple[UUID, StateGuard]]
) -> list[DeleteResult]:
    found = heads(connection, [job_id.bytes for job_id, _ in jobs])
    answers: list[DeleteResult] = []
    for job_id, guard in jobs:
        # Taken out of the dictionary: the same job named twice is gone the second time.
        head = found.get(job_id.bytes)
        if head is None or head.tenant != guard.tenant_id:
            answers.append(NotFound())
        elif _guard_holds(guard, head):
            del found[job_id.bytes]
            _free_key(connection, head)
            _remove(connection, [head])
            answers.append(Applied(head.version))
        else:
            answers.append(Stale())
    return answers


def _guard_holds(guard: StateGuard, head: Head[bytes]) -> bool:
    same = guard.status is head.status and guard.version in (None, head.version)
    return head.status.is_terminal and same


def _free_key(connection: sqlite3.Connection, head: Head[bytes]) -> None:
    if key := head.key:
        connection.execute(keys.FREE, (key.tenant_id, key.scope, key.key, head.job_id))


def _remove(connection: sqlite3.Connection, jobs: Sequence[Head[bytes]]) -> None:
    ids = [(head.job_id,) for head in jobs]
    connection.executemany("DELETE FROM windlass_log WHERE job_id = ?", ids)
    connection.executemany("DELETE FROM windlass_job WHERE id = ?", ids)
    tally = Tally()
    for head in jobs:
        tally.move(head.tenant, head.lane, head.status, None)
    tally.write(connection)


def prune(
    connection: sqlite3.Connection,
    rules: Sequence[PruneRule],
    *,
    limit: int,
    keep_events_after: int | None,
    now: int,
) -> Pruned:
    """The row that ends a job is its newest, so its number alone tells whether all were read."""
    newest = _ANY_SEQUENCE if keep_events_after is None else keep_events_after
    old: list[bytes] = []
    for rule in rules:
        values = (rule.status, to_micros(rule.ended_before), newest, limit - len(old))
        old += [row[0] for row in connection.execute(_OLD, values)]
    _remove(connection, list(heads(connection, old).values()))
    dropped_keys = connection.execute(_EXPIRED_KEYS, (now, limit)).rowcount
    dropped_records = connection.execute(_EXPIRED_RECORDS, (now, limit)).rowcount
    return Pruned(len(old), dropped_keys, dropped_records)
