"""Per loop: what may be used in one event loop only, made anew for each that asks for it."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """A process may have several loops, and some end without a word: those are forgotten."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: dict[asyncio.AbstractEventLoop, T] = {}

    def here(self) -> T:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        if (found := self.made.get(loop)) is None:
            found = self._make()
            alive = {one: thing for one, thing in self.made.items() if not one.is_closed()}
            self.made = {**alive, loop: found}
        return found
