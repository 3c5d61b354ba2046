"""What the product takes from its host: time, chance, ids, threads and the end of the process.

Nothing else reads them, so that a simulation can use a host of its own instead, and one seed is one
run. (Waiting belongs to the event loop, which a simulation replaces too.)
"""

import asyncio
import os
import random as chance
import socket
import sysconfig
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar
from uuid import UUID

import msgspec

_INSTALLED: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))

T = TypeVar("T")
Item = TypeVar("Item", contravariant=True)


class Inbox(Protocol[Item]):
    """Hands what is put in to a thread of its own, in order."""

    def put(self, item: Item) -> None: ...

    def end(self) -> None:
        """Take nothing more. What was put in before is still served."""
        ...

    def join(self) -> None:
        """Wait until all is served."""
        ...


class Host(Protocol):
    """Where time, chance and threads come from, and what ends the process."""

    def now(self) -> datetime:
        """By the wall clock, in UTC."""
        ...

    def time_ns(self) -> int:
        """The same, in nanoseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds, for spans; they never go back."""
        ...

    def thread_seconds(self) -> float:
        """Processor time that this thread has had."""
        ...

    def random(self) -> float:
        """From 0 up to 1. Anybody may guess it."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """Nobody can guess these."""
        ...

    def start_thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        """One that does not keep the process from ending."""
        ...

    def thread_pool(self, threads: int, name: str) -> Executor: ...

    def start_inbox(
        self, serve: Callable[[list[T]], None], *, most: int, at_end: Callable[[], None], name: str
    ) -> Inbox[T]:
        """Have `serve` called in a thread with what was put in meanwhile, at most so many."""
        ...

    def start_loop(
        self, main: Callable[[], Coroutine[Any, Any, None]], name: str
    ) -> "Future[None]":
        """Run an event loop in a thread that does not keep the process from ending.

        The future is done when `main` is.
        """
        ...

    def exit_process(self, code: int) -> NoReturn:
        """End at once, without cleaning up."""
        ...

    def process(self) -> tuple[str, int]:
        """The host's name, and the number of this process there."""
        ...

    def boot_id(self) -> bytes:
        """Which start of the kernel this is; empty where no lock of the kernel proves anything."""
        ...


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class _ThreadInbox(Generic[T]):
    def __init__(
        self, serve: Callable[[list[T]], None], most: int, at_end: Callable[[], None]
    ) -> None:
        self._serve = serve
        self._most = most
        self._at_end = at_end
        self._items: SimpleQueue[tuple[T] | None] = SimpleQueue()
        self.thread: threading.Thread

    def put(self, item: T) -> None:
        self._items.put((item,))

    def end(self) -> None:
        self._items.put(None)

    def join(self) -> None:
        self.thread.join()

    def run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._items.get()]
            while batch[-1] is not None and len(batch) < self._most:
                try:
                    batch.append(self._items.get_nowait())
                except Empty:
                    break
            is_open = batch[-1] is not None
            if items := [one[0] for one in batch if one is not None]:
                self._serve(items)
            del batch, items  # an idle thread keeps nothing alive
        self._at_end()


class Machine:
    """The host that it runs on."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
    thread_seconds = staticmethod(time.thread_time)
    random = staticmethod(chance.random)
    random_bytes = staticmethod(os.urandom)

    def start_thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def thread_pool(self, threads: int, name: str) -> Executor:
        return ThreadPoolExecutor(threads, thread_name_prefix=name)

    def start_inbox(
        self, serve: Callable[[list[T]], None], *, most: int, at_end: Callable[[], None], name: str
    ) -> Inbox[T]:
        inbox = _ThreadInbox(serve, most, at_end)
        inbox.thread = self.start_thread(inbox.run, name)
        return inbox

    def start_loop(
        self, main: Callable[[], Coroutine[Any, Any, None]], name: str
    ) -> "Future[None]":
        ended = Future[None]()
        ended.set_running_or_notify_cancel()  # or who gives up waiting would cancel it

        def run() -> None:
            try:
                asyncio.run(main())
            except BaseException as error:
                ended.set_exception(error)
            else:
                ended.set_result(None)

        self.start_thread(run, name)
        return ended

    def exit_process(self, code: int) -> NoReturn:
        os._exit(code)

    def process(self) -> tuple[str, int]:
        return socket.gethostname(), os.getpid()

    def boot_id(self) -> bytes:
        try:
            return _BOOT.read_bytes().strip()
        except OSError:
            return b""


_host: Host = Machine()

_VERSION_4 = (0x4 << 76) | (0b10 << 62)
_RANDOM_BITS = ~((0xF << 76) | (0b11 << 62))


@contextmanager
def hosted_by(host: Host) -> Iterator[None]:
    """Use another host in this process; for simulations."""
    global _host
    before, _host = _host, host
    try:
        yield
    finally:
        _host = before


def now() -> datetime:
    return _host.now()


def time_ns() -> int:
    return _host.time_ns()


def monotonic() -> float:
    return _host.monotonic()


def thread_seconds() -> float:
    return _host.thread_seconds()


def random() -> float:
    return _host.random()


def jittered(seconds: float, *, by: float = 0.25) -> float:
    """A span that differs from call to call, by up to this part of it either way."""
    return seconds * (1 + by * (2 * _host.random() - 1))


def random_bytes(count: int) -> bytes:
    return _host.random_bytes(count)


def new_uuid() -> UUID:
    """A UUIDv4: neither guessed nor handed out twice."""
    number = int.from_bytes(_host.random_bytes(16), "big") & _RANDOM_BITS | _VERSION_4
    # msgspec makes it in C (0.25 µs), UUID(…) in Python (1.0 µs).
    return msgspec.convert(number.to_bytes(16, "big"), UUID)


def start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    return _host.start_thread(run, name)


def thread_pool(threads: int, name: str) -> Executor:
    return _host.thread_pool(threads, name)


def start_inbox(
    serve: Callable[[list[T]], None],
    *,
    name: str,
    most: int = 1,
    at_end: Callable[[], None] = lambda: None,
) -> Inbox[T]:
    return _host.start_inbox(serve, most=most, at_end=at_end, name=name)


def start_loop(main: Callable[[], Coroutine[Any, Any, None]], name: str) -> "Future[None]":
    return _host.start_loop(main, name)


def exit_process(code: int) -> NoReturn:
    _host.exit_process(code)


def process() -> tuple[str, int]:
    return _host.process()


def boot_id() -> bytes:
    return _host.boot_id()


# -- what a thread does -------------------------------------------------------------------------


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def is_of_the_user(frame: FrameType) -> bool:
    """Whether it is neither of a library nor of ours."""
    is_ours = module_of(frame).partition(".")[0] == "gantline"
    return not is_ours and not frame.f_code.co_filename.startswith((*_INSTALLED, "<"))
