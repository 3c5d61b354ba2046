"""Consumers: runs the durable consumers of an application, each at its own pace."""

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, assert_never

from gantline.consumers.event_reader import DeclaredConsumer, EventReader, Turn
from gantline.contract.clock import Clock
from gantline.contract.domain_event import (
    ALL_DOMAIN_EVENTS,
    ALL_EVENTS,
    check_domain_type,
    includes,
)
from gantline.contract.errors import InvalidInput, Permanent
from gantline.contract.job_event import DomainEvent, JobEvent
from gantline.contract.status import Event
from gantline.contract.store import JobStore
from gantline.runtime import jittered, thread_pool

_log = logging.getLogger("gantline.consumer")

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0
# Where hints come in floods, many of them are one look.
_SHORTEST_PAUSE_SECONDS: Final = 0.02
_ASK_EVERY_SECONDS: Final = 2.0
_FIRST_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 60.0
_LAST_TIME_SECONDS: Final = 2.0
_CLOSED_SECONDS: Final = 1.0


class Consumers:
    """One task a consumer: whichever fails, hangs or falls behind, the others do not notice."""

    def __init__(
        self,
        store: JobStore,
        declared: Sequence[DeclaredConsumer],
        owner: str,
        *,
        clock: Clock,
        longest_wait: Callable[[], timedelta],
        ask: Callable[[], None],
        number: Callable[[], None],
        lease: timedelta,
        is_closed: Callable[[], Awaitable[bool]],
    ) -> None:
        """`ask` asks workers for hints when jobs end; `number` has events numbered.

        While the store `is_closed`, nothing is read: the cursors are being copied.

        `longest_wait`: how long an idle look may be put off.
        """
        self._readers = [
            EventReader(store, one, owner, clock=clock, lease=lease) for one in declared
        ]
        self._longest_wait = longest_wait
        self._ask = ask
        self._number = number
        self._is_closed = is_closed
        self._lease = lease
        self._asked_at = -math.inf
        self._looks = [asyncio.Event() for _ in self._readers]
        self._stop_asked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(reader.name for reader in self._readers)

    async def begin(self) -> None:
        """Give new consumers their position in the log, before this process writes any event."""
        for reader in self._readers:
            await reader.begin()

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._read_for_ever(reader, look))
            for reader, look in zip(self._readers, self._looks, strict=True)
        ]

    def wake(self) -> None:
        """There may be new events."""
        for look in self._looks:
            look.set()

    async def stop(self, seconds: float) -> None:
        """Let consumers finish what they have in hand, at most so long; then let others read."""
        self._stop_asked.set()
        for reader in self._readers:
            reader.stop()
        self.wake()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
            self.stop_now()
            await asyncio.wait(self._tasks, timeout=_LAST_TIME_SECONDS)
        await asyncio.gather(*map(_resign, self._readers))

    def stop_now(self) -> None:
        """Do not wait any longer for consumers."""
        for task in self._tasks:
            task.cancel()

    async def _read_for_ever(self, reader: EventReader, look: asyncio.Event) -> None:
        failures, pause = 0, _FIRST_PAUSE_SECONDS
        while not self._stop_asked.is_set():
            look.clear()
            turn = await self._turn(reader)
            failures = failures + 1 if turn is Turn.FAILED else 0
            match turn:
                case Turn.MORE:
                    pause = _FIRST_PAUSE_SECONDS
                    self._ask_now_and_then()
                case Turn.CAUGHT_UP:
                    self._ask_now_and_then()
                    is_woken = await self._rest(pause, look)
                    longest = min(self._longest_wait().total_seconds(), _LONGEST_PAUSE_SECONDS)
                    pause = _FIRST_PAUSE_SECONDS if is_woken else min(2 * pause, longest)
                case Turn.FAILED:
                    wait = _FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 10)
                    await self._rest_until_stopped(jittered(min(_LONGEST_RETRY_SECONDS, wait)))
                case Turn.ELSEWHERE:
                    await self._rest_until_stopped(jittered(self._lease.total_seconds() / 3))
                case _:
                    assert_never(turn)

    async def _turn(self, reader: EventReader) -> Turn:
        try:
            if await self._is_closed():
                await self._rest_until_stopped(jittered(_CLOSED_SECONDS))
                return Turn.CAUGHT_UP
            return await reader.run_once()
        except Exception as error:
            _log.warning("events for %s could not be read, trying again: %s", reader.name, error)
            return Turn.FAILED

    def _ask_now_and_then(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._asked_at >= _ASK_EVERY_SECONDS:
            self._asked_at = now
            self._ask()

    async def _rest(self, seconds: float, look: asyncio.Event) -> bool:
        """Wait until there may be something; return whether a hint said so.

        If none did, events are numbered whose writers have not done it.
        """
        await asyncio.sleep(_SHORTEST_PAUSE_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await look.wait()
        if not look.is_set():
            self._number()
        return look.is_set()

    async def _rest_until_stopped(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop_asked.wait()


async def _resign(reader: EventReader) -> None:
    try:
        async with asyncio.timeout(_LAST_TIME_SECONDS):
            await reader.resign()
    except Exception as error:
        _log.warning("the lead of the consumer %s was not given back: %s", reader.name, error)


EventFunction = (
    Callable[[JobEvent], Awaitable[None] | None] | Callable[[DomainEvent], Awaitable[None] | None]
)

EVENT_TYPES: Final = tuple(f"job.{event}" for event in Event)
_NAMED: Final = (*EVENT_TYPES, ALL_EVENTS, ALL_DOMAIN_EVENTS)


class FunctionConsumer:
    """Calls `async def` on the loop, `def` in a thread of its own: never twice at once."""

    def __init__(self, name: str, function: EventFunction) -> None:
        self.name = name
        self._function: Callable[[Any], Awaitable[None] | None] = function

    async def consume(self, events: Sequence[JobEvent]) -> None:
        for event in events:
            try:
                await self._call(event)
            except Permanent as error:
                _log.error(
                    "the consumer %s passes over %s %s: %s: %s",
                    *(self.name, event.type, event.event_id, error.error_code, error),
                )

    async def _call(self, event: JobEvent) -> None:
        if inspect.iscoroutinefunction(self._function):
            await self._function(event)
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._function, event)

    @cached_property
    def _thread(self) -> Executor:
        return thread_pool(1, "gantline-on")


def name_of(function: Callable[..., object]) -> str:
    """The name under which a function's cursor is kept."""
    if function.__module__ == "__main__":
        raise InvalidInput(
            f"{function.__qualname__} is in a script: another script's function of that name would "
            "share its position in the log.",
            next_step="Give the consumer a name of its own: @jobs.on(…, name=…).",
        )
    return f"{function.__module__}.{function.__qualname__}"


def events_of(types: Sequence[str], job_types: Sequence[str]) -> Callable[[str, str], bool]:
    """Select events of these types, of jobs of these types; no job types: of all."""
    there_are = f"There are {', '.join(_NAMED)}, and what handlers emit."
    if not types:
        raise InvalidInput("No event is named.", next_step=there_are)
    for one in types:
        try:
            if one not in _NAMED:
                check_domain_type(one)
        except InvalidInput as error:
            raise InvalidInput(f"There is no event {one!r}.", next_step=there_are) from error
    kinds = frozenset(job_types)

    def wants(event_type: str, job_type: str) -> bool:
        return includes(types, event_type) and (not kinds or job_type in kinds)

    return wants
