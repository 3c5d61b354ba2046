"""insert: jobs with their keys, many in one call of the server's function."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gantline.contract.clock import span_micros
from gantline.contract.results import Applied, Conflict, Duplicate, InsertResult
from gantline.contract.submission import KeyKind, NewJob
from gantline.stores.postgres.arrays import Array, Bigints, Booleans, Bytes, Texts, Uuids
from gantline.stores.postgres.lanes import Lane, Lanes
from gantline.stores.postgres.rows import expiries, groups, job_columns
from gantline.stores.postgres.sql import Row, Sql

MOST_AT_ONCE: Final = 1_000
_DELAY: Final = 14
"""Where the server's function has it among the columns of a job."""
_INSERT = f"SELECT * FROM gantline.insert_jobs({', '.join(['%s'] * 29)})"  # noqa: S608


async def insert(
    sql: Sql,
    jobs: Sequence[NewJob],
    in_rounds: Iterable[list[int]],
    *,
    lanes: Lanes,
    now: int | None,
    patience_ms: int | None = None,
) -> list[InsertResult]:
    """Insert in the caller's transaction, which is needed where there is more than one round.

    The lanes must have been loaded.
    """
    results: list[InsertResult] = [Applied(1)] * len(jobs)
    for indexes in in_rounds:
        columns = _columns([jobs[index] for index in indexes], lanes)
        for row in await sql.rows(_INSERT, now, patience_ms, *columns):
            results[indexes[row[0] - 1]] = read_refusal(row)
    return results


def lanes_of(jobs: Iterable[NewJob]) -> Iterator[Lane]:
    return ((new.job.queue, new.job.job_type) for new in jobs)


def split_by_key(jobs: Sequence[NewJob]) -> Iterator[list[int]]:
    """Split into rounds with each id and key once, so that a later job sees the earlier."""
    rest = list(range(len(jobs)))
    if len(jobs) <= MOST_AT_ONCE and _are_all_different(jobs):
        yield rest
        return
    while rest:
        seen: set[object] = set()
        this: list[int] = []
        later: list[int] = []
        for index in rest:
            new = jobs[index]
            ids = filter(None, (new.job.job_id, new.job.external_id))
            names: list[object] = [*ids, *(key.identity for key in new.keys)]
            is_first = len(this) < MOST_AT_ONCE and seen.isdisjoint(names)
            (this if is_first else later).append(index)
            seen.update(names)  # those after it wait for a later round as well
        yield this
        rest = later


def _are_all_different(jobs: Sequence[NewJob]) -> bool:
    keys = [key.identity for new in jobs for key in new.keys]
    ids = [new.job.job_id for new in jobs]
    ids += [external_id for new in jobs if (external_id := new.job.external_id)]
    return len(set(ids)) == len(ids) and len(set(keys)) == len(keys)


def read_refusal(row: Row) -> InsertResult:
    """Read why the server's function did not insert a job."""
    _, outcome, existing, kind = row
    by = None if kind is None else KeyKind(kind)
    return Conflict(by=by) if outcome == "conflict" else Duplicate(existing, by=by)


def _columns(jobs: Sequence[NewJob], lanes: Lanes) -> list[Array | None]:
    requests = [new.request_key for new in jobs]
    envelopes = [new.job for new in jobs]
    external = [job.external_id for job in envelopes]
    columns = job_columns(jobs, [lanes[(new.job.queue, new.job.job_type)] for new in jobs])
    columns.insert(_DELAY, Bigints([span_micros(new.delay) for new in jobs]))
    return [
        *columns,
        Texts([key and key.tenant_id for key in requests]),
        Texts([key and key.scope for key in requests]),
        Texts([key and key.key for key in requests]),
        Bytes([key and key.fingerprint for key in requests]),
        Bigints([key and key.hold and span_micros(key.hold) for key in requests]),
        Booleans([new.logged for new in jobs]) if any(new.logged for new in jobs) else None,
        Uuids(external) if any(external) else None,
        expiries(envelopes) if any(job.expires_at for job in envelopes) else None,
        groups(envelopes),
    ]


def accept_own_duplicates(
    results: list[InsertResult], jobs: Sequence[NewJob]
) -> list[InsertResult]:
    """After a repeated insert: a duplicate with the job's own id is the job that we inserted."""
    return [
        Applied(1) if result == Duplicate(new.job.job_id) else result
        for result, new in zip(results, jobs, strict=True)
    ]
