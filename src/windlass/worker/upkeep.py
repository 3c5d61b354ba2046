"""A worker's share in the upkeep of the store: all try to lead it, one does."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from windlass.contract.store import JobStore
from windlass.manager.maintenance import LEADER_LEASE, Chore, Maintenance
from windlass.manager.observer import Observer

_log = logging.getLogger("windlass.worker")

_SWEEP_EVERY: Final = timedelta(seconds=60)
# Idle, a process asks its store about once a second in all. Half of that are the polls.
_IDLE: Final = timedelta(seconds=15)


async def maintain_for_ever(
    store: JobStore,
    session_id: str,
    *,
    every: timedelta,
    lease: timedelta,
    observer: Observer,
    chores: Sequence[Chore],
    requeued: Callable[[], None],
) -> None:
    """Lead when nobody else does; seldomer while there is nothing to do. `requeued` is called
    when runs of dead workers wait again."""
    often = min(every, lease / 4)
    seldom = max(often, min(_IDLE, lease / 4))
    maintenance = Maintenance(
        store,
        session_id,
        lease=min(LEADER_LEASE, lease),
        sweep_every=_SWEEP_EVERY,
        observer=observer,
        chores=chores,
    )
    try:
        while True:
            wait = often
            try:
                report = await maintenance.run_once()
                if report is None or report.did_nothing:
                    wait = seldom
                elif report.reaped.requeued:
                    requeued()
            except Exception as error:
                _log.warning("maintenance failed, trying again: %s", error)
            await asyncio.sleep(wait.total_seconds())
    finally:
        await maintenance.resign()
