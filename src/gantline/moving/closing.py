"""Closing the stores of a copy, and handing over from one to the other: never are both open."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec

from gantline.contract.errors import GantlineError
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.manager.switches import CLOSED, SWITCHES, Closed, Switches

_REOPEN_SECONDS: Final = 10.0

Switched = Callable[[JobStore], Awaitable[None]]


class Places(NamedTuple):
    """The two stores as people know them, without secrets."""

    source: str
    target: str


class Closing:
    """The switches of one copy."""

    def __init__(self, places: Places, *, actor: str, switched: Switched | None) -> None:
        """`switched` tells the processes of a store that its switches have changed."""
        self._places = places
        self._actor = actor
        self._switched = switched
        self._id = uuid4().hex
        self._versions: dict[JobStore, int] = {}
        self._is_handed_over = False

    @asynccontextmanager
    async def closed(self, source: JobStore) -> AsyncIterator[None]:
        """Close the source; what goes wrong in the block opens it again."""
        before = await closing_of(source)
        try:
            await self.close(source)
            yield
        except BaseException:
            # Shielded: whoever interrupts us wants the jobs to go on.
            await asyncio.shield(self._open_again(source, before))
            raise

    async def close(self, store: JobStore) -> None:
        await self._write(store, await self._made(store), expected=None)

    async def has_closed(self, store: JobStore) -> bool:
        closed = await closing_of(store)
        return closed is not None and closed.copy == self._id

    async def hand_over(self, source: JobStore, target: JobStore) -> None:
        """Close the source for good, then open the target."""
        moved = await self._made(source, has_moved=True)
        await self._write(source, moved, expected=self._versions[source])
        self._is_handed_over = True
        await self._write(target, None, expected=self._versions[target])

    async def _open_again(self, source: JobStore, before: Closed | None) -> None:
        """As it was before; unless another copy has closed it since, which then will open it.

        Not once the target may be open: then it is known only there what runs.
        """
        if self._is_handed_over:
            return
        async with asyncio.timeout(_REOPEN_SECONDS):
            if await self.has_closed(source):
                as_before = before if before and before.has_moved else None
                await self._write(source, as_before, expected=None)

    async def _made(self, store: JobStore, *, has_moved: bool = False) -> Closed:
        return Closed(
            copied_from=self._places.source,
            copied_to=self._places.target,
            copy=self._id,
            by=self._actor,
            since=await store.ping(),
            has_moved=has_moved,
        )

    async def _write(self, store: JobStore, closed: Closed | None, *, expected: int | None) -> None:
        value = None if closed is None else msgspec.json.encode(closed)
        (answer,) = await store.write_records([RecordWrite(SWITCHES, CLOSED, value, expected)])
        if not isinstance(answer, Applied):
            raise GantlineError(
                "Another copy of the same store has begun.", next_step="Let that one end."
            )
        self._versions[store] = answer.version
        if self._switched is not None:
            await self._switched(store)


async def closing_of(store: JobStore) -> Closed | None:
    """Why a store is closed; None where it is open."""
    switches = Switches(store)
    await switches.refresh()
    return switches.closed


async def reopen(store: JobStore) -> Closed | None:
    """Open a store that a copy has left closed; return why it was, None where it was open."""
    closed = await closing_of(store)
    if closed is not None:
        await store.write_records([RecordWrite(SWITCHES, CLOSED, None)])
    return closed
