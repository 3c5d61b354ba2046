"""A function as a durable consumer: called event by event, in order."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final

from gantline.contract.errors import InvalidInput, Permanent
from gantline.contract.job_event import JobEvent
from gantline.contract.snapshot import LoggedEvent
from gantline.contract.status import Event

_log = logging.getLogger("gantline.consumer")

EventFunction = Callable[[JobEvent], Awaitable[None] | None]

EVENT_TYPES: Final = tuple(f"job.{event}" for event in Event)
EVERY_TYPE: Final = "job.*"


class FunctionConsumer:
    """Calls `async def` on the loop, `def` in a thread of its own: never twice at once."""

    def __init__(self, name: str, function: EventFunction) -> None:
        self.name = name
        self._function = function

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
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="gantline-on")


def name_of(function: Callable[..., object]) -> str:
    """The name under which a function's cursor is kept."""
    if function.__module__ == "__main__":
        raise InvalidInput(
            f"{function.__qualname__} is in a script: another script's function of that name would "
            "share its place among the events.",
            next_step="Give the consumer a name of its own: @jobs.on(…, name=…).",
        )
    return f"{function.__module__}.{function.__qualname__}"


def wanted(types: Sequence[str], job_types: Sequence[str]) -> Callable[[LoggedEvent], bool]:
    """Tell events of these types, of jobs of these types, from others; no job types: of all."""
    if not types or (unknown := [one for one in types if one not in (*EVENT_TYPES, EVERY_TYPE)]):
        cause = f"There is no event {unknown[0]!r}." if types else "No event is named."
        raise InvalidInput(cause, next_step=f"There are {', '.join((*EVENT_TYPES, EVERY_TYPE))}.")
    events = frozenset(Event) if EVERY_TYPE in types else frozenset(map(_event_of, types))
    kinds = frozenset(job_types)

    def wants(event: LoggedEvent) -> bool:
        return event.entry.event in events and (not kinds or event.job_type in kinds)

    return wants


def _event_of(event_type: str) -> Event:
    return Event(event_type.removeprefix("job."))
