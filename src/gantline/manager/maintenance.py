"""Maintenance: sequencer, reaper, expiry, orphan sweeper and chores, run by the leader."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from gantline.contract.capabilities import NO_HANDLER_GRACE
from gantline.contract.store import JobStore
from gantline.manager.manager import JobManager
from gantline.manager.observer import Observer
from gantline.manager.orphans import OrphanSweeper
from gantline.manager.reaper import Reaped, Reaper
from gantline.manager.sequencer import number_events
from gantline.manager.switches import Switches
from gantline.runtime import monotonic

ROLE: Final = "maintenance"
LEADER_LEASE: Final = timedelta(seconds=15)


_CHORES_EVERY_SECONDS: Final = 3600.0
_EXPIRED_AT_ONCE: Final = 500
# So that lapsed leases do not wait for a backlog that expires all at once.
_EXPIRED_PAGES: Final = 10


class Chore(Protocol):
    """What else is to be done now and then, by the leader: other parts' own retention."""

    async def run_once(self) -> int:
        """Do what there is to do; return how much it was."""
        ...


class MaintenanceReport(msgspec.Struct, frozen=True):
    """What one round did, in which term."""

    term: int
    sequenced: int
    reaped: Reaped
    expired: int = 0
    orphaned: int = 0
    chores: int = 0

    @property
    def did_nothing(self) -> bool:
        return not (self.sequenced or self.expired) and self.reaped == Reaped()


class Maintenance:
    """Run one round at a time while leading.

    Leading only saves work: every write is guarded, so two leaders at once do no harm.
    """

    def __init__(
        self,
        store: JobStore,
        switches: Switches,
        owner: str,
        *,
        lease: timedelta = LEADER_LEASE,
        run_lease: timedelta = timedelta(0),
        patience: timedelta = timedelta(0),
        no_handler_grace: timedelta = NO_HANDLER_GRACE,
        sweep_every: timedelta = timedelta(0),
        observer: Observer | None = None,
        chores: Sequence[Chore] = (),
    ) -> None:
        """`patience`: how long no lease is taken away after the store could not be reached, here
        for a leader's lease or longer: workers that survived renew theirs in that time.
        `sweep_every`: orphans can wait that long; lapsed leases and events not.

        The chores wait for an hour, and their first turn comes with the first sweep.
        """
        self._store = store
        self._owner = owner
        self._lease = lease
        self._reaper = Reaper(store, lease=run_lease, observer=observer)
        self._manager = JobManager(store, observer=observer, switches=switches)
        self._orphans = OrphanSweeper(store, grace=no_handler_grace, observer=observer)
        self._switches = switches
        self._sweep_every = sweep_every
        self._sweep_at = 0.0
        self._chores = chores
        self._chores_at = 0.0
        self._term: int | None = None
        self._patience = patience.total_seconds()
        self._patient_until = 0.0
        self._answered_at: float | None = None

    @property
    def leads(self) -> bool:
        return self._term is not None

    async def run_once(self) -> MaintenanceReport | None:
        """Take or keep the lead and run everything once; None while another process leads."""
        leadership = await self._store.lead(ROLE, self._owner, lease=self._lease)
        self._term = leadership.term if leadership else None
        self._note_answer()
        if leadership is None:
            return None
        reaped = await self.reap()
        await self._switches.refresh()
        is_closed = self._switches.closed is not None  # what is being copied must not go
        expired = 0 if is_closed else await self._expire()
        # What is reaped or has expired is numbered at once, not in the next round.
        sequenced = await number_events(self._store)
        if is_closed or monotonic() < self._sweep_at:
            return MaintenanceReport(leadership.term, sequenced, reaped, expired)
        self._sweep_at = monotonic() + self._sweep_every.total_seconds()
        orphaned, done = await self._orphans.run_once(), await self._do_chores()
        return MaintenanceReport(leadership.term, sequenced, reaped, expired, orphaned, done)

    async def _expire(self) -> int:
        """Cancel what has not started in time, so much that the other upkeep need not wait."""
        expired = 0
        for _ in range(_EXPIRED_PAGES):
            now_ended = await self._manager.expire(limit=_EXPIRED_AT_ONCE)
            expired += now_ended
            if now_ended < _EXPIRED_AT_ONCE:
                break
        return expired

    async def reap(self) -> Reaped:
        """Take lapsed leases away, unless they may have lapsed because the store was away."""
        if monotonic() < self._patient_until:
            return Reaped()
        reaped = await self._reaper.run_once()
        self._note_answer()
        return reaped

    def _note_answer(self) -> None:
        now, before = monotonic(), self._answered_at
        self._answered_at = now
        if before is None or now - before > self._lease.total_seconds():
            self._patient_until = now + self._patience

    async def _do_chores(self) -> int:
        if monotonic() < self._chores_at:
            return 0
        self._chores_at = monotonic() + _CHORES_EVERY_SECONDS
        return sum([await chore.run_once() for chore in self._chores])

    async def resign(self) -> None:
        """Let another process lead at once instead of after the lease."""
        if self._term is not None:
            await self._store.resign(ROLE, self._owner, self._term)
            self._term = None
