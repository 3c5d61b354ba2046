"""What a system with limits can do here. Nothing of ours is imported: peers have no Gantline."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from benchmarks.contest.contender import LoopFactory


class Shape(NamedTuple):
    """Which jobs there are, and how many of them may run. 0: no such limit, no keys."""

    keys: int = 0
    """Jobs are of these keys in turns."""
    running: int = 0
    """So many of each key at once."""
    running_in_all: int = 0
    per_second: float = 0
    burst: int = 0
    hold_ms: float = 0
    """How long a job takes."""

    def keys_of(self, jobs: int) -> Iterator[str]:
        for number in range(jobs):
            yield f"key-{number % self.keys:06}" if self.keys else ""


class NotedRun(NamedTuple):
    key: str
    began_ns: int
    ended_ns: int


class Player(ABC):
    """A queue with one type of job, whose handler notes when it ran."""

    loop_factory: LoopFactory | None = None
    """The event loop that it is run with; None for that of asyncio."""

    def __init__(self, url: str, shape: Shape) -> None:
        self.url = url
        self.shape = shape
        self.runs: list[NotedRun] = []

    def done(self) -> int:
        """Say how many jobs this process has run."""
        return len(self.runs)

    async def handle(self, key: str) -> None:
        """What the job does."""
        began = time.time_ns()
        if self.shape.hold_ms:
            await asyncio.sleep(self.shape.hold_ms / 1000)
        self.runs.append(NotedRun(key, began, time.time_ns()))

    def handle_blocking(self, key: str) -> None:
        """The same, in a thread."""
        began = time.time_ns()
        time.sleep(self.shape.hold_ms / 1000)
        self.runs.append(NotedRun(key, began, time.time_ns()))

    async def make(self) -> None:  # noqa: B027  # many have nothing to make
        """Make what an empty store lacks."""

    @abstractmethod
    async def fill(self, jobs: int) -> None:
        """Submit so many, as fast as it can."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, and declare what is limited."""

    @abstractmethod
    async def work(self, slots: int) -> None:
        """Run jobs until cancelled."""


def player_of(module: str) -> type[Player]:
    """Find it by its module, so that only its own packages are imported."""
    player: type[Player] = import_module(module).FlowPlayer
    return player
