"""The outbox: where jobs wait that were submitted in a transaction the store has no part in."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from gantline.app.wakeup import wakeup_for
from gantline.contract.clock import Clock
from gantline.contract.errors import StoreMisconfigured, StoreUnavailable
from gantline.contract.results import InsertResult
from gantline.contract.submission import NewJob
from gantline.contract.wakeup import Hint
from gantline.manager.relay import OutboxRelay, wrapped
from gantline.manager.sessions import new_session_id
from gantline.manager.submitter import Submission, Submitter
from gantline.stores import store_from_url
from gantline.wakeups.local import Hub

_log = logging.getLogger("gantline.relay")

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_LONGEST_OUTAGE_SECONDS: Final = 15.0
_SWEEP_EVERY_SECONDS: Final = 10.0
_LAST_TIME_SECONDS: Final = 5.0


class Outbox:
    """A SQL database of the user's own, beside the store; workers move what is put there."""

    def __init__(self, url: str, *, clock: Clock, submitter: Submitter) -> None:
        """`submitter` stores jobs durably where they belong."""
        self._clock = clock
        self._submitter = submitter
        self.store = store_from_url(url, clock=clock)
        if not self.store.capabilities.caller_transaction:
            raise StoreMisconfigured(
                "The outbox must be in a database that has transactions of yours.",
                next_step="Name a SQLite or PostgreSQL database.",
            )
        self._hub = Hub()
        self.wakeup = wakeup_for(self.store, self._hub, None)
        """Notifies what moves jobs that there may be some."""

    async def open(self) -> None:
        await self.store.open()
        await self.wakeup.open(None)

    async def close(self) -> None:
        await self.wakeup.close()
        await self.store.close()

    async def put(self, connection: Any, new: NewJob) -> InsertResult:
        """Put a job there in the caller's transaction; it is moved once that is committed."""
        (answer,) = await self.store.insert_in(connection, [wrapped(new, self._clock.now())])
        return answer

    # -- moving -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def relaying(self) -> AsyncIterator[None]:
        """Move jobs as long as the block lasts; what is being moved then is finished."""
        look, stopped = asyncio.Event(), asyncio.Event()
        moving = asyncio.create_task(self._move(look, stopped))
        try:
            yield
        finally:
            stopped.set()
            look.set()
            await asyncio.wait({moving}, timeout=_LAST_TIME_SECONDS)
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)

    def relay(self) -> OutboxRelay:
        return OutboxRelay(
            self.store,
            self._submitter.insert_moved,
            f"relay-{new_session_id()}",
            prepare=lambda job: self._submitter.prepare(Submission(job)),
        )

    async def _move(self, look: asyncio.Event, stopped: asyncio.Event) -> None:
        relay, pause = self.relay(), _FIRST_PAUSE_SECONDS
        sweep_at, is_logged = 0.0, False
        wakeup = wakeup_for(self.store, self._hub, None)
        await wakeup.open(lambda hint: look.set() if hint is Hint.WORK else None)
        try:
            while not stopped.is_set():
                look.clear()
                try:
                    if (now := asyncio.get_running_loop().time()) >= sweep_at:
                        sweep_at = now + _SWEEP_EVERY_SECONDS
                        await relay.sweep()
                    moved, error = await relay.run_once(), None
                except Exception as raised:
                    moved, error = 0, raised
                is_logged = _log_outage(error, is_logged=is_logged)
                if moved:
                    pause = _FIRST_PAUSE_SECONDS
                    continue
                pause = min(2 * pause, _LONGEST_OUTAGE_SECONDS if error else _LONGEST_PAUSE_SECONDS)
                if not stopped.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await look.wait()
        finally:
            await wakeup.close()


def _log_outage(error: Exception | None, *, is_logged: bool) -> bool:
    """One warning an outage, one line when it is over; what nobody expected, with its trace."""
    if error is None:
        if is_logged:
            _log.info("jobs leave the outbox again")
        return False
    if not is_logged:
        is_outage = isinstance(error, StoreUnavailable)
        _log.warning(
            "jobs stay in the outbox for now: %s", error, exc_info=None if is_outage else error
        )
    return True
