"""The lease keeper: renews the leases of running jobs, from a thread and an event loop of its own.

A blocked main loop therefore does not lose leases silently; and it is not kept alive for ever: once
the main loop has stood still for a whole lease, or a run is past its deadline and grace, renewing
stops. Time is measured by the monotonic clock; that of a loop may stand still while it is blocked.

Whether a lease still holds is known without the store: it lasts, from the moment when the last
confirmed renewal was sent, for its length. Shortly before that the handler is stopped, whatever
the network does meanwhile.
"""

import asyncio
import faulthandler
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Final

from gantline.contract.errors import InvalidInput
from gantline.contract.snapshot import RunRef
from gantline.manager.manager import JobManager
from gantline.runtime import exit_process, monotonic, start_loop

_log = logging.getLogger("gantline.worker")

EXIT_LOOP_BLOCKED: Final = 70
EXIT_STUCK: Final = 71
_BEATS_PER_LEASE: Final = 4
_LONGEST_BEAT_SECONDS: Final = 5.0
# For the stop to reach the handlers, and for them to end.
_LONGEST_MARGIN_SECONDS: Final = 2.0
_LAST_TIME_SECONDS: Final = 2.0


class _Held:
    """A run whose lease is kept."""

    __slots__ = ("holds_until", "is_cut_off", "renew_until")

    def __init__(self, renew_until: float, holds_until: float, is_cut_off: bool) -> None:
        self.renew_until = renew_until
        self.holds_until = holds_until
        self.is_cut_off = is_cut_off


class LeaseKeeper:
    """Keep the leases of the runs it is given, and report to the main loop what happens to them."""

    def __init__(
        self,
        manager: JobManager,
        session: str,
        lease: timedelta,
        *,
        on_lost: Callable[[RunRef], None],
        on_cut_off: Callable[[RunRef], None],
        on_confirmed: Callable[[RunRef], None],
        on_cancel: Callable[[RunRef], None],
        every: timedelta | None = None,
        exit_process: Callable[[int], object] = exit_process,
    ) -> None:
        """`on_lost`: another worker has the run, or will have it. `on_cut_off`: its lease may have
        run out, but nobody knows; later it is either lost or confirmed. `every`: how often leases
        are renewed; by default four times within each."""
        if lease.total_seconds() <= 0:
            raise InvalidInput("A lease must last longer than nothing.")
        self._manager = manager
        self._session = session
        self._lease = lease
        longest = timedelta(seconds=_LONGEST_BEAT_SECONDS)
        self.beat_seconds = (every or min(lease / _BEATS_PER_LEASE, longest)).total_seconds()
        self._on_lost = on_lost
        self._on_cut_off = on_cut_off
        self._on_confirmed = on_confirmed
        self._on_cancel = on_cancel
        self._exit = exit_process
        self._lock = threading.Lock()
        self._held: dict[RunRef, _Held] = {}
        self._ended: Future[None] | None = None
        """Done when the keeper's loop has ended."""
        self._stopping = False
        self._nudged: asyncio.Event | None = None
        self._main_task = 0
        """Which task the main loop was in, when last looked at."""
        self._own: asyncio.AbstractEventLoop | None = None

    @property
    def _margin(self) -> float:
        return min(self._lease.total_seconds() / 10, _LONGEST_MARGIN_SECONDS)

    def _holds_until(self, sent_at: float) -> float:
        """Until when a lease holds for certain that was asked for at this moment."""
        return sent_at + self._lease.total_seconds() - self._margin

    # -- from the main loop -----------------------------------------------------------------------

    async def start(self) -> None:
        self._main = asyncio.get_running_loop()
        self._main_seen = self._beat_at = monotonic()
        started = Future[None]()
        self._ended = start_loop(lambda: self._beat_until_stopped(started), "gantline-lease-keeper")
        self._ended.add_done_callback(lambda ended: self._report_end(started, ended))
        await asyncio.wrap_future(started)

    def hold(self, runs: Iterable[tuple[RunRef, float]], *, asked_at: float) -> None:
        """Renew these runs from now on, each until its given moment on the monotonic clock.

        `asked_at`: when the claim that brought them was sent.
        """
        holds_until = self._holds_until(asked_at)
        is_cut_off = holds_until <= monotonic()
        with self._lock:
            for run, renew_until in runs:
                self._held[run] = _Held(renew_until, holds_until, is_cut_off)

    def extend(self, run: RunRef, renew_until: float) -> None:
        """Go on renewing a run that is held until a later moment."""
        with self._lock:
            if held := self._held.get(run):
                held.renew_until = renew_until

    def forget(self, runs: Iterable[RunRef]) -> None:
        with self._lock:
            for run in runs:
                self._held.pop(run, None)

    def has(self, run: RunRef) -> bool:
        """Whether a run is kept: it may be cut off, but it is not lost."""
        with self._lock:
            return run in self._held

    def certain(self, runs: Iterable[RunRef]) -> set[RunRef]:
        """Those of the runs whose leases last for certain."""
        with self._lock:
            return {run for run in runs if run in self._held and not self._held[run].is_cut_off}

    def beat_now(self) -> None:
        """Renew at once; a renewal also says which runs were cancelled."""
        if self._own is not None and self._nudged is not None:
            self._own.call_soon_threadsafe(self._nudged.set)

    async def stop(self) -> None:
        self._stopping = True
        self.beat_now()
        if self._ended is not None:
            # A renewal may be under way that does not end: the process ends without it.
            await asyncio.wait({asyncio.wrap_future(self._ended)}, timeout=_LAST_TIME_SECONDS)
            self._ended = None

    # -- in the keeper's thread -------------------------------------------------------------------

    async def _beat_until_stopped(self, started: "Future[None]") -> None:
        self._own = asyncio.get_running_loop()
        self._nudged = asyncio.Event()
        if self._stopping:  # before there was anything to nudge
            self._nudged.set()
        if not started.cancelled():
            started.set_result(None)
        watching = asyncio.create_task(self._watch())
        renewing: asyncio.Task[None] | None = None
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.beat_seconds):
                        await self._nudged.wait()
                self._nudged.clear()
                if self._stopping:
                    return
                if watching.done():
                    await watching  # raises what has ended it
                self._forgive_what_stopped_us_both()
                if self._loop_lag() > self._lease.total_seconds():
                    self._give_up_on_the_main_loop()
                    return
                # Beside the beat: a store that does not answer must not keep us from watching.
                if renewing is None or renewing.done():
                    renewing = asyncio.create_task(self._renew())
        finally:
            watching.cancel()
            if renewing is not None:
                renewing.cancel()

    def _report_end(self, started: "Future[None]", ended: "Future[None]") -> None:
        """Without a keeper every lease runs out, and the work is done for nothing."""
        error = ended.exception()
        if error is not None and not started.done():
            started.set_exception(error)
        elif isinstance(error, Exception) and not self._stopping:
            _log.critical(
                "the thread that renews leases has failed; ending this process", exc_info=error
            )
            self._exit(EXIT_STUCK)

    def _forgive_what_stopped_us_both(self) -> None:
        """A suspended process or machine stops this thread too: no reason to blame the loop."""
        now = monotonic()
        self._main_seen += max(0.0, now - self._beat_at - self.beat_seconds)
        self._beat_at = now

    def _loop_lag(self) -> float:
        """How long ago the main loop was last seen turning; asks it to show itself again.

        In one turn many handlers may block it, one after the other: each is a sign of life.
        """
        task = id(asyncio.current_task(self._main))
        if task != self._main_task:
            self._main_task, self._main_seen = task, monotonic()
        self._notify(self._saw_main)
        return monotonic() - self._main_seen

    def _saw_main(self) -> None:
        self._main_seen = monotonic()

    def _give_up_on_the_main_loop(self) -> None:
        """The jobs will be taken over elsewhere; this process can only be started again."""
        _log.critical("the event loop stood still for a whole lease; ending this process")
        dump_stacks()
        self._exit(EXIT_LOOP_BLOCKED)

    async def _watch(self) -> None:
        """Stop runs whose lease may have run out, by our own clock."""
        while True:
            await asyncio.sleep(self._margin / 4)
            now = monotonic()
            with self._lock:
                lapsed = {run: held for run, held in self._held.items() if held.holds_until <= now}
                cut_off = [run for run, held in lapsed.items() if not held.is_cut_off]
                for held in lapsed.values():
                    held.is_cut_off = True
            if cut_off:
                _log.warning("%d leases could not be renewed in time", len(cut_off))
            for run in cut_off:
                self._notify(self._on_cut_off, run)
            # What is not to be renewed any more can only be lost.
            self._lose([run for run, held in lapsed.items() if held.renew_until <= now])

    async def _renew(self) -> None:
        now = monotonic()
        with self._lock:
            runs = [run for run, held in self._held.items() if held.renew_until > now]
        if not runs:
            return
        try:
            async with asyncio.timeout(self._patience):
                renewal = await self._manager.renew(self._session, runs, lease=self._lease)
        except Exception as error:
            said = str(error) or "the store has not answered in time"
            _log.warning("could not renew %d leases: %s", len(runs), said)
            return
        by_token = {run.token: run for run in runs}
        self._lose([by_token[token] for token in renewal.lost])
        self._confirm(runs, self._holds_until(now))
        for token in renewal.cancel_requested:
            self._notify(self._on_cancel, by_token[token])

    @property
    def _patience(self) -> float:
        """How long one renewal may take: so short that several tries fit into a lease."""
        return self._lease.total_seconds() / _BEATS_PER_LEASE

    def _confirm(self, runs: list[RunRef], holds_until: float) -> None:
        back = []
        with self._lock:
            for run in runs:
                held = self._held.get(run)
                if held is None:  # ended or lost meanwhile
                    continue
                held.holds_until = max(held.holds_until, holds_until)
                if held.is_cut_off and holds_until > monotonic():
                    held.is_cut_off = False
                    back.append(run)
        for run in back:
            self._notify(self._on_confirmed, run)

    def _lose(self, runs: list[RunRef]) -> None:
        self.forget(runs)
        for run in runs:
            self._notify(self._on_lost, run)

    def _notify(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._main.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            _log.debug("the main loop is closed")


def dump_stacks() -> None:
    """Show where every thread is, if there is a file to show it in."""
    with suppress(OSError, ValueError, AttributeError):
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
