"""delete and prune, in steps that keep the server from standing still."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from windlass.contract.clock import to_micros
from windlass.contract.query import Pruned, PruneRule, in_64_bits
from windlass.contract.results import Applied, DeleteResult, NotFound, Stale
from windlass.contract.status import DEAD
from windlass.contract.transition import StateGuard
from windlass.stores.redis import scripts
from windlass.stores.redis.apply import guarded_version
from windlass.stores.redis.calls import Calls, in_batches
from windlass.stores.redis.connection import Argument
from windlass.stores.redis.rows import LETTERS

_BATCH: Final = 200


async def delete(calls: Calls, jobs: Sequence[tuple[UUID, StateGuard]]) -> list[DeleteResult]:
    answers: list[DeleteResult] = []
    for batch in in_batches(jobs, _BATCH):
        said: list[Argument] = []
        for job_id, guard in batch:
            letter, version = LETTERS[guard.status], guarded_version(guard)
            said += (job_id.bytes, guard.tenant_id, letter, version)
        reply = await calls.run(scripts.DELETE, said)
        answers += [_read(answer) for answer in reply.value]
    return answers


def _read(answer: int | bytes) -> DeleteResult:
    match answer:
        case b"S":
            return Stale()
        case b"N":
            return NotFound()
        case _:
            return Applied(int(answer))


async def prune(
    calls: Calls,
    rules: Sequence[PruneRule],
    *,
    limit: int,
    keep_events_after: int | None,
    now: bytes,
) -> Pruned:
    jobs = 0
    for rule in rules:
        if rule.status.is_terminal:
            for source in await _sources(calls, rule):
                jobs += await _prune(calls, source, rule, limit - jobs, keep_events_after)
    keys = records = 0
    while True:
        said: list[Argument] = [now, min(_BATCH, limit - keys), min(_BATCH, limit - records)]
        more_keys, more_records = (await calls.run(scripts.PRUNE_REST, said)).value
        keys, records = keys + more_keys, records + more_records
        if more_keys + more_records == 0:
            return Pruned(jobs, keys, records)


async def _sources(calls: Calls, rule: PruneRule) -> list[str]:
    letter = LETTERS[rule.status]
    if rule.status not in DEAD:
        return [f"ended:{letter}"]
    groups = (await calls.run(scripts.DEAD_GROUPS, [letter])).value
    return sorted(f"dead:{group.decode()}" for group in groups)


async def _prune(
    calls: Calls, source: str, rule: PruneRule, limit: int, keep_events_after: int | None
) -> int:
    keep: Argument = b"" if keep_events_after is None else in_64_bits(keep_events_after)
    removed = passed_over = 0
    while removed < limit:
        most = min(_BATCH, limit - removed)
        said: list[Argument] = [source, to_micros(rule.ended_before), passed_over, most, keep]
        gone, stayed = (await calls.run(scripts.PRUNE_JOBS, said)).value
        removed, passed_over = removed + gone, passed_over + stayed
        if gone + stayed < most:
            break
    return removed
