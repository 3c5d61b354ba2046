"""The lease keeper: renews the leases of running jobs, from a thread and an event loop of its own.

A blocked main loop therefore does not lose leases silently; and it is not kept alive for ever: once
the main loop has stood still for a whole lease, or a run is past its deadline and grace, renewing
stops. Time is measured by the monotonic clock.
"""

import asyncio
import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from windlass.contract.errors import InvalidInput
from windlass.contract.snapshot import RunRef
from windlass.manager.manager import JobManager

_log = logging.getLogger("windlass.worker")

EXIT_LOOP_BLOCKED: Final = 70
_BEATS_PER_LEASE: Final = 4
_LONGEST_BEAT_SECONDS: Final = 5.0
_LAG_WORTH_A_WARNING_SECONDS: Final = 1.0


class LeaseKeeper:
    """Keep the leases of the runs it is given, and tell the main loop what it learns of them."""

    def __init__(
        self,
        manager: JobManager,
        session: str,
        lease: timedelta,
        *,
        on_lost: Callable[[RunRef], None],
        on_cancel: Callable[[RunRef], None],
        on_beat: Callable[[], None] = lambda: None,
        exit_process: Callable[[int], object] = os._exit,
    ) -> None:
        if lease.total_seconds() <= 0:
            raise InvalidInput("A lease must last longer than nothing.")
        self._manager = manager
        self._session = session
        self._lease = lease
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._on_beat = on_beat
        self._exit = exit_process
        self._lock = threading.Lock()
        self._held: dict[RunRef, float] = {}  # run → until when it may be renewed
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._nudged: asyncio.Event | None = None
        self._own: asyncio.AbstractEventLoop | None = None

    @property
    def beat_seconds(self) -> float:
        """How often leases are renewed: at least twice, here four times, within each."""
        return min(self._lease.total_seconds() / _BEATS_PER_LEASE, _LONGEST_BEAT_SECONDS)

    # -- from the main loop -----------------------------------------------------------------------

    async def start(self) -> None:
        self._main = asyncio.get_running_loop()
        self._main_seen = self._renewed = self._beat_at = self._main.time()
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, args=(started,), name="windlass-lease-keeper", daemon=True
        )
        self._thread.start()
        await asyncio.to_thread(started.wait)

    def hold(self, runs: Iterable[tuple[RunRef, float]]) -> None:
        """Renew these runs from now on, each until its given moment on the loop's clock."""
        with self._lock:
            self._held.update(runs)

    def let_go(self, runs: Iterable[RunRef]) -> None:
        with self._lock:
            for run in runs:
                self._held.pop(run, None)

    def holds(self, run: RunRef) -> bool:
        """Whether it is still to be renewed: given, and neither lost nor let go since."""
        with self._lock:
            return run in self._held

    def beat_now(self) -> None:
        """Renew at once; a renewal also tells which runs were cancelled."""
        if self._own is not None and self._nudged is not None:
            self._own.call_soon_threadsafe(self._nudged.set)

    async def stop(self) -> None:
        self._stopping = True
        self.beat_now()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    # -- in the keeper's thread -------------------------------------------------------------------

    def _serve(self, started: threading.Event) -> None:
        asyncio.run(self._beat_until_stopped(started))

    async def _beat_until_stopped(self, started: threading.Event) -> None:
        self._own = asyncio.get_running_loop()
        self._nudged = asyncio.Event()
        if self._stopping:  # before there was anything to nudge
            self._nudged.set()
        started.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.beat_seconds):
                    await self._nudged.wait()
            self._nudged.clear()
            if self._stopping:
                return
            self._forgive_what_stopped_us_both()
            if self._loop_lag() > self._lease.total_seconds():
                self._give_up_on_the_main_loop()
                return
            await self._renew()

    def _forgive_what_stopped_us_both(self) -> None:
        """A suspended process or machine stops this thread too: no reason to blame the loop."""
        now = self._main.time()
        if now - self._beat_at > self.beat_seconds + _LAG_WORTH_A_WARNING_SECONDS:
            self._main_seen = now
        self._beat_at = now

    def _loop_lag(self) -> float:
        """How long ago the main loop was last seen turning; asks it to show itself again."""
        lag = self._main.time() - self._main_seen
        if lag > self.beat_seconds + _LAG_WORTH_A_WARNING_SECONDS:
            _log.warning("the event loop has been blocked for %.1f s by a handler", lag)
        self._tell(self._saw_main)
        return lag

    def _saw_main(self) -> None:
        self._main_seen = self._main.time()
        self._on_beat()

    def _give_up_on_the_main_loop(self) -> None:
        """The jobs will be taken over elsewhere; this process can only be started anew."""
        _log.critical("the event loop stood still for a whole lease; ending this process")
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        self._exit(EXIT_LOOP_BLOCKED)

    async def _renew(self) -> None:
        now = self._main.time()
        with self._lock:
            runs = [run for run, until in self._held.items() if until > now]
        if not runs:
            self._renewed = now
            return
        try:
            async with asyncio.timeout(self._lease.total_seconds() / 2):
                renewal = await self._manager.renew(self._session, runs, lease=self._lease)
        except Exception as error:
            said = str(error) or "the store has not answered in time"
            _log.warning("could not renew %d leases: %s", len(runs), said)
            if now - self._renewed > self._lease.total_seconds():
                self._lose(runs)
            return
        self._renewed = now
        by_token = {run.token: run for run in runs}
        self._lose([by_token[token] for token in renewal.lost])
        for token in renewal.cancel_requested:
            self._tell(self._on_cancel, by_token[token])

    def _lose(self, runs: list[RunRef]) -> None:
        self.let_go(runs)
        for run in runs:
            self._tell(self._on_lost, run)

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._main.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            _log.debug("the main loop is closed")
