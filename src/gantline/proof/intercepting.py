"""Putting something around every call of a store: faults, for proofs and tests."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from gantline.contract.errors import StoreUnavailable
from gantline.contract.store import JobStore

MadeCall = Callable[[], Awaitable[Any]]
Around = Callable[[str, MadeCall], Awaitable[Any]]
"""Given the name of a verb and the call itself, decide what happens."""


class AnswerLost(StoreUnavailable):
    """The store did the call, but its answer never arrived."""


class _Intercepted:
    """Stands for a store and passes each verb through `around`.

    Forwards by name on purpose: the protocol stays the only list of verbs.
    """

    def __init__(self, store: JobStore, around: Around) -> None:
        self._store = store
        self._around = around

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not inspect.iscoroutinefunction(verb):
            return verb

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._around(name, lambda: verb(*args, **kwargs))

        return call


def intercepted(store: JobStore, around: Around) -> JobStore:
    """Wrap a store so that every call goes through `around`."""
    return cast("JobStore", _Intercepted(store, around))
