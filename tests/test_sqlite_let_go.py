"""A SQLite file is let go: when opening fails half-way, and when a caller or the program gives up.

Cancelling everything at the end of `asyncio.run` is the hard case: nobody is left to tidy up.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreUnavailable
from gantline.stores.sqlite import SqliteStore, store, threads, transaction
from gantline.stores.sqlite.connection import connect_reader, connect_writer
from gantline.stores.sqlite.location import Location
from gantline.testing.factories import make_new

_PATIENCE_SECONDS = 20


class Gate:
    """Holds a thread at a place in the code until the test lets it go on."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._may_go_on = threading.Event()

    def passing(self, call: Callable[..., object]) -> Callable[..., object]:
        def held(*args: object, **kwargs: object) -> object:
            self._reached.set()
            self._may_go_on.wait(_PATIENCE_SECONDS)
            return call(*args, **kwargs)

        return held

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, _PATIENCE_SECONDS)

    def open(self) -> None:
        self._may_go_on.set()


class Place:
    """A store on a file of its own, and what this process still has of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = SqliteStore(Location(path), clock=SystemClock())

    def left_open(self) -> list[str]:
        """The descriptors on the file and its log."""
        found = []
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # it was the one of the listing
                target = os.readlink(f"/proc/self/fd/{name}")
                found += [target] if target.startswith(str(self.path)) else []
        return found

    async def is_let_go(self) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while self.left_open():  # noqa: ASYNC110  # threads end without a signal
                await asyncio.sleep(0.01)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "gantline.db")


def end_the_program_during(gate: Gate, begin: Callable[[], Awaitable[object]]) -> None:
    """Run a program whose main function returns while something is on its way in a thread."""

    async def open_the_gate_when_all_is_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gate.open()

    async def program() -> list[object]:
        tasks = [
            asyncio.ensure_future(begin()),
            asyncio.create_task(open_the_gate_when_all_is_cancelled()),
        ]
        await gate.reached()
        return list(tasks)  # kept, or they might be collected before they are cancelled

    asyncio.run(program())


def test_an_open_at_the_end_of_the_program(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(store, "Readers", gate.passing(threads.Readers))
    end_the_program_during(gate, place.store.open)
    asyncio.run(place.is_let_go())


def test_a_close_at_the_end_of_the_program(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()

    async def open_and_close() -> None:
        await place.store.open()
        opened = place.store._opened
        assert opened is not None
        pool = opened.readers._threads
        monkeypatch.setattr(pool, "shutdown", gate.passing(pool.shutdown))
        await place.store.close()

    end_the_program_during(gate, open_and_close)
    asyncio.run(place.is_let_go())


async def test_an_open_that_its_caller_gives_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setattr(store, "Readers", gate.passing(threads.Readers))
    opening = asyncio.create_task(place.store.open())
    await gate.reached()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    gate.open()
    await place.is_let_go()


async def test_an_open_that_fails_at_the_second_reader(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def fail_once_there_is_one(location: Location) -> sqlite3.Connection:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise StoreUnavailable("no more files")
        return connect_reader(location)

    monkeypatch.setattr(threads, "connect_reader", fail_once_there_is_one)
    with pytest.raises(StoreUnavailable, match="no more files"):
        await place.store.open()
    await place.is_let_go()


async def test_an_open_that_gets_no_thread(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def start_inbox(serve: Callable[..., None], **options: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "start_inbox", start_inbox)
    with pytest.raises(RuntimeError, match="new thread"):
        await place.store.open()
    await place.is_let_go()


async def test_a_transaction_given_up_before_it_began_does_not_keep_the_lock(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one handler that timed out would stop every writer on the file."""
    await place.store.open()
    gate = Gate()
    monkeypatch.setattr(transaction, "connect_writer", gate.passing(connect_writer))

    async def write() -> None:
        async with place.store.transaction():
            pytest.fail("it was given up")

    writing = asyncio.create_task(write())
    await gate.reached()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    gate.open()
    await place.store.insert([make_new(1)])
    await place.store.close()
    await place.is_let_go()


async def test_a_commit_that_its_caller_gives_up_is_made_whole(place: Place) -> None:
    await place.store.open()
    gate = Gate()
    connections = []

    async def write() -> None:
        async with place.store.transaction() as begun:
            connections.append(begun.connection)
            begun.connection.execute("CREATE TABLE t (x)")
            begun.connection.set_trace_callback(gate.passing(lambda statement: None))

    writing = asyncio.create_task(write())
    await gate.reached()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    gate.open()
    await place.store.close()
    await place.is_let_go()
    assert len(connections) == 1
    with closing(sqlite3.connect(place.path)) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
