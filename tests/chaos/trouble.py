"""What all troubles share: they change nothing but what they say, and undo it at their end."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from gantline.proving.child import ChildSettings
from gantline.proving.faults import Chance
from gantline.proving.fleet import Fleet, child_command

SEED: Final = 18
DEADLINE: Final = "3"
"""Seconds after which a server that does not answer is given up: a lease, as it is by default.

A claim that is repeated for longer than its lease may give new runs the tokens of its first ones,
which others have taken over meanwhile. Nobody has these, but the checker cannot know that.
"""


class Trouble(ABC):
    """Makes one kind of fault until it is cancelled."""

    eating: float = 0.0
    name: ClassVar[str]
    """What its faults are called in the report."""

    def __init__(self) -> None:
        self.chance: Final = Chance(SEED, type(self).__name__)

    def command(self, settings: ChildSettings) -> Sequence[str]:
        return child_command(settings)

    def variables(self, process: str) -> Mapping[str, str]:
        return {}

    @abstractmethod
    async def make(self, fleet: Fleet) -> None: ...


class Switched(Trouble):
    """A state that comes and goes, and in which no job is expected to start."""

    calm_seconds = 4.0
    seconds = (2.0, 5.0)
    stops_all: bool = True
    """False: some can work all the same."""

    async def make(self, fleet: Fleet) -> None:
        while True:
            await asyncio.sleep(self.calm_seconds)
            seconds = self.chance.uniform(*self.seconds)
            if self.stops_all:
                fleet.health.hinder_all(self.name)
            try:
                await uninterrupted(lambda: self.begin(fleet))
                fleet.log.add(self.name, "all", seconds)
                await asyncio.sleep(seconds)
            finally:
                await uninterrupted(lambda: self.end(fleet))
                fleet.health.free_all(self.name)

    @abstractmethod
    def begin(self, fleet: Fleet) -> None:
        """Called in a thread."""

    @abstractmethod
    def end(self, fleet: Fleet) -> None:
        """Called in a thread, also where `begin` has failed."""


async def uninterrupted(do: Callable[[], None]) -> None:
    """Do something slow in a thread, to its end; a cancellation comes after it."""
    doing = asyncio.create_task(asyncio.to_thread(do))
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        doing.result()
        raise
