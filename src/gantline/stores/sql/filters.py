"""The conditions of a filter in SQL, as far as they are alike in all SQL stores."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gantline.contract.clock import to_micros
from gantline.contract.query import JobFilter, in_64_bits
from gantline.contract.status import DerivedState, State
from gantline.contract.webhook import RESERVED_TYPES

Terms = tuple[list[str], list[object]]
"""Conditions, and their values in order."""

Position = tuple[int, object]
"""Where a job is in a list: created_at in microseconds, and the encoded id."""

# A page passes over so many jobs at most, beside those it finds, and is short where that is not
# enough: or a search for what is rare would read all jobs of a tenant. First it tries with fewer,
# since the place where it has to stop is found by reading the index up to there.
PASSED_OVER: Final = (200, 20_000)


class Listed(NamedTuple):
    """Rows that stand for jobs, and their columns by which a list is narrowed and ordered."""

    source: str
    tenant: str
    created_at: str
    job_id: str
    is_indexed: bool = True
    """An index leads through the rows of one tenant in the order of the list."""


def make_part_terms(
    filter: JobFilter,
    listed: Listed,
    after: Position | None,
    down_to: Position | None,
    *,
    placeholder: str,
) -> Terms:
    """Write which part of a list is meant: by tenant and time, after a position, down to another.

    These are the conditions that an index answers.
    """
    compared = {
        f"{listed.tenant} =": filter.tenant_id,
        f"{listed.created_at} >=": filter.created_from and to_micros(filter.created_from),
        f"{listed.created_at} <": filter.created_before and to_micros(filter.created_before),
    }
    conditions = [f"{term} {placeholder}" for term, value in compared.items() if value is not None]
    values: list[object] = [value for value in compared.values() if value is not None]
    for sign, position in (("<", after), (">=", down_to)):
        if position:
            place = f"({listed.created_at}, {listed.job_id})"
            conditions.append(f"{place} {sign} ({placeholder}, {placeholder})")
            values += position
    return conditions, values


def make_terms(
    filter: JobFilter,
    *,
    placeholder: str,
    parent: object,
    of_last: Callable[[str], str],
    attempt: str,
    among: Callable[[str, Sequence[str]], Terms],
) -> Terms:
    """Write all but the conditions for the part of the list and for the caller.

    `parent` is the encoded id; `of_last` selects a column of the last outcome; `attempt` selects
    which attempt the job is in; `among` writes the condition that a column has one of several
    values.
    """
    equal = {
        "job.subject =": filter.subject_id,
        "job.created_by =": filter.created_by,
        "job.correlation =": filter.correlation_id,
        "job.parent =": parent,
        f"{attempt} >=": in_64_bits(filter.min_attempts) or None,
        f"substr(lane.job_type, 1, {len(RESERVED_TYPES)}) <>": (
            None if filter.internal else RESERVED_TYPES
        ),
    }
    conditions = [f"{term} {placeholder}" for term, value in equal.items() if value is not None]
    values: list[object] = [value for value in equal.values() if value is not None]
    for column, some in (
        ("lane.job_type", filter.job_types),
        ("lane.queue", filter.queues),
        (of_last("reason"), filter.reasons),
        (of_last("error_code"), filter.error_codes),
    ):
        if some:
            more_conditions, more_values = among(column, sorted(some))
            conditions += more_conditions
            values += more_values
    # The terms with <> let the partial indexes be used.
    if filter.subject_id or (filter.whose and filter.whose.subject_required):
        conditions.append("job.subject <> ''")
    if filter.created_by:
        conditions.append("job.created_by <> ''")
    return conditions, values


def make_state_terms(
    filter: JobFilter,
    state: State | None,
    *,
    placeholder: str,
    now: str,
    of_last: Callable[[str], str],
) -> Terms:
    """Write what a derived state and `due_before` ask of the row of the queue or of the lease.

    `now` is the expression of the store's present. Only a job that was run has an outcome.
    """
    failed = f"(ready.fence > 0 AND {of_last('event')} IN ('retried', 'crashed'))"
    conditions = {
        DerivedState.SCHEDULED: [f"ready.run_at > {now}", f"{failed} IS NOT TRUE"],
        DerivedState.RETRYING: [failed],
        DerivedState.CANCELLING: ["lease.cancel_requested"],
    }
    some = list(conditions[state]) if isinstance(state, DerivedState) else []
    if filter.due_before is None:
        return some, []
    return [f"ready.run_at < {placeholder}", *some], [to_micros(filter.due_before)]
