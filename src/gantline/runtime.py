"""What the product takes from its host: time, chance, ids and threads.

Nothing else reads them, so that a simulation can use a host of its own instead, and one seed is one
run. (Waiting belongs to the event loop, which a simulation replaces too.)
"""

import os
import random as chance
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

import msgspec


class Host(Protocol):
    """Where time, chance and threads come from."""

    def now(self) -> datetime:
        """By the wall clock, in UTC."""
        ...

    def time_ns(self) -> int:
        """The same, in nanoseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds, for spans; they never go back."""
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


class Machine:
    """The host that it runs on."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
    random = staticmethod(chance.random)
    random_bytes = staticmethod(os.urandom)

    def start_thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def thread_pool(self, threads: int, name: str) -> Executor:
        return ThreadPoolExecutor(threads, thread_name_prefix=name)


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
