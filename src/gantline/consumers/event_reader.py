"""The event reader: gives a durable consumer every event, in order, at least once.

One process of the fleet reads at a time. The lead only saves work; what keeps the cursor right is
that it is written by compare-and-set, after the consumer has taken the events.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from gantline.contract.clock import Clock
from gantline.contract.domain_event import MOST_EMITTED, read_emitted
from gantline.contract.job import Job
from gantline.contract.job_event import EventConsumer, JobEvent, emitted_with
from gantline.contract.snapshot import JobSnapshot, LoggedEvent
from gantline.contract.store import JobStore
from gantline.contract.text import LABEL_LIMIT, storable
from gantline.contract.webhook import RESERVED_TYPES
from gantline.manager.cursors import (
    ConsumerCursor,
    HeldCursor,
    begin_cursor,
    write_cursor,
)
from gantline.runtime import monotonic

_log = logging.getLogger("gantline.consumer")

Result = TypeVar("Result")

CONSUMER_LEASE: Final = timedelta(seconds=15)
PAGE: Final = 200


def role_of(name: str) -> str:
    """Which leadership a consumer's reader takes."""
    return f"consumer:{name}"


def _is_public(event: LoggedEvent) -> bool:
    """Gantline's own jobs, deliveries of webhooks, are not what anybody listens for."""
    return not event.job_type.startswith(RESERVED_TYPES)


class DeclaredConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer, and how it wants to be given events."""

    consumer: EventConsumer
    from_start: bool = False
    """Where it begins when it is new: before the first event that there is, or after the last."""
    at_once: int = PAGE
    """How many events it takes before its cursor moves."""
    wants: Callable[[str, str], bool] = lambda event_type, job_type: True
    """Which types of events, of which types of jobs, are not passed over; what is passed over
    costs no reading of its job."""
    of_audit: bool = False
    """Whether it is given what jobs want audited, instead of events."""
    own: bool = False
    """Whether it is one of Gantline itself that wants those of Gantline's own jobs too."""
    resume: Callable[[], Awaitable[bool]] | None = None
    """Take what it has put off, as far as that is possible now: called after each page, also an
    empty one. Return whether there is more to take at once."""

    @property
    def name(self) -> str:
        return self.consumer.name

    def has_any(self, row: LoggedEvent) -> bool:
        """Whether it wants any event of a row: what was emitted with it, or its own."""
        if not self.of_audit and self.wants(f"job.{row.entry.event}", row.job_type):
            return True
        emitted = read_emitted(row.entry.emitted)
        return any(
            one.is_audit is self.of_audit and self.wants(one.type, row.job_type) for one in emitted
        )

    def events_of(self, row: LoggedEvent, job: Job) -> Iterator[JobEvent]:
        """The events of a row that it wants, the row's own after what was emitted with it."""
        for event in emitted_with(row.sequence, job, row.entry):
            if event.emitted.is_audit is self.of_audit and self.wants(event.type, row.job_type):
                yield event
        own = JobEvent(row.sequence, job, row.entry)
        if not self.of_audit and self.wants(own.type, row.job_type):
            yield own


async def read_events(
    store: JobStore, declared: DeclaredConsumer, rows: Sequence[LoggedEvent]
) -> list[JobEvent]:
    """Join what a consumer wants with its jobs; what is of jobs that were deleted is left out."""
    chosen = [row for row in rows if (declared.own or _is_public(row)) and declared.has_any(row)]
    ids = list({row.entry.job_id for row in chosen})
    found = await store.get(ids, tenant_id=None) if ids else []
    jobs: dict[UUID, JobSnapshot | None] = dict(zip(ids, found, strict=True))
    return [
        event
        for row in chosen
        if (job := jobs[row.entry.job_id]) is not None and row.is_of(job)
        for event in declared.events_of(row, job.job)
    ]


class Turn(Enum):
    """How a turn ended."""

    MORE = auto()
    """There may be more: take another turn at once."""
    CAUGHT_UP = auto()
    FAILED = auto()
    """The consumer raised; the same events come again."""
    ELSEWHERE = auto()
    """Another process reads."""


class _LostLead(Exception):
    """Another process may read now."""


class EventReader:
    """Read for one consumer, a page a turn."""

    def __init__(
        self,
        store: JobStore,
        declared: DeclaredConsumer,
        owner: str,
        *,
        clock: Clock,
        lease: timedelta = CONSUMER_LEASE,
    ) -> None:
        self._store = store
        self._declared = declared
        self._owner = owner
        self._clock = clock
        self._lease = lease
        self._term: int | None = None
        self._extended_at = 0.0
        self._held: HeldCursor | None = None
        self._taken_last = ""
        """What was taken last, where there is more of its row: a cursor moves past whole rows."""
        self._is_stopping = False
        self.name = declared.name

    async def begin(self) -> None:
        """Keep everything from now on, whoever reads it."""
        await begin_cursor(self._store, self.name, from_start=self._declared.from_start)

    async def run_once(self) -> Turn:
        """Take or keep the lead and hand out one page. Raises what the store raises."""
        try:
            if not await self._leads():
                return Turn.ELSEWHERE
            turn = await self._read_page(self._held or await self._take_over())
            return turn if turn is Turn.FAILED else await self._resumed(turn)
        except _LostLead:
            self._forget()
            return Turn.MORE  # asks for the lead again, and reads the cursor anew
        except BaseException:
            self._held = None  # whether it was written is not known
            raise

    def stop(self) -> None:
        """Hand out nothing more in this turn than what is being taken now."""
        self._is_stopping = True

    async def resign(self) -> None:
        """Let another process read at once instead of after the lease."""
        term = self._term
        self._forget()
        if term is not None:
            await self._store.resign(role_of(self.name), self._owner, term)

    # -- leading ----------------------------------------------------------------------------------

    async def _leads(self) -> bool:
        term, since = self._term, monotonic() - self._extended_at
        if term is not None and since < self._lease.total_seconds() / 3:
            return True
        leads = await self._extend()
        if self._term != term:
            self._held = None  # another may have moved it meanwhile
        return leads

    async def _extend(self) -> bool:
        asked_at = monotonic()
        leadership = await self._store.lead(role_of(self.name), self._owner, lease=self._lease)
        self._term = leadership.term if leadership else None
        self._extended_at = asked_at
        return leadership is not None

    def _forget(self) -> None:
        self._term = self._held = None

    async def _take_over(self) -> HeldCursor:
        """Read the cursor, and write who reads now: the one before can move it no more."""
        held = await begin_cursor(self._store, self.name, from_start=self._declared.from_start)
        return await self._write(held, term=self._term)

    async def _keep_lead(self) -> None:
        """Return when the lead is lost."""
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            try:
                if not await self._extend():
                    return
            except Exception as error:
                _log.warning("the consumer %s may lose its lead: %s", self.name, error)
                if monotonic() - self._extended_at >= self._lease.total_seconds():
                    return

    # -- reading ----------------------------------------------------------------------------------

    async def _read_page(self, held: HeldCursor) -> Turn:
        rows = await self._store.events(after=held.cursor.position, limit=PAGE)
        events = self._not_taken(await read_events(self._store, self._declared, rows))
        for step, more in _steps(events, self._declared.at_once):
            if error := await self._taken(step):
                await self._note(held, error, step)
                return Turn.FAILED
            is_within_row = bool(more) and more[0].sequence == step[-1].sequence
            self._taken_last = step[-1].event_id if is_within_row else ""
            held = await self._moved(held, step[-1].sequence - is_within_row)
            if self._is_stopping and not is_within_row:
                return Turn.CAUGHT_UP
        if rows:
            await self._moved(held, rows[-1].sequence)
        return Turn.MORE if len(rows) == PAGE else Turn.CAUGHT_UP

    async def _resumed(self, turn: Turn) -> Turn:
        """Have the consumer take what it has put off, after a turn."""
        if self._declared.resume is None or self._is_stopping:
            return turn
        has_more = await self._while_leading(self._declared.resume())
        if isinstance(has_more, BaseException):
            _log.warning("the consumer %s tries again what it put off: %s", self.name, has_more)
            return Turn.FAILED
        return Turn.MORE if has_more else turn

    def _not_taken(self, events: list[JobEvent]) -> list[JobEvent]:
        """Leave out those of the first row that were taken before a later one of it failed."""
        if not self._taken_last:
            return events
        ids = [event.event_id for event in events[: MOST_EMITTED + 1]]
        taken = ids.index(self._taken_last) + 1 if self._taken_last in ids else 0
        return events[taken:]

    async def _taken(self, events: Sequence[JobEvent]) -> BaseException | None:
        """Have the consumer take events; what it raised, if it did."""
        return await self._while_leading(self._consume(events))

    async def _while_leading(self, work: Awaitable[Result]) -> Result | BaseException:
        """Do work of the consumer while the lead is kept; what it returned, or raised."""
        taking = asyncio.ensure_future(work)
        keeping = asyncio.create_task(self._keep_lead())
        try:
            await asyncio.wait({taking, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                raise _LostLead
        finally:
            taking.cancel()
            keeping.cancel()
            await asyncio.gather(taking, keeping, return_exceptions=True)
        if taking.cancelled():
            return asyncio.CancelledError("The consumer was cancelled, but not by us.")
        error = taking.exception()
        return taking.result() if error is None else error

    async def _consume(self, events: Sequence[JobEvent]) -> None:
        await self._declared.consumer.consume(events)

    async def _moved(self, held: HeldCursor, position: int) -> HeldCursor:
        if held.cursor.position == position:
            return held
        return await self._write(held, position=position, moved_at=self._clock.now())

    async def _note(
        self, held: HeldCursor, error: BaseException, events: Sequence[JobEvent]
    ) -> None:
        """Say what went wrong, here and where operators look."""
        what = storable(f"{type(error).__name__}: {error}", LABEL_LIMIT)
        first, last = events[0].sequence, events[-1].sequence
        before = held.cursor.last_error if held.cursor.is_failing else ""
        _log.error(
            "the consumer %s failed at events %d to %d, which come again: %s",
            *(self.name, first, last, what),
            exc_info=None if what == before else error,
        )
        await self._write(held, last_error=what, failed_at=self._clock.now())

    async def _write(self, held: HeldCursor, **changes: object) -> HeldCursor:
        cursor: ConsumerCursor = msgspec.structs.replace(held.cursor, **changes)
        self._held = await write_cursor(self._store, self.name, cursor, expected=held.version)
        if self._held is None:
            raise _LostLead
        return self._held


def _steps(
    events: Sequence[JobEvent], at_once: int
) -> Iterator[tuple[Sequence[JobEvent], Sequence[JobEvent]]]:
    """Split events into steps, each with the event that comes after it, if there is one."""
    for end in range(at_once, len(events) + at_once, at_once):
        yield events[end - at_once : end], events[end : end + 1]
