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
from gantline.stores.postgres.sql import Sql, looked_up_if_there

_COMPLETE = "SELECT * FROM gantline.complete_runs(%s, %s, %s, %s, %s)"
_COLUMNS = ", ".join(["%s"] * 19)
_SETTLE = f"SELECT * FROM gantline.settle_runs({_COLUMNS})"  # noqa: S608  # constants only
_EXPLAIN = f"""
SELECT wanted.place, job.id IS NOT NULL, coalesce(lease.token = wanted.token, false),
       coalesce(lease.until <= coalesce(%s, gantline.micros()), false),
       coalesce(lease.cancel_requested, false),
       coalesce(lease.version, ready.version, last.version),
       EXISTS (
           SELECT FROM gantline.log
           WHERE log.job_id = wanted.job_id AND log.change_id = wanted.token
             AND log.event::text = wanted.event)
FROM unnest(%s, %s, %s) WITH ORDINALITY AS wanted (job_id, token, event, place)
{looked_up_if_there("job", "id", "wanted.job_id")}
{looked_up_if_there("lease", "job_id", "wanted.job_id")}
{looked_up_if_there("ready", "job_id", "wanted.job_id")}
LEFT JOIN LATERAL (
    SELECT version FROM gantline.log WHERE log.job_id = wanted.job_id
    ORDER BY version DESC LIMIT 1
) AS last ON true
"""  # noqa: S608  # constants only


def is_plain(transition: Transition) -> bool:
    """Whether it ends a run and writes nothing beyond its job."""
    return isinstance(transition.guard, RunGuard) and not (
        transition.follow_ups or transition.records or transition.once or transition.actor
    )


async def settle(sql: Sql, transitions: Sequence[Transition], now: int | None) -> list[ApplyResult]:
    """Write plain transitions of different jobs."""
    answers = await _attempt(sql, transitions, now)
    for wait in LOCK_WAITS_SECONDS:
        locked = [place for place, answer in enumerate(answers) if answer is None]
        if not locked:
            break
        await asyncio.sleep(wait)
        again = await _attempt(sql, [transitions[place] for place in locked], now)
        for place, answer in zip(locked, again, strict=True):
            answers[place] = answer
    return [Stale() if answer is None else answer for answer in answers]


async def _attempt(
    sql: Sql, transitions: Sequence[Transition], now: int | None
) -> list[ApplyResult | None]:
    """None for a lapsed lease that somebody else has locked: it may be about to change."""
    answers: list[ApplyResult | None] = [None] * len(transitions)
    completed: list[int] = []
    others: list[int] = []
    for place, one in enumerate(transitions):
        (completed if _is_simple_success(one) else others).append(place)
    if completed:
        columns = _success_columns([transitions[place] for place in completed])
        for ended, versions in await sql.rows(_COMPLETE, now, *columns):
            for place, version in zip(ended or (), versions or (), strict=True):
                answers[completed[place - 1]] = Applied(version)
    if others:
        columns = _columns([transitions[place] for place in others])
        for place, version in await sql.rows(_SETTLE, now, *columns):
            answers[others[place - 1]] = Applied(version)
    refused = [place for place, answer in enumerate(answers) if answer is None]
    if refused:
        reasons = await _explained(sql, [transitions[place] for place in refused], now)
        for place, reason in zip(refused, reasons, strict=True):
            answers[place] = reason
    return answers


async def _explained(
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
        _reason(one, _Standing(*row[1:])) for one, row in zip(refused, sorted(rows), strict=True)
    ]


class _Standing(NamedTuple):
    """How a job stands to a run that wanted to end it."""

    is_there: bool
    is_current: bool
    is_lapsed: bool
    cancel_requested: bool
    version: int
    is_repeated: bool


def _reason(transition: Transition, standing: _Standing) -> ApplyResult | None:
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
    # A guard that holds was refused because somebody else had the lease locked.
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


def _columns(transitions: Sequence[Transition]) -> list[Array]:
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
    ]
