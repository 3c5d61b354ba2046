"""Copying a store into another one, so that the jobs can go on there.

Both are closed meanwhile. A copy that fails at any step can be run again: the target is emptied
first, and opened only when it was found to hold the same. The source stays closed: nothing runs
twice.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

import msgspec

from gantline.contract.errors import GantlineError
from gantline.contract.records import SESSIONS
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.stored import Marks, Part, Stored, StoredRecord
from gantline.manager.sessions import live_sessions
from gantline.manager.switches import CLOSED, SWITCHES
from gantline.moving.closing import (
    Closing,
    CopyProgress,
    NotifySwitched,
    OnProgress,
    StoreNames,
    choose_grace,
    read_closing,
    wait_until_idle,
)
from gantline.moving.comparing import Checksums, find_differences, find_wrong_count, read_pages
from gantline.runtime import monotonic

NOT_COPIED: Final = frozenset({SESSIONS, "rate-limits"})
"""Records about processes of this moment, which are elsewhere or over."""
NOT_COMPARED: Final = frozenset({"api-key-uses", "api-seal"})
"""Records that are written while jobs are only read."""

_PAGE: Final = 500
# Above all versions that the source hands out until the end: its own records are numbered too.
_ROOM_FOR_VERSIONS: Final = 1_000_000
# Records last: the audit records of refused calls are still written meanwhile. Who leads (TERMS) is
# copied but not compared.
_PARTS: Final = (Part.JOBS, Part.KEYS, Part.TERMS, Part.RECORDS)
_PARTS_OF_USERS: Final = (Part.JOBS, Part.KEYS, Part.RECORDS)


class Copied(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was copied and found to be the same."""

    jobs: int
    keys: int
    records: int
    taken_away: int
    """How many runs were ended by force."""
    seconds: float


class StoreCopy:
    """One copy of a store."""

    def __init__(
        self,
        source: JobStore,
        target: JobStore,
        names: StoreNames,
        *,
        actor: str,
        on_progress: OnProgress = lambda progress: None,
        notify_switched: NotifySwitched | None = None,
        grace: timedelta | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._names = names
        self._actor = actor
        self._on_progress = on_progress
        self._closing = Closing(names, actor=actor, notify_switched=notify_switched)
        self._grace = grace

    async def run(self, *, wait: timedelta, force: bool = False, replace: bool = False) -> Copied:
        """Copy everything and hand over; the source is open again when this raises.

        Runs are waited for; those that last longer are taken away from their workers by `force`.
        `replace` empties a target that holds something else.
        """
        began = monotonic()
        await self._refuse_source()
        await self._refuse_target(replace=replace)
        self._on_progress(CopyProgress("closing the source"))
        async with self._closing.hold_closed(self._source):
            await self._refuse_same()
            taken_away = await wait_until_idle(
                self._source,
                grace=self._grace or await choose_grace(self._source),
                wait=wait,
                force=force,
                actor=self._actor,
                on_progress=self._on_progress,
            )
            jobs = await self._number_of_jobs()
            await self._prepare_target()
            copied = {part: await self._copy(part, jobs) for part in _PARTS}
            await self._check_unchanged(jobs)
            await self._closing.hand_over(self._source, self._target)
        return Copied(
            jobs=copied[Part.JOBS],
            keys=copied[Part.KEYS],
            records=copied[Part.RECORDS],
            taken_away=taken_away,
            seconds=round(monotonic() - began, 1),
        )

    # -- checks before it begins ------------------------------------------------------------------

    async def _refuse_source(self) -> None:
        closed = await read_closing(self._source)
        if closed and closed.has_moved and closed.copied_to != self._names.target:
            raise GantlineError(
                f"The jobs of {self._names.source} were moved to {closed.copied_to}.",
                next_step="Copy from there, or open this one with `gantline store reopen`.",
            )

    async def _refuse_target(self, *, replace: bool) -> None:
        if sessions := await live_sessions(self._target):
            workers = "1 worker runs" if len(sessions) == 1 else f"{len(sessions)} workers run"
            raise GantlineError(
                f"{workers} on {self._names.target}.",
                next_step="Stop them; start workers there when the copy is done.",
            )
        closed = await read_closing(self._target)
        if replace or (closed and closed.copied_from == self._names.source):
            return
        for part in _PARTS_OF_USERS:
            page = await self._target.dump(part, limit=_PAGE)
            if any(_is_copied(item) for item in page.items):
                raise GantlineError(
                    f"{self._names.target} holds {part} already.",
                    next_step="Name an empty one, or let --replace remove everything there.",
                )

    async def _refuse_same(self) -> None:
        if await self._closing.has_closed(self._target):
            raise GantlineError("Source and target are the same store.", next_step="Name two.")

    # -- copying ----------------------------------------------------------------------------------

    async def _prepare_target(self) -> None:
        self._on_progress(CopyProgress("emptying the target"))
        await self._target.clear()
        marks = await read_marks(self._source)
        await self._target.load([Marks(0, marks.last_record + _ROOM_FOR_VERSIONS)])
        await self._closing.close(self._target)

    async def _copy(self, part: Part, jobs: int) -> int:
        """Copy a part, and compare it; return how many items it has."""
        done, of = 0, jobs if part is Part.JOBS else None
        async for page in _read_ahead(read_pages(self._source, part, _PAGE)):
            items = [item for item in page if _is_copied(item)]
            await self._target.load(items)
            done += len(items)
            self._on_progress(CopyProgress(f"copying {part}", done, of))
        if part is Part.JOBS:
            await self._target.load([await read_marks(self._source)])
        return done if part is Part.TERMS else await self._compare(part)

    async def _number_of_jobs(self) -> int:
        lanes = await self._source.counts(tenant_id=None)
        return sum(getattr(lane, one.value.lower()) for lane in lanes for one in JobStatus)

    # -- comparing --------------------------------------------------------------------------------

    async def _compare(self, part: Part) -> int:
        """Read both out again; the source last, so that nothing it got meanwhile is missed."""
        there = await self._sums(self._target, part, "target")
        here = await self._sums(self._source, part, "source")
        bucket = here.first_difference(there)
        if bucket is not None:
            found = await find_differences(
                self._source, self._target, part, bucket, is_compared=_is_compared, limit=_PAGE
            )
            raise _differs(found)
        if part is Part.JOBS and (wrong := await find_wrong_count(self._target, there.jobs)):
            raise _differs([wrong])
        return here.items

    async def _check_unchanged(self, jobs: int) -> None:
        """Whether anything has happened since it was compared."""
        here, there = await read_marks(self._source), await read_marks(self._target)
        if here.last_event != there.last_event:
            raise _differs(["events came meanwhile"])
        if await self._number_of_jobs() != jobs:
            raise _differs(["jobs came meanwhile"])

    async def _sums(self, store: JobStore, part: Part, name: str) -> Checksums:
        sums = Checksums()
        async for page in _read_ahead(read_pages(store, part, _PAGE)):
            for item in page:
                if _is_compared(item):
                    sums.add(item)
            self._on_progress(CopyProgress(f"comparing {part} of the {name}", sums.items))
        return sums


async def read_marks(store: JobStore) -> Marks:
    (marks,) = (await store.dump(Part.MARKS, limit=1)).items
    assert isinstance(marks, Marks)  # noqa: S101  # for the type checker
    return marks


def _is_copied(item: Stored) -> bool:
    if not isinstance(item, StoredRecord):
        return True
    record = item.record
    is_closing = (record.namespace, record.key) == (SWITCHES, CLOSED)
    return record.namespace not in NOT_COPIED and not is_closing


def _is_compared(item: Stored) -> bool:
    is_moving = isinstance(item, StoredRecord) and item.record.namespace in NOT_COMPARED
    return _is_copied(item) and not is_moving


def _differs(what: list[str]) -> GantlineError:
    return GantlineError(
        f"The copy differs from the source: {'; '.join(what)}.",
        next_step="The source is open again. Stop what writes there, and copy once more.",
    )


async def _read_ahead(
    source: AsyncIterator[tuple[Stored, ...]],
) -> AsyncIterator[tuple[Stored, ...]]:
    """Read the next page while the one before is being worked on."""

    async def read() -> tuple[Stored, ...] | None:
        return await anext(source, None)

    reading = asyncio.create_task(read())
    try:
        while (page := await reading) is not None:
            reading = asyncio.create_task(read())
            yield page
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
