"""Closing the stores of a copy, and waiting until nothing runs: never are both open."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from gantline.contract.errors import GantlineError
from gantline.contract.query import JobFilter
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.transition import Transition
from gantline.manager.reaper import Reaper
from gantline.manager.sequencer import number_events
from gantline.manager.sessions import live_sessions
from gantline.manager.switches import CLOSED, SWITCHES, Closed, Switches
from gantline.runtime import monotonic, new_uuid


class CopyProgress(NamedTuple):
    """How far a copy is; `of` is None where that is not known."""

    doing: str
    done: int = 0
    of: int | None = None


OnProgress = Callable[[CopyProgress], None]

# How long until everybody has read the switches: submitters do so every second, workers every five.
GRACE: Final = timedelta(seconds=2)
GRACE_WITH_WORKERS: Final = timedelta(seconds=6)

_REOPEN_SECONDS: Final = 10.0
_RUNNING: Final = JobFilter(tenant_id=None, statuses=frozenset({JobStatus.RUNNING}))
_LOOK_AGAIN_SECONDS: Final = 0.5
_MOST_NAMED: Final = 5
_AT_ONCE: Final = 100

NotifySwitched = Callable[[JobStore], Awaitable[None]]


class StoreNames(NamedTuple):
    """The two stores as they are shown to people, without secrets."""

    source: str
    target: str


class Closing:
    """The switches of one copy."""

    def __init__(
        self, names: StoreNames, *, actor: str, notify_switched: NotifySwitched | None
    ) -> None:
        """`notify_switched` notifies the processes of a store that its switches have changed."""
        self._names = names
        self._actor = actor
        self._notify_switched = notify_switched
        self._id = new_uuid().hex
        self._versions: dict[JobStore, int] = {}
        self._is_handed_over = False

    @asynccontextmanager
    async def hold_closed(self, source: JobStore) -> AsyncIterator[None]:
        """Close the source; an error in the block opens it again."""
        before = await read_closing(source)
        try:
            await self.close(source)
            yield
        except BaseException:
            # Shielded: after an interrupt the jobs must go on.
            await asyncio.shield(self._open_again(source, before))
            raise

    async def close(self, store: JobStore) -> None:
        await self._write(store, await self._build(store), expected=None)

    async def has_closed(self, store: JobStore) -> bool:
        closed = await read_closing(store)
        return closed is not None and closed.copy == self._id

    async def hand_over(self, source: JobStore, target: JobStore) -> None:
        """Close the source for good, then open the target."""
        moved = await self._build(source, has_moved=True)
        await self._write(source, moved, expected=self._versions[source])
        self._is_handed_over = True
        await self._write(target, None, expected=self._versions[target])

    async def _open_again(self, source: JobStore, before: Closed | None) -> None:
        """Restore what was before, unless another copy has closed it since: that one will open it.

        Not after the hand-over: the target may be open, and only it knows then what runs.
        """
        if self._is_handed_over:
            return
        async with asyncio.timeout(_REOPEN_SECONDS):
            if await self.has_closed(source):
                as_before = before if before and before.has_moved else None
                await self._write(source, as_before, expected=None)

    async def _build(self, store: JobStore, *, has_moved: bool = False) -> Closed:
        return Closed(
            copied_from=self._names.source,
            copied_to=self._names.target,
            copy=self._id,
            by=self._actor,
            since=await store.ping(),
            has_moved=has_moved,
        )

    async def _write(self, store: JobStore, closed: Closed | None, *, expected: int | None) -> None:
        value = None if closed is None else msgspec.json.encode(closed)
        (result,) = await store.write_records([RecordWrite(SWITCHES, CLOSED, value, expected)])
        if not isinstance(result, Applied):
            raise GantlineError(
                "Another copy of the same store has begun.", next_step="Let that one end."
            )
        self._versions[store] = result.version
        if self._notify_switched is not None:
            await self._notify_switched(store)


async def read_closing(store: JobStore) -> Closed | None:
    """Why a store is closed; None where it is open."""
    switches = Switches(store)
    await switches.refresh()
    return switches.closed


async def reopen(store: JobStore) -> Closed | None:
    """Open a store that a copy has left closed; return why it was, None where it was open."""
    closed = await read_closing(store)
    if closed is not None:
        await store.write_records([RecordWrite(SWITCHES, CLOSED, None)])
    return closed


async def choose_grace(store: JobStore) -> timedelta:
    return GRACE_WITH_WORKERS if await live_sessions(store) else GRACE


async def wait_until_idle(
    store: JobStore,
    *,
    grace: timedelta,
    wait: timedelta,
    force: bool,
    actor: str,
    on_progress: OnProgress,
) -> int:
    """Wait until nothing runs any more; return how many runs were ended by force."""
    on_progress(CopyProgress(f"waiting {grace.total_seconds():g} s for all processes to notice"))
    await asyncio.sleep(grace.total_seconds())
    running = await _wait_for_runs(store, wait, on_progress)
    taken_away = await _end_by_force(store, actor) if force else 0
    if running and not force:
        more = " and more" if len(running) > _MOST_NAMED else ""
        raise GantlineError(
            f"Jobs are still running: {_join_ids(running)}{more}.",
            next_step="Wait longer with --wait, or take their runs away with --force.",
        )
    await number_events(store)
    return taken_away


async def _wait_for_runs(
    store: JobStore, wait: timedelta, on_progress: OnProgress
) -> tuple[JobSnapshot, ...]:
    """Return the runs that are left. Those of dead workers end here, when their leases expire."""
    until = monotonic() + wait.total_seconds()
    reaper = Reaper(store)
    while True:
        await reaper.run_once()
        running = (await store.find(_RUNNING, limit=_MOST_NAMED + 1)).items
        if not running or monotonic() >= until:
            return running
        on_progress(CopyProgress(f"waiting for running jobs: {_join_ids(running)}"))
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def _join_ids(running: tuple[JobSnapshot, ...]) -> str:
    return ", ".join(str(job.job.job_id) for job in running[:_MOST_NAMED])


async def _end_by_force(store: JobStore, actor: str) -> int:
    """End every run. One that reports progress meanwhile fails the guard and is tried again."""
    taken = 0
    while running := (await store.find(_RUNNING, limit=_AT_ONCE)).items:
        results = await store.apply([_end_run(job, actor) for job in running])
        taken += sum(isinstance(result, Applied) for result in results)
    return taken


def _end_run(job: JobSnapshot, actor: str) -> Transition:
    if job.run and job.run.cancel_requested:
        return Transition.cancelled(job, actor=actor, version=job.version)
    return Transition.taken_away(job, actor=actor)
