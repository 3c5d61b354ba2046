"""delete and prune: taking ended jobs out again, in bounded steps."""

from collections.abc import Sequence
from uuid import UUID

from windlass.contract.clock import to_micros
from windlass.contract.query import Pruned, PruneRule
from windlass.contract.results import Applied, DeleteResult, NotFound, Stale
from windlass.contract.transition import StateGuard
from windlass.stores.postgres import keys
from windlass.stores.postgres.arrays import Uuids
from windlass.stores.postgres.heads import heads
from windlass.stores.postgres.sql import Sql
from windlass.stores.postgres.tally import Tally, fold
from windlass.stores.sql.head import Head

_OLD = """
SELECT job_id FROM windlass.log
WHERE is_end AND status = %s::text::windlass.job_status AND at < %s AND id < %s
ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED
"""
# The first row that somebody has still to read: of what is numbered behind `read`, or not at all.
_FIRST_UNREAD = """
SELECT least(
    (SELECT high + 1 FROM windlass.event_cursor),
    (SELECT min(log_id) FROM windlass.event_gap),
    (SELECT min(item.log_id)
     FROM windlass.event_batch AS batch
     CROSS JOIN LATERAL unnest(batch.log_ids) WITH ORDINALITY AS item (log_id, place)
     WHERE batch.last > %(read)s AND batch.first + item.place - 1 > %(read)s))
"""
_EXPIRED_KEYS = """
DELETE FROM windlass.dedupe WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM windlass.dedupe WHERE until <= coalesce(%s, windlass.micros())
    LIMIT %s FOR UPDATE SKIP LOCKED))
"""
_EXPIRED_RECORDS = """
DELETE FROM windlass.record WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM windlass.record WHERE expires_at <= coalesce(%s, windlass.micros())
    LIMIT %s FOR UPDATE SKIP LOCKED))
"""
_READ_BATCHES = """
DELETE FROM windlass.event_batch WHERE last = ANY (ARRAY(
    SELECT last FROM windlass.event_batch AS batch
    WHERE NOT EXISTS (SELECT FROM windlass.log WHERE log.id = ANY (batch.log_ids))
    ORDER BY last LIMIT %s FOR UPDATE SKIP LOCKED))
"""
_ANY_ROW = 2**63 - 1


async def delete(sql: Sql, jobs: Sequence[tuple[UUID, StateGuard]]) -> list[DeleteResult]:
    found = await heads(sql, [job_id for job_id, _ in jobs])
    answers: list[DeleteResult] = []
    gone: list[Head[UUID]] = []
    for job_id, guard in jobs:
        head = found.get(job_id)
        if head is None or head.tenant != guard.tenant_id:
            answers.append(NotFound())
        elif _guard_holds(guard, head):
            # Taken out of the dictionary: the same job named twice is gone the second time.
            gone.append(found.pop(job_id))
            answers.append(Applied(head.version))
        else:
            answers.append(Stale())
    await keys.free(sql, {head.job_id: head.key for head in gone if head.key})
    if gone:
        await _remove(sql, gone)
    return answers


def _guard_holds(guard: StateGuard, head: Head[UUID]) -> bool:
    same = guard.status is head.status and guard.version in (None, head.version)
    return head.status.is_terminal and same


async def _remove(sql: Sql, jobs: Sequence[Head[UUID]]) -> None:
    ids = Uuids([head.job_id for head in jobs])
    await sql.run("DELETE FROM windlass.log WHERE job_id = ANY (%s)", ids)
    await sql.run("DELETE FROM windlass.job WHERE id = ANY (%s)", ids)
    tally = Tally()
    for head in jobs:
        tally.move(head.tenant, head.lane, head.status, None)
    await tally.write(sql)


async def prune(
    sql: Sql,
    rules: Sequence[PruneRule],
    *,
    limit: int,
    keep_events_after: int | None,
    now: int | None,
) -> Pruned:
    """The row that ends a job is its newest, so its place alone tells whether all were read."""
    first_unread = _ANY_ROW
    if keep_events_after is not None:
        row = await sql.named(_FIRST_UNREAD, {"read": keep_events_after})
        first_unread = row[0][0]
    old: list[UUID] = []
    for rule in rules:
        values = (rule.status.value, to_micros(rule.ended_before), first_unread, limit - len(old))
        old += [row[0] for row in await sql.rows(_OLD, *values)]
    if old:
        await _remove(sql, list((await heads(sql, old)).values()))
        await sql.run(_READ_BATCHES, 100)
    await fold(sql)
    dropped_keys = await sql.run(_EXPIRED_KEYS, now, limit)
    dropped_records = await sql.run(_EXPIRED_RECORDS, now, limit)
    return Pruned(len(old), dropped_keys, dropped_records)
