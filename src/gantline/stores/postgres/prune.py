"""delete and prune: removing ended jobs, and what is left of jobs that were removed by hand."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from gantline.contract.clock import to_micros
from gantline.contract.query import Pruned, PruneRule, in_64_bits
from gantline.contract.results import DeleteResult
from gantline.contract.transition import StateGuard
from gantline.stores.postgres import dedupe
from gantline.stores.postgres.apply import read_heads
from gantline.stores.postgres.arrays import Bigints, Texts, Uuids
from gantline.stores.postgres.counts import Tally, fold
from gantline.stores.postgres.leases import FORGET
from gantline.stores.postgres.sql import Sql
from gantline.stores.sql.changes import Head, split_deletes

# A redrive locks the row that ends the job first, so locking that row is enough. One statement does
# it all, because a busy event loop reads each response late.
_REMOVE_OLD = f"""
WITH old AS MATERIALIZED (
    SELECT found.* FROM unnest(%(statuses)s::text[], %(limits)s::bigint[]) AS rule (status, before)
    CROSS JOIN LATERAL (
        SELECT job_id, tenant, lane, status FROM gantline.log
        WHERE is_end AND status = rule.status::gantline.job_status AND at < rule.before
          AND id < %(unread)s
        ORDER BY at LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS found
    LIMIT %(limit)s
), rows AS (
    DELETE FROM gantline.log WHERE job_id = ANY (ARRAY(SELECT job_id FROM old)) RETURNING 1
), jobs AS (
    DELETE FROM gantline.job WHERE id = ANY (ARRAY(SELECT job_id FROM old))
    RETURNING id, tenant, external_id
), freed AS ({dedupe.FREE_EXTERNAL}), counted AS (
    INSERT INTO gantline.tally_delta (lane, live, completed, failed, poisoned, cancelled, tenant)
    SELECT lane, 0, -count(*) FILTER (WHERE status = 'Completed'),
           -count(*) FILTER (WHERE status = 'Failed'), -count(*) FILTER (WHERE status = 'Poisoned'),
           -count(*) FILTER (WHERE status = 'Cancelled'), tenant
    FROM old GROUP BY lane, tenant
)
SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM rows) + (SELECT count(*) FROM jobs),
       extract(epoch FROM clock_timestamp() - statement_timestamp())::double precision
"""  # noqa: S608  # constants only
_REMOVE_JOBS = f"""
WITH jobs AS (
    DELETE FROM gantline.job WHERE id = ANY (%s) RETURNING id, tenant, external_id
)
{dedupe.FREE_EXTERNAL}
"""  # noqa: S608  # constants only
_REMOVE_REST = """
WITH keys AS (
    DELETE FROM gantline.dedupe WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM gantline.dedupe WHERE until <= coalesce(%(now)s, gantline.micros())
        LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING 1
), records AS (
    DELETE FROM gantline.record WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM gantline.record WHERE expires_at <= coalesce(%(now)s, gantline.micros())
        LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT (SELECT count(*) FROM keys), (SELECT count(*) FROM records)
"""
_OVERDUE = """
SELECT max(rule.before - oldest.at)
FROM unnest(%(statuses)s::text[], %(limits)s::bigint[]) AS rule (status, before)
CROSS JOIN LATERAL (
    SELECT at FROM gantline.log
    WHERE is_end AND status = rule.status::gantline.job_status ORDER BY at LIMIT 1) AS oldest
"""
# The first row that was not read yet: numbered after `read`, or not numbered at all. The ids of a
# batch ascend, so its first unread id is its lowest.
_FIRST_UNREAD = """
SELECT least(
    (SELECT high + 1 FROM gantline.event_cursor),
    (SELECT min(log_id) FROM gantline.event_gap),
    (SELECT min(log_ids[greatest(1, %(read)s - first + 2)]) FROM gantline.event_batch
     WHERE last > %(read)s))
"""
_LAST_TO_LOOK_AT = """
SELECT greatest(last, first + %s) FROM gantline.event_batch
WHERE last > %s ORDER BY last LIMIT 1
"""
_REMOVE_EMPTY_BATCHES = """
DELETE FROM gantline.event_batch WHERE last = ANY (ARRAY(
    SELECT last FROM gantline.event_batch AS batch
    WHERE last > %s AND last <= %s
      AND NOT EXISTS (SELECT FROM gantline.log WHERE log.id = ANY (batch.log_ids))
    FOR UPDATE SKIP LOCKED))
"""
_FORGET_QUEUED = FORGET.format("ready", "job_id > %s AND job_id <= %s")
_END_OF_PAGE = (
    "SELECT job_id FROM gantline.ready WHERE job_id > %s ORDER BY job_id OFFSET %s LIMIT 1"
)
_CHECK_TURNS = "SELECT * FROM gantline.check_turns(%s, %s, %s, %s, %s, %s)"
# So many rows of the queue are checked whenever the pruner has caught up: 10 ms.
_PAGE: Final = 5_000
# And so many turns of groups.
_TURNS: Final = 2_000
_FIRST_TURN: Final = (0, 0, 0, 0)
_ANY_ROW: Final = 2**63 - 1
# How many events are checked for each removed job. So at most a quarter as many batches are empty
# as are not: eight bytes an event.
_EVENTS_PER_JOB: Final = 4


async def delete(sql: Sql, jobs: Sequence[tuple[UUID, StateGuard]]) -> list[DeleteResult]:
    found = await read_heads(sql, [job_id for job_id, _ in jobs])
    results, removed = split_deletes(jobs, found, lambda job_id: job_id)
    await dedupe.free(sql, {head.job_id: head.key for head in removed if head.key})
    if removed:
        await _remove(sql, removed)
    return results


async def _remove(sql: Sql, jobs: Sequence[Head[UUID]]) -> None:
    ids = Uuids([job.job_id for job in jobs])
    await sql.run("DELETE FROM gantline.log WHERE job_id = ANY (%s)", ids)
    await sql.run(_REMOVE_JOBS, ids)
    tally = Tally()
    for job in jobs:
        tally.move(job.tenant, job.lane, job.status, None)
    await tally.write(sql)


class QueueCheck:
    """Checks the queue page by page, and removes what is left of jobs that were removed by hand.

    A claim removes what it finds, but not every lane is claimed from.
    """

    def __init__(self) -> None:
        self._after = UUID(int=0)

    async def next_page(self, sql: Sql) -> None:
        end = await sql.row(_END_OF_PAGE, self._after, _PAGE - 1)
        upto = end[0] if end else UUID(int=2**128 - 1)
        await sql.run(_FORGET_QUEUED, self._after, upto)
        self._after = upto if end else UUID(int=0)


class TurnCheck:
    """Checks the turns of groups page by page, and removes those of which nothing is Queued."""

    def __init__(self) -> None:
        self._after = _FIRST_TURN

    async def next_page(self, sql: Sql, now: int | None) -> None:
        row = await sql.row(_CHECK_TURNS, now, _TURNS, *self._after)
        self._after = row or _FIRST_TURN


class EmptyBatches:
    """Removes the batches of events whose rows were all removed.

    Looks at some of them at a time, round and round: one dead job that is kept for long keeps its
    batch, and to begin with the oldest each time would be to look at all such batches first.
    """

    def __init__(self) -> None:
        self._after = 0

    async def remove(self, sql: Sql, *, events: int) -> None:
        """Check the batches of so many events."""
        row = await sql.row(_LAST_TO_LOOK_AT, events, self._after)
        if row is not None:
            await sql.run(_REMOVE_EMPTY_BATCHES, self._after, row[0])
        self._after = row[0] if row else 0


async def prune(
    sql: Sql,
    rules: Sequence[PruneRule],
    *,
    queue_check: QueueCheck,
    turn_check: TurnCheck,
    empty_batches: EmptyBatches,
    limit: int,
    keep_events_after: int | None,
    now: int | None,
) -> Pruned:
    """The row that ends a job is its newest, so its id shows whether all rows were read."""
    if not limit:
        return Pruned(overdue=await _measure_overdue(sql, rules))
    first_unread = _ANY_ROW
    if keep_events_after is not None:
        read = in_64_bits(max(0, keep_events_after))
        first_unread = (await sql.named(_FIRST_UNREAD, {"read": read}))[0][0]
    values = _values_of(rules) | {"unread": first_unread, "limit": limit}
    removed, _, busy = (await sql.named(_REMOVE_OLD, values))[0]
    if removed:
        await empty_batches.remove(sql, events=_EVENTS_PER_JOB * removed)
    if removed < limit:
        await queue_check.next_page(sql)
        await turn_check.next_page(sql, now)
    await fold(sql)
    keys, records = (await sql.named(_REMOVE_REST, {"now": now, "limit": limit}))[0]
    return Pruned(removed, keys, records, await _measure_overdue(sql, rules), busy)


async def _measure_overdue(sql: Sql, rules: Sequence[PruneRule]) -> timedelta:
    """Say how long ago the oldest job should have been removed."""
    late = (await sql.named(_OVERDUE, _values_of(rules)))[0][0]
    return timedelta(microseconds=max(0, late or 0))


def _values_of(rules: Sequence[PruneRule]) -> dict[str, object]:
    return {
        "statuses": Texts([rule.status.value for rule in rules]),
        "limits": Bigints([to_micros(rule.ended_before) for rule in rules]),
    }
