"""What a system that is measured can do. Nothing of ours is imported: peers have no Gantline."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import ClassVar, Final

_AT_ONCE: Final = 100

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class Contender(ABC):
    """A queue with two kinds of jobs: one that does nothing, and one that notes its delay."""

    loop_factory: LoopFactory | None = None
    """The event loop that it is run with; None for that of asyncio."""
    is_blocking: ClassVar[bool] = False
    """Whether it knows no asyncio: its calls and its worker block, and many callers are threads."""

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        assert not more_types
        self.url = url
        self.delays_ns: list[int] = []
        """From the moment that a timed job carries to its handler's first line."""
        self._done: list[None] = []

    def note_done(self) -> None:
        """To be called by the job that does nothing; from any thread."""
        self._done.append(None)

    def note_delay(self, submitted_ns: int) -> None:
        """To be called by the timed job."""
        self.delays_ns.append(time.time_ns() - submitted_ns)

    def done(self) -> int:
        """Say how many jobs this process has run."""
        return len(self._done)

    async def make(self) -> None:  # noqa: B027  # many have nothing to make
        """Make what an empty store lacks."""

    async def open(self) -> None:  # noqa: B027  # many open when they are first used
        """Connect."""

    @abstractmethod
    async def submit(self) -> None: ...

    async def submit_many(self, jobs: int) -> None:
        """Submit in bulk; a system that cannot, as fast as it can."""
        for some in portions(jobs, 1 if self.is_blocking else _AT_ONCE):
            await asyncio.gather(*(self.submit() for _ in range(some)))

    async def submit_timed(self, jobs: int) -> None:
        """Submit jobs that carry the present moment: one in the ordinary way, several at once."""
        for _ in range(jobs):
            await self.submit_moment(time.time_ns())

    @abstractmethod
    async def submit_moment(self, submitted_ns: int) -> None:
        """Submit a timed job."""

    @abstractmethod
    async def work(self, slots: int) -> None:
        """Run jobs until cancelled."""


def contender_of(module: str) -> type[Contender]:
    """Find it by its module, so that only its own packages are imported."""
    contender: type[Contender] = import_module(module).Contender
    return contender


def portions(jobs: int, most: int) -> Iterator[int]:
    """Cut a number into ones that are small enough."""
    for start in range(0, jobs, most):
        yield min(most, jobs - start)


def uvloop() -> LoopFactory:
    """The loop that peers with asyncio are fastest with, out of their own environment."""
    factory: LoopFactory = import_module("uvloop").new_event_loop
    return factory
