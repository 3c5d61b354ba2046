"""Faults, put around every call of a store."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from gantline.contract.errors import StoreUnavailable
from gantline.contract.store import JobStore

Call = Callable[[], Awaitable[Any]]
Around = Callable[[str, Call], Awaitable[Any]]
"""Given the name of a verb and the call itself, decide what happens."""


class AnswerLost(StoreUnavailable):
    """The store did the call, but its answer never arrived."""


class Crash(BaseException):
    """The process died here. Nothing may catch it but the test."""


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


def losing_answers(store: JobStore) -> JobStore:
    """Do everything twice: the first answer of each call is lost, as if the caller tried again."""

    async def around(verb: str, call: Call) -> Any:
        await call()
        return await call()

    return intercepted(store, around)


class CrashPoint:
    """Let the process die right before or right after its n-th store call, counted from 1."""

    def __init__(self, *, at: int, after: bool) -> None:
        self._left = at
        self._after = after
        self.reached = False

    def wrap(self, store: JobStore) -> JobStore:
        return intercepted(store, self._around)

    async def _around(self, verb: str, call: Call) -> Any:
        self._left -= 1
        if self._left != 0:
            return await call()
        self.reached = True
        if self._after:
            await call()
        raise Crash(f"{'after' if self._after else 'before'} {verb}")
