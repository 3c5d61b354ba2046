"""The conditions of a filter in SQL, as far as they are alike in all SQL stores."""

from collections.abc import Callable, Sequence

from gantline.contract.clock import to_micros
from gantline.contract.query import JobFilter

Terms = tuple[list[str], list[object]]
"""Conditions, and their values in order."""


def make_terms(
    filter: JobFilter,
    *,
    placeholder: str,
    parent: object,
    last_reason: str,
    among: Callable[[str, Sequence[str]], Terms],
) -> Terms:
    """Write all but the conditions for the tenant and for the caller.

    `parent` is the encoded id; `last_reason` selects the reason of the last outcome; `among` writes
    the condition that a column has one of several values.
    """
    equal = {
        "job.subject =": filter.subject_id,
        "job.created_by =": filter.created_by,
        "job.correlation =": filter.correlation_id,
        "job.parent =": parent,
        "job.created_at >=": filter.created_from and to_micros(filter.created_from),
        "job.created_at <": filter.created_before and to_micros(filter.created_before),
    }
    conditions = [f"{term} {placeholder}" for term, value in equal.items() if value is not None]
    values: list[object] = [value for value in equal.values() if value is not None]
    choices = ("lane.job_type", filter.job_types), ("lane.queue", filter.queues)
    for column, some in (*choices, (last_reason, filter.reasons)):
        if some:
            more_conditions, more_values = among(column, sorted(some))
            conditions += more_conditions
            values += more_values
    # The terms with <> let the partial indexes be used.
    if filter.subject_id:
        conditions.append("job.subject <> ''")
    if filter.created_by:
        conditions.append("job.created_by <> ''")
    return conditions, values
