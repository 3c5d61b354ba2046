"""Things made in a thread for a caller who may have given up when they are ready."""

import asyncio
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


async def made_in_thread(make: Callable[[], T], *, let_go: Callable[[T], None]) -> T:
    """Make something in a thread. If the caller is cancelled, what comes of it is let go."""
    handover = _Handover(make, let_go)
    try:
        return await asyncio.to_thread(handover.make)
    except asyncio.CancelledError:
        handover.give_up()
        raise


class _Handover(Generic[T]):
    """Needs no event loop to tidy up: at the end of a program the loop goes first."""

    def __init__(self, make: Callable[[], T], let_go: Callable[[T], None]) -> None:
        self._make = make
        self._let_go = let_go
        self._lock = Lock()
        self._made: list[T] = []
        self._given_up = False

    def make(self) -> T:
        made = self._make()
        with self._lock:
            self._made.append(made)
            self._tidy_up()
        return made

    def give_up(self) -> None:
        with self._lock:
            self._given_up = True
            self._tidy_up()

    def _tidy_up(self) -> None:
        while self._given_up and self._made:
            self._let_go(self._made.pop())
