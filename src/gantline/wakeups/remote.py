"""Wake-ups through a server: for who listens in its own event loop, for others from a thread.

A thread, because an application is used from several event loops, and some end without a word. Who
listens has one that it lives in, and hears of work 0.2 ms earlier there.
"""

import asyncio
import logging
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from gantline.contract.wakeup import WINDOW_SECONDS, Hint, OnHint
from gantline.wakeups.courier import Courier
from gantline.wakeups.outage import Outage

_log = logging.getLogger("gantline.wakeup")

# Each may take as long as an answer: sending what waits, ending what listens, ending the loop.
_STEPS_TO_CLOSE: Final = 3


class Pace(NamedTuple):
    """How often, and how patient."""

    window_seconds: float = WINDOW_SECONDS
    heartbeat_seconds: float = 10.0
    """How often a silent server is asked whether it is still there."""
    answer_seconds: float = 3.0
    """How long the server may take for an answer before it counts as gone."""
    first_wait_seconds: float = 0.1
    longest_wait_seconds: float = 10.0
    """Between two attempts to connect: growing from the first to the longest, jittered."""


class Link(Protocol):
    """A way to a server. Used in one event loop; raises when it cannot, within its patience."""

    async def hold(self, heard: OnHint | None, connected: Callable[[], None]) -> None:
        """Connect, say so, and pass on what is heard until the connection is lost."""
        ...

    async def send(self, hint: Hint, job_id: UUID | None) -> None: ...

    async def close(self) -> None: ...


class RemoteWakeup:
    """Reach all who use the same server."""

    def __init__(
        self,
        make_link: Callable[[], Link],
        *,
        what: str,
        pace: Pace,
        always_connected: bool,
        is_told: Callable[[UUID | None], bool] = lambda job_id: False,
    ) -> None:
        """`always_connected` holds the connection even where nobody listens.

        `is_told` says whether everybody has heard of a job already.
        """
        self._make_link = make_link
        self._pace = pace
        self._always_connected = always_connected
        self._is_told = is_told
        self._what = what
        self._outage = Outage(what)
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._courier: Courier | None = None
        self._stop: Callable[[], object] = lambda: None
        self.is_connected = False
        """Whether the connection that listens (or is always held) is there now."""

    async def open(self, on_hint: OnHint | None) -> None:
        """Begin to connect. Does not wait for the server: polling goes on without it."""
        opened = Future[None]()
        if on_hint is not None:
            self._task = asyncio.create_task(self._live(on_hint, opened))
        else:
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._live(None, opened)),
                name="gantline-wakeup",
                daemon=True,
            )
            self._thread.start()
        await asyncio.wrap_future(opened)

    @property
    def is_listening(self) -> bool:
        return self.is_connected

    def notify(self, hint: Hint = Hint.WORK, *, job_id: UUID | None = None) -> None:
        courier = self._courier  # its thread may end it meanwhile
        if courier is not None and not (hint is Hint.WORK and self._is_told(job_id)):
            courier.take(hint, job_id)

    async def close(self) -> None:
        """Send what is still waiting, and let the server go: in seconds, whatever it does."""
        thread, self._thread = self._thread, None
        task, self._task = self._task, None
        most, is_left = _STEPS_TO_CLOSE * self._pace.answer_seconds, False
        if task is not None:
            self._stop()
            _, left = await asyncio.wait([task], timeout=most)
            is_left = bool(left)
        if thread is not None:
            self._stop()
            await asyncio.to_thread(thread.join, most)
            is_left = thread.is_alive()
        if is_left:  # it ends with the process, or when its driver comes back
            _log.warning("the connection of %s does not end; it is left behind", self._what)

    async def _live(self, heard: OnHint | None, opened: Future[None]) -> None:
        pace, loop, stopped = self._pace, asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        link = self._make_link()
        self._courier = courier = Courier(
            lambda hint, job_id: self._send(link, hint, job_id),
            window_seconds=pace.window_seconds,
            pause_seconds=max(pace.window_seconds, pace.first_wait_seconds),
        )
        tasks = [asyncio.create_task(courier.carry_for_ever())]
        if heard is not None or self._always_connected:
            tasks.append(asyncio.create_task(self._hold_for_ever(link, heard)))
        opened.set_result(None)
        await stopped.wait()
        self._courier = None
        with suppress(TimeoutError):
            async with asyncio.timeout(pace.answer_seconds):
                await courier.carry()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=pace.answer_seconds)
        await link.close()

    async def _send(self, link: Link, hint: Hint, job_id: UUID | None) -> bool:
        try:
            await link.send(hint, job_id)
        except Exception as error:
            _stop_if_cancelled()
            self._outage.begin("sending", error)
            return False
        self._outage.end("sending")
        return True

    async def _hold_for_ever(self, link: Link, heard: OnHint | None) -> None:
        loop, pace, failures = asyncio.get_running_loop(), self._pace, 0
        while True:
            began = loop.time()
            try:
                await self._hold(link, heard)
            except Exception as error:
                _stop_if_cancelled()
                self._outage.begin("listening", error)
            # Counted on when it was up only for a moment, or a flapping server would be hammered.
            failures = 0 if loop.time() - began > pace.longest_wait_seconds else failures + 1
            most = min(pace.longest_wait_seconds, pace.first_wait_seconds * 2 ** min(failures, 20))
            await asyncio.sleep(most * random.uniform(0.5, 1.0))  # noqa: S311  # not a secret

    async def _hold(self, link: Link, heard: OnHint | None) -> None:
        try:
            await link.hold(heard, lambda: self._connected(heard))
        finally:
            self.is_connected = False

    def _connected(self, heard: OnHint | None) -> None:
        """Whatever was said while nobody could hear it: look for everything."""
        self.is_connected = True
        self._outage.end("listening", "sending")
        if heard is not None:
            for hint in Hint:
                heard(hint)


def _stop_if_cancelled() -> None:
    """A driver that is cancelled and meets an error may raise the error alone."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
