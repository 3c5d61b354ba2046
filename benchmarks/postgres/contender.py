"""What a system that is measured can do. Nothing of ours is imported: peers have no Windlass."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Protocol


class Contender(Protocol):
    """A queue with two kinds of jobs: one that does nothing, and one that notes its delay."""

    delays_ns: list[int]
    """From the moment that a timed job carries to its handler's first line."""
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None
    """The event loop that it is run with; None for that of asyncio."""

    def __init__(self, url: str, *, more_types: int) -> None: ...

    def done(self) -> int:
        """Say how many jobs this process has run."""
        ...

    async def make(self) -> None:
        """Make the tables in an empty database."""
        ...

    async def open(self) -> None: ...

    async def submit(self) -> None: ...

    async def submit_many(self, jobs: int) -> None: ...

    async def submit_timed(self, jobs: int) -> None:
        """Submit jobs that carry the present moment: one in the ordinary way, several at once."""
        ...

    async def work(self, slots: int) -> None:
        """Run jobs until cancelled."""
        ...


def contender_of(name: str) -> type[Contender]:
    """Find it by its module, so that only its own packages are imported."""
    contender: type[Contender] = import_module(f"benchmarks.postgres.on_{name}").Contender
    return contender
