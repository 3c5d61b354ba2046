"""Which jobs are meant: one search for HTTP, the client, the command line and `jobs.find`."""

import sys
from collections.abc import AsyncIterator, Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict
from uuid import UUID

from gantline.api.requests import JobQuery, Search
from gantline.contract.bounds import held
from gantline.contract.errors import InvalidInput
from gantline.contract.query import Cursor, JobFilter, Visibility
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus, State, parse_state
from gantline.contract.store import JobReader
from gantline.contract.webhook import RESERVED_TYPES

_PAGE: Final = 1000

Names = str | Collection[str] | None


class FindOptions(TypedDict, total=False):
    """Which jobs are meant; every given option must match. None is the same as not given."""

    status: Names
    job_type: Names
    queue: Names
    error_code: Names
    """Of the last error of a job that has not completed."""
    subject: str | None
    owner: str | None
    correlation_id: str | None
    parent: UUID | None
    since: datetime | timedelta | float | None
    """Submitted at this instant or later; a timedelta, or a number of seconds, is so long ago."""
    until: datetime | timedelta | float | None
    """Submitted before this instant."""
    due_before: datetime | timedelta | float | None
    """Queued jobs that are due before this instant; a timedelta, or a number of seconds, is so far
    ahead."""
    min_attempts: int | None
    internal: bool | None
    """Gantline's own jobs, deliveries of webhooks, too. They are also found by their type."""
    tenant: str | None
    all_tenants: bool | None


def query_of(options: FindOptions, now: datetime) -> JobQuery:
    """Read the options; raise InvalidInput."""
    given: dict[str, Any] = held("A search", FindOptions.__annotations__, options)
    return JobQuery(
        status=_names(given.get("status")),
        job_type=_names(given.get("job_type")),
        queue=_names(given.get("queue")),
        error_code=_names(given.get("error_code")),
        subject_id=given.get("subject"),
        created_by=given.get("owner"),
        correlation_id=given.get("correlation_id"),
        parent_job_id=given.get("parent"),
        created_from=_instant(given.get("since"), now),
        created_before=_instant(given.get("until"), now),
        due_before=_instant(given.get("due_before"), now, ahead=True),
        min_attempts=given.get("min_attempts") or 0,
        internal=given.get("internal") or False,
        tenant_id=given.get("tenant"),
        all_tenants=given.get("all_tenants") or False,
    )


def _names(some: Names) -> list[str]:
    return [some] if isinstance(some, str) else [*(some or ())]


def _instant(
    given: datetime | timedelta | None, now: datetime, *, ahead: bool = False
) -> datetime | None:
    if isinstance(given, timedelta):
        return now + given if ahead else now - given
    if given is not None and given.tzinfo is None:
        raise InvalidInput("An instant needs its time zone.", next_step="Give tzinfo=UTC.")
    return given


def filter_of(
    query: Search,
    tenant_id: str,
    visible_to: Visibility | None = None,
    *,
    statuses: Iterable[str] = (),
    reasons: Iterable[str] = (),
    due_before: datetime | None = None,
) -> JobFilter:
    """Make what a store is asked for; the tenant is the one that is meant, unless all are."""
    is_named = any(name.startswith(RESERVED_TYPES) for name in query.job_type)
    chosen = frozenset(map(parse_state, statuses))
    if query.error_code and not chosen:  # most have completed, and none of these has an error
        chosen = frozenset[State](JobStatus) - {JobStatus.COMPLETED}
    return JobFilter(
        tenant_id=None if query.all_tenants else tenant_id,
        statuses=chosen,
        reasons=frozenset(reasons),
        job_types=frozenset(query.job_type),
        queues=frozenset(query.queue),
        error_codes=frozenset(query.error_code),
        subject_id=query.subject_id,
        created_by=query.created_by,
        correlation_id=query.correlation_id,
        parent_job_id=query.parent_job_id,
        created_from=query.created_from,
        created_before=query.created_before,
        due_before=due_before,
        min_attempts=query.min_attempts,
        internal=query.internal or is_named,
        visible_to=visible_to,
    )


def make_filter(options: FindOptions, tenant_id: str, now: datetime) -> JobFilter:
    """Read the options; raise InvalidInput. The tenant is meant where they name none."""
    query = query_of(options, now)
    tenant = query.tenant_id or tenant_id
    return filter_of(query, tenant, statuses=query.status, due_before=query.due_before)


async def find_each(
    store: JobReader, job_filter: JobFilter, limit: int | None = None
) -> AsyncIterator[JobSnapshot]:
    """Read jobs, newest first, a page at a time; all, or the first `limit`."""
    after: Cursor | None = None
    left = sys.maxsize if limit is None else limit
    while left > 0:
        page = await store.find(job_filter, limit=min(_PAGE, left), after=after)
        for job in page.items:
            yield job
        left -= len(page.items)
        after = page.next
        if after is None:
            return
