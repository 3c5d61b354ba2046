"""Code of the user's own that requests call: it may be slow, and must not hold up all the others.

A function cannot be interrupted, so a time limit needs a thread, and that takes longer than most
such functions do. So each is called on the event loop until it is known to be slow. What never
returns there stops the process; whoever fears that has all of it called in threads.
"""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from gantline.api.problems import ApiCode
from gantline.api.shares import Turns
from gantline.auth.action import Action
from gantline.auth.authorizer import Authorizer, Target
from gantline.auth.principal import Principal
from gantline.contract.errors import GantlineError
from gantline.contract.query import Visibility
from gantline.runtime import is_of_the_user, monotonic
from gantline.worker.threads import HandlerThreads

_log = logging.getLogger("gantline.api")

T = TypeVar("T")

# On a busy machine a quick function may seem slow, when its process had to wait. So one slow call
# says little, unless it was very slow; and so many quick ones make up for it.
_SLOW_CALLS: Final = 2
_QUICK_CALLS: Final = 10
_A_MOMENT_SECONDS: Final = 5.0


class CodeTooSlow(GantlineError):
    """A function of the user's own did not return in time."""

    code = ApiCode.REQUEST_TIMEOUT


class UserCode:
    """Calls functions of the user's own; each is known by a name, for the log.

    In threads, one of each tenant at a time: a function that never returns holds up that tenant.
    """

    def __init__(self, *, slow_seconds: float, timeout_seconds: float) -> None:
        self._slow_seconds = slow_seconds
        self._timeout_seconds = timeout_seconds
        self._lost_seconds: dict[str, float] = {}
        """By slow calls of those functions that had any, less what quick ones made up for."""
        self._slow: set[str] = set()
        self._threads = HandlerThreads()
        self._turns = Turns(1)
        self._given_up: set[_InThread[Any]] = set()
        self._gave_up_at: float | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether one was given up and goes on, or one was given up a moment ago."""
        at = self._gave_up_at
        return bool(self._given_up) or (at is not None and monotonic() - at < _A_MOMENT_SECONDS)

    async def call(self, function: Callable[[], T], *, name: str, tenant_id: str) -> T:
        """Call a function, in a thread if it was slow before, or where it may take no time at all;
        raise CodeTooSlow, or its error."""
        if not self._slow_seconds or name in self._slow:
            called = _InThread(function)
            try:
                return await self.limited(self._in_thread(called, tenant_id), name=name)
            except CodeTooSlow:
                if called.thread is not None:
                    self._given_up.add(called)
                    _log.warning("%s stands at %s", name, called.place())
                raise
        began = monotonic()
        try:
            return function()
        finally:
            self._look_at(name, monotonic() - began)

    async def limited(self, waiting: Awaitable[T], *, name: str) -> T:
        """Wait for a function of the user's own that is async; raise CodeTooSlow."""
        try:
            async with asyncio.timeout(self._timeout_seconds) as limit:
                return await waiting
        except TimeoutError:
            if not limit.expired():
                raise  # its own
            self._gave_up_at = monotonic()
            _log.warning("%s has not returned within %g s", name, self._timeout_seconds)
            raise CodeTooSlow("A check of this server's own took too long.") from None

    def _look_at(self, name: str, seconds: float) -> None:
        slow, before = self._slow_seconds, self._lost_seconds.get(name, 0.0)
        if seconds < slow:
            if before:
                self._lost_seconds[name] = max(0.0, before - slow / _QUICK_CALLS)
            return
        lost = self._lost_seconds[name] = before + seconds
        if lost >= _SLOW_CALLS * slow:
            self._slow.add(name)
            _log.warning(
                "%s took %.2f s, in which no other request went on; it is called in a thread now",
                name,
                seconds,
            )

    async def _in_thread(self, called: "_InThread[T]", tenant_id: str) -> T:
        await self._turns.take(tenant_id)
        running = asyncio.create_task(self._threads.call(called))

        def end(running: asyncio.Task[Any]) -> None:
            self._turns.give_back(tenant_id)
            self._given_up.discard(called)
            called.thread = None
            if not running.cancelled():
                running.exception()  # there may be nobody left to raise it to

        running.add_done_callback(end)
        found: T = await asyncio.shield(running)  # a thread goes on when nobody waits any more
        return found

    async def close(self) -> None:
        self._threads.close()


class _InThread(Generic[T]):
    """A function that says where it stands."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.thread: int | None = None
        """In which it runs now."""

    def __call__(self) -> T:
        self.thread = threading.get_ident()
        return self._function()

    def place(self) -> str:
        frame = sys._current_frames().get(self.thread or 0)
        stack = [] if frame is None else [one for one, _ in traceback.walk_stack(frame)]
        found = next(filter(is_of_the_user, stack), frame)
        if found is None:
            return "no known place"
        return f"{found.f_code.co_filename}:{found.f_lineno}, in {found.f_code.co_qualname}"


def name_of(function: Any) -> str:
    """A function as the log names it."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{function.__module__}.{name}"


class LimitedAuthorizer:
    """An authorizer of the user's own, with a time limit."""

    def __init__(self, authorizer: Authorizer, code: UserCode) -> None:
        self._authorizer = authorizer
        self._code = code
        self._name = name_of(type(authorizer).may)
        self.subject_required: bool = getattr(authorizer, "subject_required", False)

    async def may(self, principal: Principal, action: Action, target: Target) -> bool:
        asked = self._authorizer.may(principal, action, target)
        return await self._code.limited(asked, name=self._name)

    def scope(self, principal: Principal, action: Action) -> Visibility:
        return self._authorizer.scope(principal, action)
