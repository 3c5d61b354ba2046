"""A worker's share in the upkeep of the store: all try to lead it, one does."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Final

from gantline.contract.capabilities import StorageSettings
from gantline.contract.store import JobStore
from gantline.manager.maintenance import LEADER_LEASE, Chore, Maintenance
from gantline.manager.observer import Observer
from gantline.manager.pruner import Pruner
from gantline.manager.reaper import Reaped
from gantline.manager.switches import Switches
from gantline.runtime import monotonic

_log = logging.getLogger("gantline.worker")

_SWEEP_EVERY: Final = timedelta(seconds=60)
# A run is taken over at most this long after its lease has run out.
_REAP_EVERY: Final = timedelta(seconds=2)
# After the store was away, so long for those who lived through it to renew: their next try, and
# the one after that.
_PATIENCE: Final = timedelta(seconds=10)


async def maintain_for_ever(
    store: JobStore,
    switches: Switches,
    session_id: str,
    *,
    every: timedelta,
    lease: timedelta,
    observer: Observer,
    chores: Sequence[Chore],
    runs_ended: Callable[[], None],
    storage: StorageSettings,
) -> None:
    """Lead when nobody else does. `runs_ended` is called when runs of dead workers were ended.

    Then their jobs wait again, or have made room for others of their group and type.

    The leader's lease is half a run's: who takes the lead over does so before the runs of a worker
    that died with it can be taken over.
    """
    busy, idle = min(every, lease / 4), lease / 4
    reap_every = min(_REAP_EVERY, lease / 10)
    maintenance = Maintenance(
        store,
        switches,
        session_id,
        lease=min(LEADER_LEASE, lease / 2),
        run_lease=lease,
        no_handler_grace=storage.no_handler_grace,
        patience=min(_PATIENCE, lease / 3),
        sweep_every=_SWEEP_EVERY,
        observer=observer,
        chores=chores,
    )
    next_round = 0.0
    # Beside the rounds: lapsed leases and events do not wait until all that is old has gone.
    retention = storage.retention.over(store.capabilities.retention)
    pruning = _WhileLeading(Pruner(store, switches, retention=retention).run_for_ever)
    try:
        while True:
            try:
                if maintenance.leads and monotonic() < next_round:
                    reaped = await maintenance.reap()
                else:
                    report = await maintenance.run_once()
                    pruning.go_on(is_leading=report is not None)
                    wait = idle if report is None or report.did_nothing else busy
                    next_round = monotonic() + wait.total_seconds()
                    reaped = Reaped() if report is None else report.reaped
                if reaped.ended:
                    runs_ended()
            except Exception as error:
                _log.warning("maintenance failed, trying again: %s", error)
            pause = reap_every.total_seconds() if maintenance.leads else next_round - monotonic()
            await asyncio.sleep(max(reap_every.total_seconds(), pause))
    finally:
        pruning.go_on(is_leading=False)
        await maintenance.resign()


class _WhileLeading:
    """Runs something in a task that exists only while this process leads."""

    def __init__(self, run_for_ever: Callable[[], Coroutine[None, None, None]]) -> None:
        self._run_for_ever = run_for_ever
        self._task: asyncio.Task[None] | None = None

    def go_on(self, *, is_leading: bool) -> None:
        if is_leading and self._task is None:
            self._task = asyncio.create_task(self._run_for_ever())
        elif not is_leading and self._task is not None:
            self._task.cancel()
            self._task = None
