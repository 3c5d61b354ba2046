"""What a run's context asks of the store, through the manager."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from gantline.contract.outcome import Success
from gantline.contract.snapshot import Progress, Run
from gantline.contract.store import JobStore, StoreTransaction
from gantline.contract.submission import DedupeKey
from gantline.contract.transition import Transition
from gantline.manager.manager import Ending, JobManager


class StoreRunPort:
    """The port of `Context`, on a store."""

    def __init__(
        self, store: JobStore, manager: JobManager, *, logged: Callable[[], None] = lambda: None
    ) -> None:
        """`logged` is called when there is a new event."""
        self._store = store
        self._manager = manager
        self._logged = logged

    async def progress(self, update: Progress) -> None:
        await self._manager.progress([update])
        if update.logged:
            self._logged()

    async def is_held(self, key: DedupeKey) -> bool:
        return (await self._store.held([key]))[0] is not None

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        return self._store.transaction()

    def decide(self, run: Run, success: Success) -> Transition:
        return self._manager.decide(Ending(run, success))
