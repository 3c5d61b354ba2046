"""apply: decided changes under their guards, each with its follow-ups, keys, records and log row.

Most changes end a run and carry nothing else; those go through `settle`. The others are looked at
under a lock, and written in the same transaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

from gantline.contract.clock import later_micros
from gantline.contract.errors import StoreCorrupt
from gantline.contract.flow import group_number
from gantline.contract.records import write_is_allowed
from gantline.contract.results import Applied, ApplyResult, Conflict, NotFound
from gantline.contract.snapshot import rank
from gantline.contract.status import Event, JobStatus
from gantline.contract.submission import DedupeKey, KeyKind, NewJob
from gantline.contract.transition import Transition, may_be_repeat, refusal
from gantline.stores.postgres import dedupe, records
from gantline.stores.postgres.arrays import Uuids
from gantline.stores.postgres.counts import Tally
from gantline.stores.postgres.insert import insert, split_by_key
from gantline.stores.postgres.lanes import Lanes
from gantline.stores.postgres.settle import is_plain, settle
from gantline.stores.postgres.sql import Row, Sql, join_one
from gantline.stores.postgres.turns import NewTurn, add_turns
from gantline.stores.sql.changes import ChangedRows, Head, Requeued, has_attachments, split_by_job

_REPEATED = """
SELECT 1 FROM gantline.log WHERE job_id = %s AND change_id = %s AND event::text = %s
"""
_LOG = """
INSERT INTO gantline.log (
    job_id, version, change_id, tenant, lane, event, status, reason, at, attempt, crashes, snoozes,
    fence, priority, session, started_at, error_code, error_message, error_detail, result,
    result_omitted, actor, created_at, is_end, emitted)
VALUES (%s, %s, %s, %s, %s, %s::text::gantline.job_event, %s::text::gantline.job_status, %s, %s, %s,
        %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_READY = """
INSERT INTO gantline.ready (
    run_at, job_id, lane, priority, tenant, version, attempt, crashes, snoozes, fence, created_at,
    keyed, grp)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_CLOSE = """
INSERT INTO gantline.gate (name, closed_until) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET closed_until = greatest(gate.closed_until, excluded.closed_until)
"""
_REQUEST_CANCEL = (
    "UPDATE gantline.lease SET cancel_requested = true, version = %s WHERE job_id = %s"
)
_LEAVE_LEASE = "DELETE FROM gantline.lease WHERE job_id = ANY (%s)"
_LEAVE_READY = "DELETE FROM gantline.ready WHERE job_id = ANY (%s)"
_LEAVE_END = "UPDATE gantline.log SET is_end = false WHERE id = %s"


_HEAD_COLUMNS = (
    "{0}.version, {0}.fence, {0}.attempt, {0}.crashes, {0}.snoozes, {0}.priority, {0}.lane, "
    "{0}.tenant, {0}.created_at, job.idempotency_key, job.fingerprint, lane.job_type"
)
_NO_RUN = "NULL, '', NULL, NULL, false"
_RUNNING_HEADS = f"""
SELECT lease.job_id, 'Running', NULL, {_HEAD_COLUMNS.format("lease")},
       lease.token, lease.session, lease.started_at, lease.until, lease.cancel_requested,
       job.group_name
FROM gantline.lease
{join_one("job", "id", "lease.job_id")}
{join_one("lane", "id", "lease.lane")}
WHERE lease.job_id = ANY (%s) ORDER BY lease.job_id FOR UPDATE OF lease
"""  # noqa: S608  # constants only
_QUEUED_HEADS = f"""
SELECT ready.job_id, 'Queued', NULL, {_HEAD_COLUMNS.format("ready")},
       {_NO_RUN}, job.group_name
FROM gantline.ready
{join_one("job", "id", "ready.job_id")}
{join_one("lane", "id", "ready.lane")}
WHERE ready.job_id = ANY (%s) ORDER BY ready.job_id FOR UPDATE OF ready
"""  # noqa: S608  # constants only
_ENDED_HEADS = f"""
SELECT log.job_id, log.status::text, log.id, {_HEAD_COLUMNS.format("log")},
       {_NO_RUN}, job.group_name
FROM gantline.log
{join_one("job", "id", "log.job_id")}
{join_one("lane", "id", "log.lane")}
WHERE log.is_end AND log.job_id = ANY (%s) ORDER BY log.job_id FOR UPDATE OF log
"""  # noqa: S608  # constants only
_KNOWN = "SELECT id FROM gantline.job WHERE id = ANY (%s)"
# A job may change its status between two reads, but not this often: then it has no status.
_MOST_LOOKS: Final = 20


async def read_heads(sql: Sql, job_ids: Sequence[UUID]) -> dict[UUID, Head[UUID]]:
    """Read the state of jobs, and lock it until the transaction ends.

    A job that is not in the result does not exist.
    """
    found: dict[UUID, Head[UUID]] = {}
    missing = sorted(set(job_ids))
    for _ in range(_MOST_LOOKS):
        for statement in (_RUNNING_HEADS, _QUEUED_HEADS, _ENDED_HEADS):
            for row in await sql.rows(statement, Uuids(missing)) if missing else ():
                found[row[0]] = Head(JobStatus(row[1]), row[0], *row[2:])
            missing = [job_id for job_id in missing if job_id not in found]
        if not missing:
            return found
        missing = sorted(row[0] for row in await sql.rows(_KNOWN, Uuids(missing)))
        if not missing:
            return found
    raise StoreCorrupt(
        f"Job {missing[0]} is neither queued, running nor ended.",
        next_step="Restore a backup, or delete the job's row.",
    )


async def apply(
    sql: Sql, transitions: Sequence[Transition], *, lanes: Lanes, now: int | None
) -> list[ApplyResult]:
    """Apply in the caller's transaction; where all are plain, none is needed.

    The lanes of follow-ups must have been loaded.
    """
    if all(map(is_plain, transitions)) and _are_of_different_jobs(transitions):
        return await settle(sql, transitions, now)
    results: dict[int, ApplyResult] = {}
    for round_ in split_by_job(transitions):
        plain = [(index, one) for index, one in round_ if is_plain(one)]
        others = [(index, one) for index, one in round_ if not is_plain(one)]
        if plain:
            settled = await settle(sql, [one for _, one in plain], now)
            results |= zip((index for index, _ in plain), settled, strict=True)
        if others:
            results |= await _apply_one_by_one(sql, others, lanes, now)
    return [results[index] for index in range(len(transitions))]


def follow_ups_of(transitions: Iterable[Transition]) -> Iterator[NewJob]:
    return (new for transition in transitions for new in transition.follow_ups)


def _are_of_different_jobs(transitions: Sequence[Transition]) -> bool:
    return len({transition.job_id for transition in transitions}) == len(transitions)


async def _apply_one_by_one(
    sql: Sql, transitions: Sequence[tuple[int, Transition]], lanes: Lanes, now: int | None
) -> dict[int, ApplyResult]:
    found = await read_heads(sql, [one.job_id for _, one in transitions])
    if now is None:
        now = (await sql.rows("SELECT gantline.micros()"))[0][0]
    change = _Change(sql, lanes, now)
    results = {index: await change.refuse(one, found.get(one.job_id)) for index, one in transitions}
    allowed = [
        (index, one, found[one.job_id]) for index, one in transitions if results[index] is None
    ]
    await dedupe.lock(sql, _keys_of(allowed))
    together = await change.add_together(
        [(one, head) for _, one, head in allowed if has_attachments(one)]
    )
    for index, one, head in allowed:
        results[index] = await change.add(one, head, is_added=together)
    await change.write()
    return {index: result for index, result in results.items() if result is not None}


def _keys_of(changes: Sequence[tuple[int, Transition, Head[UUID]]]) -> Iterator[DedupeKey]:
    for _, transition, head in changes:
        if key := head.key:
            yield key
        yield from transition.once


class _Change:
    """Collects the rows of many transitions and writes them table by table."""

    def __init__(self, sql: Sql, lanes: Lanes, now: int) -> None:
        self._sql = sql
        self._lanes = lanes
        self._now = now
        self._clear()

    def _clear(self) -> None:
        self._tally = Tally()
        self._rows = ChangedRows(self._now, self._tally, encode_id=lambda uuid: uuid)

    async def refuse(self, transition: Transition, head: Head[UUID] | None) -> ApplyResult | None:
        """Say why a transition cannot be written, or that it was written before; None if it can."""
        if head is None:
            return NotFound()
        refused = refusal(
            transition.guard,
            tenant_id=head.tenant,
            status=head.status,
            version=head.version,
            token=head.token,
            has_expired=head.until is not None and head.until <= self._now,
            cancel_requested=head.cancel_requested,
        )
        if may_be_repeat(transition.guard, refused) and await self._is_repeated(transition):
            return Applied(head.version)
        return refused

    async def add_together(self, changes: Sequence[tuple[Transition, Head[UUID]]]) -> bool:
        """Add transitions and write their follow-ups at once, if that is all they carry.

        False, and nothing is written, where one of them conflicts: then each is tried alone.
        """
        transitions = [one for one, _ in changes]
        carry_more = any(
            one.records or one.once or one.event is Event.REDRIVEN for one in transitions
        )
        if not transitions or carry_more:
            return False
        for one, head in changes:
            self._rows.add(one, head)
        return await self._insert_follow_ups(list(follow_ups_of(transitions))) is None

    async def add(self, transition: Transition, head: Head[UUID], *, is_added: bool) -> ApplyResult:
        """`is_added`: together with others, if it carries anything."""
        if not has_attachments(transition):
            self._rows.add(transition, head)
        elif not is_added:
            # It reads keys, records and other jobs, which may be among the rows not yet written.
            await self.write()
            conflict = await self._add_with_attachments(transition, head)
            if conflict is not None:
                return conflict
            await self.write()
        return Applied(head.version + 1)

    async def _is_repeated(self, transition: Transition) -> bool:
        """Whether the log has this change already: then only its result was lost, not the run."""
        values = (transition.job_id, transition.change_id, transition.event.value)
        return await self._sql.row(_REPEATED, *values) is not None

    async def write(self) -> None:
        rows = self._rows
        if rows.left_lease:
            await self._sql.run(_LEAVE_LEASE, Uuids(rows.left_lease))
        if rows.left_ready:
            await self._sql.run(_LEAVE_READY, Uuids(rows.left_ready))
        await self._sql.each(_LEAVE_END, rows.left_end)
        await self._sql.each(_REQUEST_CANCEL, rows.cancel_requests)
        await self._sql.each(_READY, [self._ready_row(one) for one in rows.queued])
        await add_turns(self._sql, (self._turn_of(one) for one in rows.queued))
        await self._write_log()
        await self._sql.each(dedupe.HOLD, rows.keys_held)
        await self._sql.each(dedupe.FREE, rows.keys_freed)
        await dedupe.take(self._sql, rows.keys_taken, self._now)
        # By name, as claims lock gates; and a claim that has one waits for nobody.
        await self._sql.each(_CLOSE, sorted(self._closed(rows.queued)))
        await self._tally.write(self._sql)
        self._clear()

    async def _write_log(self) -> None:
        logged, self._rows.logged = self._rows.logged, []
        await self._sql.each(_LOG, logged)

    async def _add_with_attachments(
        self, transition: Transition, head: Head[UUID]
    ) -> Conflict | None:
        """Write follow-ups and records at once, or return the first conflict."""
        if transition.event is Event.REDRIVEN and (key := head.key):
            held = await dedupe.find_holder(self._sql, key, self._now)
            if held and held.job_id != head.job_id:
                return Conflict(by=KeyKind.JOB)
        # Locked in the order of their names, which avoids deadlocks.
        names = sorted({(write.namespace, write.key) for write in transition.records})
        stored = {name: await records.read_current(self._sql, *name, self._now) for name in names}
        for write in transition.records:
            if not write_is_allowed(write, stored[write.namespace, write.key]):
                return Conflict(by=f"{write.namespace}/{write.key}")
        self._rows.add(transition, head)
        if transition.follow_ups:
            conflict = await self._insert_follow_ups(transition.follow_ups)
            if conflict is not None:
                return conflict
        await records.write_all(self._sql, transition.records, self._now)
        return None

    async def _insert_follow_ups(self, jobs: Sequence[NewJob]) -> Conflict | None:
        """Insert all of them or, by a savepoint, none, and forget from what they follow."""
        try:
            async with self._sql.connection.transaction():
                await self._write_log()  # what follows from an end is logged after it
                results = await insert(
                    self._sql, jobs, split_by_key(jobs), lanes=self._lanes, now=self._now
                )
                for result in results:
                    if isinstance(result, Conflict):
                        raise _FollowUpConflict(result)
        except _FollowUpConflict as conflict:
            self._clear()
            return conflict.result
        return None

    def _ready_row(self, requeued: Requeued[UUID]) -> Row:
        transition, head, version = requeued
        return (
            later_micros(self._now, transition.delay),
            head.job_id,
            head.lane,
            transition.priority,
            head.tenant,
            version,
            transition.attempt,
            transition.crashes,
            transition.snoozes,
            head.fence,
            head.created_at,
            bool(head.idempotency_key),
            group_number(head.tenant, head.group),
        )

    def _turn_of(self, requeued: Requeued[UUID]) -> NewTurn:
        transition, head, _ = requeued
        return NewTurn(
            head.lane,
            rank(transition.priority, transition.crashes),
            group_number(head.tenant, ""),
            group_number(head.tenant, head.group),
            later_micros(self._now, transition.delay),
        )

    def _closed(self, queued: Iterable[Requeued[UUID]]) -> Iterator[tuple[str, int]]:
        """Each gate that is closed, and until when."""
        for transition, _, _ in queued:
            if transition.closes:
                yield transition.closes, later_micros(self._now, transition.delay)


class _FollowUpConflict(Exception):
    def __init__(self, result: Conflict) -> None:
        super().__init__()
        self.result = result
