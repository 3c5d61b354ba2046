"""Wake-ups through a server: the connection, sending, and what happens when the server is away.

A process that only sends does so from a thread: an application is used from several event loops,
and some of them end without notice. A process that listens uses its own event loop, and hears of
work 0.2 ms earlier there.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from gantline.contract.wakeup import WINDOW_SECONDS, Hint, OnHint
from gantline.runtime import random, start_thread

_log = logging.getLogger("gantline.wakeup")

# Each may take `answer_seconds`: sending what waits, ending the listener, ending the loop.
_STEPS_TO_CLOSE: Final = 3

SendHint = Callable[[Hint, UUID | None], Awaitable[bool]]
"""Returns False where it failed; it does not raise."""


class WakeupPace(NamedTuple):
    """How often hints are sent, and how long a server is waited for."""

    window_seconds: float = WINDOW_SECONDS
    heartbeat_seconds: float = 10.0
    """How often a silent server is asked whether it is still there."""
    answer_seconds: float = 3.0
    """How long the server may take for an answer before it counts as gone."""
    first_wait_seconds: float = 0.1
    longest_wait_seconds: float = 10.0
    """Between two attempts to connect: growing from the first to the longest, jittered."""


class Link(Protocol):
    """A connection to a server, used in one event loop. Raises when the server does not answer."""

    async def hold(self, on_hint: OnHint | None, connected: Callable[[], None]) -> None:
        """Connect, call `connected`, and pass hints on until the connection is lost."""
        ...

    async def send(self, hint: Hint, job_id: UUID | None) -> None: ...

    async def close(self) -> None: ...


class RemoteWakeup:
    """Exchange hints with all who use the same server."""

    def __init__(
        self,
        make_link: Callable[[], Link],
        *,
        what: str,
        pace: WakeupPace,
        always_connected: bool,
        is_announced: Callable[[UUID | None], bool] = lambda job_id: False,
    ) -> None:
        """`always_connected` holds the connection even where nobody listens.

        `is_announced` says whether the store itself has notified everybody of a job.
        """
        self._make_link = make_link
        self._pace = pace
        self._always_connected = always_connected
        self._is_announced = is_announced
        self._what = what
        self._outage = OutageLog(what)
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._sender: HintSender | None = None
        self._stop: Callable[[], object] = lambda: None
        self.is_connected = False
        """Whether the connection that listens (or is always held) is there now."""

    async def open(self, on_hint: OnHint | None) -> None:
        """Begin to connect. Does not wait for the server: polling goes on without it."""
        opened = Future[None]()
        if on_hint is not None:
            self._task = asyncio.create_task(self._run(on_hint, opened))
        else:
            self._thread = start_thread(
                lambda: asyncio.run(self._run(None, opened)), "gantline-wakeup"
            )
        await asyncio.wrap_future(opened)

    @property
    def is_listening(self) -> bool:
        return self.is_connected

    def notify(self, hint: Hint = Hint.WORK, *, job_id: UUID | None = None) -> None:
        sender = self._sender  # its thread may reset it meanwhile
        if sender is not None and not (hint is Hint.WORK and self._is_announced(job_id)):
            sender.add(hint, job_id)

    async def close(self) -> None:
        """Send what is still waiting, and disconnect: in seconds, whatever the server does."""
        thread, self._thread = self._thread, None
        task, self._task = self._task, None
        most, is_stuck = _STEPS_TO_CLOSE * self._pace.answer_seconds, False
        if task is not None:
            self._stop()
            _, left = await asyncio.wait([task], timeout=most)
            is_stuck = bool(left)
        if thread is not None:
            self._stop()
            await asyncio.to_thread(thread.join, most)
            is_stuck = thread.is_alive()
        if is_stuck:  # it ends with the process, or when its driver returns
            _log.warning("the connection of %s does not end; it is left open", self._what)

    async def _run(self, on_hint: OnHint | None, opened: Future[None]) -> None:
        pace, loop, stopped = self._pace, asyncio.get_running_loop(), asyncio.Event()
        try:
            link = self._make_link()
        except BaseException as error:
            opened.set_exception(error)
            return
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        self._sender = sender = HintSender(
            lambda hint, job_id: self._send(link, hint, job_id),
            window_seconds=pace.window_seconds,
            pause_seconds=max(pace.window_seconds, pace.first_wait_seconds),
        )
        tasks = [asyncio.create_task(sender.send_for_ever())]
        if on_hint is not None or self._always_connected:
            holding = hold_for_ever(
                lambda: self._hold(link, on_hint),
                lambda error: self._outage.begin("listening", error),
                first_wait_seconds=pace.first_wait_seconds,
                longest_wait_seconds=pace.longest_wait_seconds,
            )
            tasks.append(asyncio.create_task(holding))
        opened.set_result(None)
        await stopped.wait()
        self._sender = None
        with suppress(TimeoutError):
            async with asyncio.timeout(pace.answer_seconds):
                await sender.send_waiting()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=pace.answer_seconds)
        await link.close()

    async def _send(self, link: Link, hint: Hint, job_id: UUID | None) -> bool:
        try:
            await link.send(hint, job_id)
        except Exception as error:
            raise_if_cancelled()
            self._outage.begin("sending", error)
            return False
        self._outage.end("sending")
        return True

    async def _hold(self, link: Link, on_hint: OnHint | None) -> None:
        try:
            await link.hold(on_hint, lambda: self._connected(on_hint))
        finally:
            self.is_connected = False

    def _connected(self, on_hint: OnHint | None) -> None:
        """Hints were lost while there was no connection: act on every kind."""
        self.is_connected = True
        self._outage.end("listening", "sending")
        if on_hint is not None:
            for hint in Hint:
                on_hint(hint)


class HintSender:
    """Collects hints from any thread and sends them together, each kind at most once a window.

    When idle, a hint is sent at once. Under load, the window bounds what a burst costs the server:
    on PostgreSQL every NOTIFY takes a lock at its commit, on which all other notifiers wait. What
    cannot be sent is dropped: workers poll.
    """

    def __init__(self, send: SendHint, *, window_seconds: float, pause_seconds: float) -> None:
        """Bind it to the running event loop.

        After a failure it pauses, so that a broken server is not called a hundred times a second.
        """
        self._send = send
        self._window_seconds = window_seconds
        self._pause_seconds = pause_seconds
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: dict[Hint, UUID | None] = {}
        self._has_waiting = asyncio.Event()
        self._sending = asyncio.Lock()

    def add(self, hint: Hint, job_id: UUID | None) -> None:
        """Add a hint, from any thread. Only the first of a window wakes the loop."""
        with self._lock:
            is_first = not self._waiting
            self._waiting.setdefault(hint, job_id)
        if is_first:
            with suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._has_waiting.set)

    async def send_for_ever(self) -> None:
        while True:
            await self._has_waiting.wait()
            done = await self.send_waiting()
            await asyncio.sleep(self._window_seconds if done else self._pause_seconds)

    async def send_waiting(self) -> bool:
        """Send what is waiting; return whether all of it could be sent."""
        async with self._sending:
            self._has_waiting.clear()
            with self._lock:
                waiting, self._waiting = self._waiting, {}
            return all([await self._send(hint, job_id) for hint, job_id in waiting.items()])


class OutageLog:
    """Logs an outage of listening, sending or both: a warning at its begin, a line at its end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._broken: set[str] = set()

    def begin(self, side: str, error: Exception) -> None:
        if not self._broken:
            cause = next(iter(str(error).splitlines()), "") or type(error).__name__
            _log.warning("no %s for now, only polling: %s", self._what, cause)
        self._broken.add(side)

    def end(self, *sides: str) -> None:
        if self._broken and self._broken <= set(sides):
            _log.info("%s are back", self._what)
        self._broken.difference_update(sides)


async def hold_for_ever(
    hold: Callable[[], Awaitable[None]],
    report: Callable[[Exception], None],
    *,
    first_wait_seconds: float,
    longest_wait_seconds: float,
) -> None:
    """Hold a connection, and again when it is lost; `report` gets the error."""
    loop, failures = asyncio.get_running_loop(), 0
    while True:
        began = loop.time()
        try:
            await hold()
        except Exception as error:
            raise_if_cancelled()
            report(error)
        # A connection that was lost soon does not reset the backoff, or a server that comes and
        # goes would be hammered.
        failures = 0 if loop.time() - began > longest_wait_seconds else failures + 1
        most = min(longest_wait_seconds, first_wait_seconds * 2 ** min(failures, 20))
        await asyncio.sleep(most * (0.5 + 0.5 * random()))


def raise_if_cancelled() -> None:
    """A driver that is cancelled and meets an error may raise the error alone."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
