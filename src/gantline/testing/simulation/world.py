"""The world of a simulation: virtual time, and processes whose event loops take turns by chance.

All of it runs in one thread. A process has as many event loops as it would have threads with one; a
turn of a loop is what is done at once. Which loop has the next turn is drawn from the seed. When no
loop has anything to do, time goes on to the next timer. A process that has crashed has no turns any
more: nothing of it is cleaned up, as by SIGKILL.
"""

import asyncio
import gc
import hashlib
import sqlite3
import sys
import traceback
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from contextvars import Context
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from math import inf
from random import Random
from threading import Thread
from typing import Any, Final, NoReturn, TypeVar
from unittest.mock import patch

from gantline.runtime import Inbox, Machine, hosted_by

T = TypeVar("T")

_BEGINNING: Final = datetime(2030, 1, 1, tzinfo=UTC)
_SHORTEST: Final = 1e-6
_FIRST_SECOND: Final = 1000.0
_MOST_TURNS_A_SECOND: Final = 300_000
"""Of virtual time; the busiest seeds take 40,000."""
_MOST_SECONDS: Final = 20_000.0
"""Of a run; most take less than a thousand."""
_UNKNOWN: Final = -1.0
_CLOCK_SECONDS: Final = 1e-9
"""What asyncio takes for the same moment."""
_MANY_TIMERS: Final = 100
"""With more than these, cancelled ones are dropped as soon as they are most."""


def wall_clock_at(seconds: float) -> datetime:
    """What the clock shows at a moment of the virtual time, if it was never set."""
    return _BEGINNING + timedelta(seconds=seconds)


class ProcessEnded(BaseException):
    """The process that runs this has ended; it stays where it is."""


class _Timer(asyncio.TimerHandle):
    """With what asyncio keeps of it."""

    __slots__ = ()
    _when: float
    _scheduled: bool


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop without files and sockets, whose time is the world's.

    A run has hundreds of thousands of turns. So it keeps its timers and takes its turns itself, as
    asyncio does, without what only real loops need.
    """

    _ready: deque[asyncio.Handle]
    _check_closed: Callable[[], None]

    def __init__(self, process: "Process") -> None:
        super().__init__()
        self.process = process
        self.world = process.world
        self.due_at = inf
        """When it has something to do next; `_UNKNOWN`: it has to be looked up."""
        self.held_until = 0.0
        """It does nothing before."""
        self._blocked_until = 0.0
        self._timers: list[tuple[float, _Timer]] = []
        self._cancelled_timers = 0

    def time(self) -> float:
        return self.world.now

    @property
    def blocked_until(self) -> float:
        return self._blocked_until

    @blocked_until.setter
    def blocked_until(self, until: float) -> None:
        self._blocked_until = until
        self.hold()

    def hold(self) -> None:
        """Take note of until when it, or its whole process, stands still."""
        self.held_until = max(self._blocked_until, self.process.frozen_until)

    def look_up_due(self) -> float:
        """Find out when it has something to do next."""
        self.due_at = 0.0 if self._ready else self._next_timer()
        return self.due_at

    def _next_timer(self) -> float:
        timers = self._timers
        while timers:
            when, first = timers[0]
            if not first._cancelled:
                return when
            heappop(timers)
            first._scheduled = False
            self._cancelled_timers -= 1
        return inf

    def turn(self) -> None:
        """Do what is due now, once."""
        events._set_running_loop(self)
        ready = self._ready
        if len(self._timers) > _MANY_TIMERS and self._cancelled_timers > len(self._timers) / 2:
            self._drop_cancelled()
        else:
            self._next_timer()
        timers, until = self._timers, self.world.now + _CLOCK_SECONDS
        while timers and timers[0][0] < until:
            timer = heappop(timers)[1]
            timer._scheduled = False
            ready.append(timer)
        self.due_at = 0.0
        try:
            for _ in range(len(ready)):  # not what these add
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        except ProcessEnded:
            pass
        self.due_at = _UNKNOWN

    def _drop_cancelled(self) -> None:
        for _, timer in self._timers:
            timer._scheduled = not timer._cancelled
        self._timers = [one for one in self._timers if one[1]._scheduled]
        heapify(self._timers)
        self._cancelled_timers = 0

    def call_at(  # type: ignore[override]  # it passes on what it is given
        self,
        when: float,
        callback: Callable[..., object],
        *arguments: Any,
        context: Context | None = None,
    ) -> _Timer:
        self._check_closed()
        timer = _Timer(when, callback, arguments, self, context)
        heappush(self._timers, (when, timer))
        timer._scheduled = True
        if when < self.due_at:
            self.due_at = when
        return timer

    def call_later(  # type: ignore[override]  # likewise
        self,
        delay: float,
        callback: Callable[..., object],
        *arguments: Any,
        context: Context | None = None,
    ) -> _Timer:
        return self.call_at(self.world.now + delay, callback, *arguments, context=context)

    def call_soon(  # type: ignore[override]  # likewise
        self, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()
        handle = asyncio.Handle(callback, arguments, self, context)
        self._ready.append(handle)
        self.due_at = 0.0
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def _timer_handle_cancelled(self, handle: _Timer) -> None:
        if handle._scheduled:
            self._cancelled_timers += 1
            if handle._when <= self.due_at:
                self.due_at = _UNKNOWN

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def run_in_executor(  # type: ignore[override]  # what asyncio.to_thread uses
        self, executor: Executor | None, function: Callable[..., T], *arguments: Any
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()

        def call() -> None:
            result: Future[T] = Future()
            try:
                result.set_result(function(*arguments))
            except BaseException as error:
                result.set_exception(error)
            self.call_soon_threadsafe(_hand_over, future, result)

        self.process.in_thread(call)
        return future


def _hand_over(future: "asyncio.Future[T]", result: "Future[T]") -> None:
    if not future.done():
        if error := result.exception():
            future.set_exception(error)
        else:
            future.set_result(result.result())


class Process:
    """A process: its loops, its chance, and whether it lives."""

    def __init__(self, world: "World", name: str, start: int) -> None:
        self.world = world
        self.name = name
        self.number = start
        self.label = f"{name}/{start}"
        """The name of this one among those that were started again."""
        self.random = Random(f"{world.seed}/{name}/{start}")  # noqa: S311  # no secret
        self.is_alive = True
        self._frozen_until = 0.0
        self.loops: list[SimulatedLoop] = []
        self.connections: list[sqlite3.Connection] = []
        self.main = self.new_loop()
        self.threads = self.new_loop()
        """Stands for its threads without a loop."""
        self.exit_code: int | None = None

    def new_loop(self) -> SimulatedLoop:
        loop = SimulatedLoop(self)
        loop.set_exception_handler(self._on_error)
        self.loops.append(loop)
        self.world.loops.clear()
        return loop

    @property
    def frozen_until(self) -> float:
        return self._frozen_until

    @frozen_until.setter
    def frozen_until(self, until: float) -> None:
        self._frozen_until = until
        for loop in self.loops:
            loop.hold()

    def in_thread(self, function: Callable[[], None], seconds: float = 0.0) -> None:
        """Call it in a thread that takes so long before it does something."""
        delay = seconds + self.random.uniform(_SHORTEST, 0.002)
        self.threads.call_later(delay, function)

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> "asyncio.Task[None]":
        """Begin its main task; the process ends with it."""

        async def live() -> None:
            try:
                await main()
            except Exception as error:
                self.world.note(f"{self.name} ended by {type(error).__name__}: {error}")
            finally:
                self.world.end(self)

        return self.main.create_task(live())

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What asyncio would only log is a bug: an error that nobody has seen."""
        if self.is_alive and not self.world.is_over:
            error = context.get("exception")
            frames = traceback.extract_tb(None if error is None else error.__traceback__)
            where = [f"{frame.filename}:{frame.lineno}" for frame in frames[-3:]]
            self.world.errors.append(f"{self.name}: {context.get('message')}: {error!r} {where}")


class _Inbox(Inbox[Any]):
    def __init__(
        self,
        process: Process,
        serve: Callable[[list[Any]], None],
        most: int,
        at_end: Callable[[], None],
        seconds: Callable[[], float],
    ) -> None:
        self._process = process
        self._serve = serve
        self._most = most
        self._at_end = at_end
        self._seconds = seconds
        self._items: list[Any] = []
        self._is_busy = False

    def put(self, item: Any) -> None:
        self._items.append(item)
        if not self._is_busy:
            self._is_busy = True
            self._process.in_thread(self._next, self._seconds())

    def _next(self) -> None:
        items, self._items = self._items[: self._most], self._items[self._most :]
        self._serve(items)
        self._is_busy = bool(self._items)
        if self._is_busy:
            self._process.in_thread(self._next, self._seconds())

    def end(self) -> None:
        pass

    def join(self) -> None:
        """Serve what is left at once: its caller waits in a thread, and has none to wait for."""
        while self._items:
            self._next()
        self._at_end()


class _NoThread(Thread):
    """Stands for a thread that nobody needs here."""

    def join(self, timeout: float | None = None) -> None:
        pass


class _NoThreads(Executor):
    """Stands for a pool: a simulated loop calls its functions itself."""


class SimulatedHost(Machine):
    """The host of whichever process has its turn."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def now(self) -> datetime:
        return self._world.wall_clock()

    def time_ns(self) -> int:
        return int(
            (self._world.wall_clock() - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e9
        )

    def monotonic(self) -> float:
        return self._world.now

    def thread_seconds(self) -> float:
        return 0.0

    def random(self) -> float:
        return self._world.current.random.random()

    def random_bytes(self, count: int) -> bytes:
        return self._world.current.random.randbytes(count)

    def start_thread(self, run: Callable[[], None], name: str) -> Thread:
        if name == "gantline-loop-watch":  # it only reports what blocks a loop
            return _NoThread()
        raise NotImplementedError(f"{name} is not part of a simulation")

    def thread_pool(self, threads: int, name: str) -> Executor:
        return _NoThreads()

    def start_inbox(
        self, serve: Callable[[list[T]], None], *, most: int, at_end: Callable[[], None], name: str
    ) -> Inbox[T]:
        process = self._world.current
        handles = name.startswith("gantline-job")
        seconds = (lambda: process.random.expovariate(2.0)) if handles else (lambda: 0.0)
        return _Inbox(process, serve, most, at_end, seconds)

    def start_loop(
        self, main: Callable[[], Coroutine[Any, Any, None]], name: str
    ) -> "Future[None]":
        loop = self._world.current.new_loop()
        ended = Future[None]()
        ended.set_running_or_notify_cancel()

        async def run() -> None:
            try:
                await main()
            except BaseException as error:
                if not self._world.is_over:  # else it is only let go
                    ended.set_exception(error)
                raise
            ended.set_result(None)

        loop.create_task(run())
        return ended

    def exit_process(self, code: int) -> NoReturn:
        self._world.current.exit_code = code
        self._world.note(f"{self._world.current.name} exits with {code}")
        self._world.crash(self._world.current)
        raise ProcessEnded

    def process(self) -> tuple[str, int]:
        return self._world.current.name, self._world.current.number

    def boot_id(self) -> bytes:
        return b""


class World:
    """Everything that happens in one run."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.random = Random(f"{seed}/world")  # noqa: S311  # no secret
        self.now = self._now_at_look = _FIRST_SECOND
        self.jumped_by = timedelta(0)
        self.processes: list[Process] = []
        self.loops: list[SimulatedLoop] = []
        """Of all processes, in their order; empty: they have to be listed anew."""
        self.gone: list[Process] = []
        """Kept, so that nothing of them is cleaned up before the end."""
        self.on_end: Callable[[Process], None] = lambda process: None
        self.errors: list[str] = []
        self.notes: list[str] = []
        self.digest = hashlib.sha256()
        self.turns = 0
        self.is_over = False
        self.outside = Process(self, "outside", 0)
        """Where the simulation itself runs; it is never frozen and never crashes."""
        self.processes.append(self.outside)
        self.current = self.outside
        self._starts = 0

    @property
    def virtual_seconds(self) -> float:
        return self.now - _FIRST_SECOND

    def wall_clock(self) -> datetime:
        return wall_clock_at(self.now) + self.jumped_by

    def note(self, text: str) -> None:
        """Write a line of the run's record; two runs of a seed have the same."""
        if not self.is_over:  # what is let go in the end is not part of the run
            self.notes.append(f"{self.now:.6f} {text}")
            self.sign(text)

    def sign(self, text: str) -> None:
        """Make this, and when it happened, part of the digest."""
        self.digest.update(f"{self.now!r} {text}\n".encode())

    def start(self, name: str) -> Process:
        self._starts += 1
        process = Process(self, name, self._starts)
        self.processes.append(process)
        self.loops.clear()
        self.note(f"{name} starts")
        return process

    def crash(self, process: Process) -> None:
        """End a process without any clean-up; the kernel closes its files."""
        if process.is_alive:
            process.is_alive = False
            self.note(f"{process.name} is gone")
            self.processes.remove(process)
            self.loops.clear()
            self.gone.append(process)
            for connection in process.connections:
                connection.close()
            self.on_end(process)

    def end(self, process: Process) -> None:
        """Its main task has ended."""
        self.crash(process)

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Let everything happen until `main`, which runs outside of all processes, has ended."""
        with self._hosting():
            task = self.outside.main.create_task(main())
            while not task.done():
                self._take_turn()
            return task.result()

    def _take_turn(self) -> None:
        now = self.now
        loops = self.loops or self._list_loops()
        # Looked at a million times in a run, so by as few calls as possible.
        some = [loop for loop in loops if loop.due_at <= now]
        due = [
            loop
            for loop in some
            if (loop.due_at >= 0.0 or loop.look_up_due() <= now) and loop.held_until <= now
        ]
        if due:
            loop = due[0] if len(due) == 1 else due[int(self.random.random() * len(due))]
            self.turns += 1
            if not self.turns % _MOST_TURNS_A_SECOND:
                self._look_at_time()
            self.current = loop.process
            loop.turn()
            self.current = self.outside
            return
        next_at = min(
            [loop.due_at if loop.due_at > loop.held_until else loop.held_until for loop in loops]
        )
        if next_at == inf:
            raise RuntimeError("nothing can ever happen any more")
        if next_at > _FIRST_SECOND + _MOST_SECONDS:
            raise RuntimeError("it does not come to an end")
        self.now = next_at

    def _look_at_time(self) -> None:
        if self.now < self._now_at_look + 1.0:
            raise RuntimeError("it is so busy that time does not go on")
        self._now_at_look = self.now

    def _list_loops(self) -> list[SimulatedLoop]:
        self.loops = [loop for process in self.processes for loop in process.loops]
        return self.loops

    @contextmanager
    def _hosting(self) -> Iterator[None]:
        connect = sqlite3.connect

        def opened(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **options)
            self.current.connections.append(connection)
            return connection

        # When the collector runs is not part of the seed, and it calls finalizers.
        gc.disable()
        try:
            with hosted_by(SimulatedHost(self)), patch.object(sqlite3, "connect", opened):
                yield
        finally:
            events._set_running_loop(None)
            self.is_over = True
            self._let_go()
            gc.enable()

    def _let_go(self) -> None:
        """Drop what is left of the processes; what their finalizers say is of no interest."""
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            for process in [*self.processes, *self.gone]:
                for connection in process.connections:
                    connection.close()
                for loop in process.loops:
                    loop.close()
            self.processes.clear()
            self.gone.clear()
            gc.collect()
        finally:
            sys.unraisablehook = hook
