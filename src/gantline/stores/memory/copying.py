"""Jobs as they are moved to another store, and back into memory."""

from collections.abc import Sequence
from itertools import islice

from gantline.contract.status import ON_REQUEST
from gantline.contract.stored import Dumped, Stored, StoredJob
from gantline.stores.memory.entry import Entry


def stored_job(entry: Entry) -> StoredJob:
    return StoredJob(
        job=entry.job,
        fingerprint=entry.fingerprint,
        status=entry.status,
        version=entry.version,
        attempt=entry.attempt,
        crashes=entry.crashes,
        snoozes=entry.snoozes,
        fence=entry.fence,
        priority=entry.priority,
        run_at=entry.run_at,
        log=tuple(entry.log),
    )


def entry_of(stored: StoredJob) -> Entry:
    outcomes = [row.entry for row in stored.log if row.entry.event not in ON_REQUEST]
    return Entry(
        job=stored.job,
        fingerprint=stored.fingerprint,
        status=stored.status,
        attempt=stored.attempt,
        priority=stored.priority,
        run_at=stored.run_at,
        version=stored.version,
        crashes=stored.crashes,
        snoozes=stored.snoozes,
        fence=stored.fence,
        log=list(stored.log),
        last=outcomes[-1] if outcomes else None,
    )


def page_of(items: Sequence[Stored], after: str, limit: int) -> Dumped:
    """The place of a page is its number of items so far: nobody writes meanwhile."""
    start = int(after or 0)
    page = tuple(islice(items, start, start + limit))
    behind = start + len(page)
    return Dumped(page, str(behind) if behind < len(items) else "")
