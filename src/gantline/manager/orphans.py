"""The orphan sweeper: gives up on jobs whose type no live worker has handled for a while."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from gantline.contract.query import Cursor, JobFilter
from gantline.contract.records import RecordWrite
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.manager.decide import decide_no_handler
from gantline.manager.manager import Settled
from gantline.manager.observer import Observer, notify
from gantline.manager.records import all_records
from gantline.manager.sessions import live_sessions

ORPHANS: Final = "orphans"
"""Since when no live session has declared a type that has jobs waiting, by type."""

_PAGE: Final = 200


class OrphanSweeper:
    """Poison what nobody handles, after a grace that a rolling deploy needs."""

    def __init__(
        self,
        store: JobStore,
        *,
        grace: timedelta,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._grace = grace
        self._observer = observer or Observer()

    async def run_once(self) -> int:
        """Note new orphans, forget those that found a worker, give up on the old ones."""
        now = await self._store.ping()
        orphans = await self._types_without_a_worker()
        since = await self._noted()
        await self._forget([kind for kind in since if kind not in orphans])
        await self._note([kind for kind in orphans if kind not in since], now)
        expired = [kind for kind in orphans if now - since.get(kind, now) >= self._grace]
        return sum([await self._poison(kind, now) for kind in expired])

    async def _types_without_a_worker(self) -> set[str]:
        lanes = await self._store.counts(tenant_id=None)
        waiting = {lane.job_type for lane in lanes if lane.oldest_due_at is not None}
        if not waiting:
            return set()
        sessions = await live_sessions(self._store)
        return waiting - {kind for session in sessions for kind in session.job_types}

    async def _noted(self) -> dict[str, datetime]:
        records = await all_records(self._store, ORPHANS)
        return {record.key: msgspec.json.decode(record.value, type=datetime) for record in records}

    async def _note(self, kinds: list[str], now: datetime) -> None:
        body = msgspec.json.encode(now)
        await self._write([RecordWrite(ORPHANS, kind, body, expected=0) for kind in kinds])

    async def _forget(self, kinds: list[str]) -> None:
        await self._write([RecordWrite(ORPHANS, kind, None) for kind in kinds])

    async def _write(self, writes: list[RecordWrite]) -> None:
        if writes:
            await self._store.write_records(writes)

    async def _poison(self, kind: str, now: datetime) -> int:
        job_filter = JobFilter(
            tenant_id=None, statuses=frozenset({JobStatus.QUEUED}), job_types=frozenset({kind})
        )
        poisoned = 0
        after: Cursor | None = None
        while True:
            page = await self._store.find(job_filter, limit=_PAGE, after=after)
            due = [job for job in page.items if job.run_at is not None and job.run_at <= now]
            decided = [decide_no_handler(job) for job in due]
            answers = await self._store.apply(decided)
            settled = [Settled(*pair) for pair in zip(decided, answers, strict=True)]
            notify(self._observer.acted, due, settled)
            poisoned += sum(one.accepted for one in settled)
            if page.next is None:
                return poisoned
            after = page.next
