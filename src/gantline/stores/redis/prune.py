"""delete and prune: removing ended jobs, in steps short enough for the other clients."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from gantline.contract.clock import to_micros
from gantline.contract.query import Pruned, PruneRule, in_64_bits
from gantline.contract.results import DeleteResult
from gantline.contract.transition import StateGuard
from gantline.stores.redis import scripts
from gantline.stores.redis.apply import encode_version
from gantline.stores.redis.calls import AT_ONCE, Calls, check_moved_on, each_of, in_batches
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.rows import LETTERS, read_version

_BATCH: Final = 200
# How long a script takes to remove a job. It cannot measure that: its clock does not advance.
_JOB_SECONDS: Final = 8e-6
_OLD_BATCH: Final = 400
"""How many old jobs a script removes: 3 ms in which the server serves no other client."""


async def delete(calls: Calls, jobs: Sequence[tuple[UUID, StateGuard]]) -> list[DeleteResult]:
    results: list[DeleteResult] = []
    for batch in in_batches(jobs, _BATCH):
        argv: list[Argument] = []
        for job_id, guard in batch:
            letter, version = LETTERS[guard.status], encode_version(guard)
            argv += (job_id.bytes, guard.tenant_id, letter, version)
        reply = await calls.run(scripts.DELETE, *argv)
        results += map(read_version, each_of([reply], [batch]))
    return results


async def prune(
    calls: Calls,
    rules: Sequence[PruneRule],
    *,
    limit: int,
    keep_events_after: int | None,
    now: bytes,
) -> Pruned:
    if not limit:
        return Pruned(overdue=(await _find_due(calls, rules)).longest)
    jobs = 0
    for number, source in (await _find_due(calls, rules)).sources:
        jobs += await _prune(calls, source, rules[number], limit - jobs, keep_events_after)
    keys, records = await _prune_rest(calls, limit, now)
    overdue = (await _find_due(calls, rules)).longest
    return Pruned(jobs, keys, records, overdue, jobs * _JOB_SECONDS)


class _Due(NamedTuple):
    """How long ago the oldest job should have been removed, and the rule and key of such jobs."""

    longest: timedelta
    sources: list[tuple[int, str]]


async def _find_due(calls: Calls, rules: Sequence[PruneRule]) -> _Due:
    argv: list[Argument] = []
    for rule in rules:
        argv += (LETTERS[rule.status], to_micros(rule.ended_before))
    longest, *rest = await calls.run(scripts.DUE, *argv)
    keys = [key.decode() for key in rest[1::2]]
    return _Due(timedelta(microseconds=longest), sorted(zip(rest[::2], keys, strict=True)))


async def _prune_rest(calls: Calls, limit: int, now: bytes) -> tuple[int, int]:
    keys = records = 0
    while True:
        more_keys, more_records = await calls.run(
            scripts.PRUNE_REST, now, min(_BATCH, limit - keys), min(_BATCH, limit - records)
        )
        keys, records = keys + more_keys, records + more_records
        check_moved_on(max(keys, records) <= limit)
        if more_keys + more_records == 0:
            return keys, records


async def _prune(
    calls: Calls, source: str, rule: PruneRule, limit: int, keep_events_after: int | None
) -> int:
    keep: Argument = b"" if keep_events_after is None else in_64_bits(keep_events_after)
    before = to_micros(rule.ended_before)
    removed = passed_over = 0
    while removed < limit:
        some = range(min(_OLD_BATCH * AT_ONCE, limit - removed))
        sizes = [len(batch) for batch in in_batches(some, _OLD_BATCH)]
        # The second batch does not see what the first has removed, so both have the same start.
        argv = [(source, before, passed_over, size, keep) for size in sizes]
        results = (await calls.run_each(scripts.PRUNE_JOBS, argv)).value
        removed += sum(gone for gone, _ in results)
        gone, stayed = results[-1]
        passed_over += stayed
        if gone + stayed < sizes[-1]:
            break
    return removed
