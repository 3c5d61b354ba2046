"""settle: runs that end and carry nothing beyond their job, many in one call of the server's
function; and why it refused one."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from gantline.contract.clock import span_micros
from gantline.contract.results import Applied, ApplyResult, NotFound, Stale
from gantline.contract.status import Event, JobStatus
from gantline.contract.transition import RunGuard, Transition, refusal
from gantline.stores.postgres.arrays import Array, Bigints, Booleans, Bytes, Integers, Texts, Uuids
from gantline.stores.postgres.leases import LOCK_WAITS_SECONDS
from gantline.stores.postgres.sql import Sql, left_join_one

_COMPLETE = "SELECT * FROM gantline.complete_runs(%s, %s, %s, %s, %s)"
_COLUMNS = ", ".join(["%s"] * 20)
_SETTLE = f"SELECT * FROM gantline.settle_runs({_COLUMNS})"  # noqa: S608  # constants only
_EXPLAIN = f"""
SELECT given.index, job.id IS NOT NULL, coalesce(lease.token = given.token, false),
       coalesce(lease.until <= coalesce(%s, gantline.micros()), false),
       coalesce(lease.cancel_requested, false),
       coalesce(lease.version, ready.version, last.version),
       EXISTS (
           SELECT FROM gantline.log
           WHERE log.job_id = given.job_id AND log.change_id = given.token
             AND log.event::text = given.event)
FROM unnest(%s, %s, %s) WITH ORDINALITY AS given (job_id, token, event, index)
{left_join_one("job", "id", "given.job_id")}
{left_join_one("lease", "job_id", "given.job_id")}
{left_join_one("ready", "job_id", "given.job_id")}
LEFT JOIN LATERAL (
    SELECT version FROM gantline.log WHERE log.job_id = given.job_id
    ORDER BY version DESC LIMIT 1
) AS last ON true
"""  # noqa: S608  # constants only


def is_plain(transition: Transition) -> bool:
    """Whether it ends a run and writes nothing beyond its job and what every row has."""
    return isinstance(transition.guard, RunGuard) and not (
        transition.follow_ups
        or transition.records
        or transition.once
        or transition.actor
        or transition.emitted
    )


async def settle(sql: Sql, transitions: Sequence[Transition], now: int | None) -> list[ApplyResult]:
    """Write plain transitions of different jobs."""
    results = await _attempt(sql, transitions, now)
    for wait in LOCK_WAITS_SECONDS:
        locked = [index for index, result in enumerate(results) if result is None]
        if not locked:
            break
        await asyncio.sleep(wait)
        again = await _attempt(sql, [transitions[index] for index in locked], now)
        for index, result in zip(locked, again, strict=True):
            results[index] = result
    return [Stale() if result is None else result for result in results]


async def _attempt(
    sql: Sql, transitions: Sequence[Transition], now: int | None
) -> list[ApplyResult | None]:
    """None for a lapsed lease that another transaction has locked: it may be about to change."""
    results: list[ApplyResult | None] = [None] * len(transitions)
    completed: list[int] = []
    others: list[int] = []
    for index, one in enumerate(transitions):
        (completed if _is_simple_success(one) else others).append(index)
    if completed:
        successes = _success_columns([transitions[index] for index in completed])
        for ended, versions in await sql.rows(_COMPLETE, now, *successes):
            for index, version in zip(ended or (), versions or (), strict=True):
                results[completed[index - 1]] = Applied(version)
    if others:
        columns = _columns([transitions[index] for index in others])
        for index, version in await sql.rows(_SETTLE, now, *columns):
            results[others[index - 1]] = Applied(version)
    refused = [index for index, result in enumerate(results) if result is None]
    if refused:
        reasons = await _explain(sql, [transitions[index] for index in refused], now)
        for index, reason in zip(refused, reasons, strict=True):
            results[index] = reason
    return results


async def _explain(
    sql: Sql, refused: Sequence[Transition], now: int | None
) -> list[ApplyResult | None]:
    rows = await sql.rows(
        _EXPLAIN,
        now,
        Uuids([one.job_id for one in refused]),
        Uuids([one.change_id for one in refused]),
        Texts([one.event.value for one in refused]),
    )
    return [
        _explain_one(one, _RunState(*row[1:]))
        for one, row in zip(refused, sorted(rows), strict=True)
    ]


class _RunState(NamedTuple):
    """The state of a job, as seen from the run that tried to end it."""

    is_there: bool
    is_current: bool
    is_lapsed: bool
    cancel_requested: bool
    version: int
    is_repeated: bool


def _explain_one(transition: Transition, standing: _RunState) -> ApplyResult | None:
    guard = transition.guard
    assert isinstance(guard, RunGuard)  # noqa: S101  # plain ones have no other
    if not standing.is_there:
        return NotFound()
    if standing.is_repeated:
        return Applied(standing.version)
    refused = refusal(
        guard,
        tenant_id="",
        status=JobStatus.RUNNING,
        version=standing.version,
        token=guard.token if standing.is_current else None,
        has_expired=standing.is_lapsed,
        cancel_requested=standing.cancel_requested,
    )
    # A guard that holds was refused because another transaction had locked the lease.
    return refused or (None if guard.only_expired else Stale())


def _is_simple_success(transition: Transition) -> bool:
    return (
        transition.event is Event.COMPLETED
        and transition.result_omitted is None
        and transition.guard == RunGuard(transition.change_id)
    )


def _success_columns(transitions: Sequence[Transition]) -> list[Array]:
    return [
        Uuids([one.job_id for one in transitions]),
        Uuids([one.change_id for one in transitions]),
        Bigints([span_micros(one.hold_key) for one in transitions]),
        Bytes([one.result for one in transitions]),
    ]


def _columns(transitions: Sequence[Transition]) -> list[Array | None]:
    guards = [one.guard for one in transitions if isinstance(one.guard, RunGuard)]
    errors = [one.error for one in transitions]
    return [
        Uuids([one.job_id for one in transitions]),
        Uuids([guard.token for guard in guards]),
        Booleans([guard.unless_cancelled for guard in guards]),
        Booleans([guard.only_expired for guard in guards]),
        Texts([one.event.value for one in transitions]),
        Texts([one.to.value for one in transitions]),
        Texts([one.reason.value for one in transitions]),
        Integers([one.attempt for one in transitions]),
        Integers([one.crashes for one in transitions]),
        Integers([one.snoozes for one in transitions]),
        Integers([one.priority for one in transitions]),
        Bigints([span_micros(one.delay) for one in transitions]),
        Bigints([span_micros(one.hold_key) for one in transitions]),
        Texts([error and error.code for error in errors]),
        Texts([error and error.message for error in errors]),
        Texts([error and error.detail for error in errors]),
        Bytes([one.result for one in transitions]),
        Texts([one.result_omitted for one in transitions]),
        Texts([one.closes for one in transitions])
        if any(one.closes for one in transitions)
        else None,
    ]
