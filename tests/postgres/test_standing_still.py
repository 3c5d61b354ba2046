"""A server that stands still in the middle of something: nobody waits for it without end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from typing import TypeVar
from uuid import uuid4

import pytest

from gantline.contract.errors import StoreBusy, StoreUnavailable
from gantline.contract.results import Applied
from gantline.contract.transition import Transition
from gantline.stores.postgres import PostgresStore
from gantline.stores.postgres.location import parse_url
from gantline.stores.postgres.sql import Sql
from gantline.testing.factories import lane_requests, make_new, register_sessions
from tests.servers.gate import Gate, gate_to
from tests.servers.postgres import PostgresServer

T = TypeVar("T")

SILENCE = r"has not answered within 0\.5 s"


@asynccontextmanager
async def store_on(
    server: PostgresServer | Gate, schema: str, **options: str
) -> AsyncIterator[PostgresStore]:
    # A busy machine takes longer than this deadline to make the schema.
    maker = PostgresStore(parse_url(server.url(schema=schema)))
    await maker.open()
    await maker.close()
    store = PostgresStore(parse_url(server.url(schema=schema, deadline="0.5", **options)))
    await store.open()
    try:
        yield store
    finally:
        await in_time(store.close())


@pytest.fixture
async def gate(postgres: PostgresServer) -> AsyncIterator[Gate]:
    async with gate_to(postgres) as gate:
        yield gate


@pytest.fixture
async def store(gate: Gate, schema: str) -> AsyncIterator[PostgresStore]:
    async with store_on(gate, schema) as store:
        yield store


async def in_time(waiting: Awaitable[T]) -> T:
    """Long enough for the slowest machine; without an end it would never be."""
    return await asyncio.wait_for(waiting, 30)


async def test_a_call_given_up_between_two_statements_does_not_wait_for_its_rollback(
    store: PostgresStore, gate: Gate
) -> None:
    async def work(sql: Sql) -> None:
        await sql.rows("SELECT 1")
        shut.enter_context(gate.shut())
        await asyncio.Event().wait()

    with pytest.raises(StoreUnavailable, match=SILENCE), ExitStack() as shut:
        await in_time(store.calls.run(work, atomic=True))
    assert await store.insert([make_new(1)]) == [Applied(1)]


async def test_the_beginning_of_a_handler_s_transaction_has_a_deadline(
    store: PostgresStore, gate: Gate
) -> None:
    async def begin() -> None:
        async with store.transaction():
            pytest.fail("it has begun")

    for _ in range(2):  # with a new connection, and with one that is there
        with gate.shut(), pytest.raises(StoreUnavailable, match=SILENCE):
            await in_time(begin())
        async with store.transaction():
            pass


async def test_the_end_of_a_handler_s_transaction_has_a_deadline(
    store: PostgresStore, gate: Gate
) -> None:
    async def commit() -> None:
        async with store.transaction() as transaction:
            await transaction.connection.execute("SELECT 1")
            shut.enter_context(gate.shut())

    with pytest.raises(StoreUnavailable, match=SILENCE), ExitStack() as shut:
        await in_time(commit())


async def test_settling_a_run_in_a_handler_s_transaction_has_a_deadline(
    store: PostgresStore, gate: Gate
) -> None:
    await store.insert([make_new(1)])
    await register_sessions(store, "worker")
    (run,) = await store.claim("worker", uuid4(), lane_requests(), lease=timedelta(seconds=60))

    async def settle() -> None:
        async with store.transaction() as transaction:
            shut.enter_context(gate.shut())
            await transaction.apply(Transition.released(run))

    with pytest.raises(StoreUnavailable, match=SILENCE), ExitStack() as shut:
        await in_time(settle())


async def test_what_a_handler_raises_is_told_even_if_the_rollback_is_not_answered(
    store: PostgresStore, gate: Gate
) -> None:
    async def fail() -> None:
        async with store.transaction() as transaction:
            await transaction.connection.execute("SELECT 1")
            shut.enter_context(gate.shut())
            raise LookupError("no such order")

    with pytest.raises(LookupError, match="no such order"), ExitStack() as shut:
        await in_time(fail())


async def test_a_handler_that_is_cancelled_does_not_wait_for_its_rollback(
    gate: Gate, schema: str
) -> None:
    async with store_on(gate, schema) as store:
        is_open = asyncio.Event()

        async def handle() -> None:
            async with store.transaction() as transaction:
                await transaction.connection.execute("SELECT 1")
                is_open.set()
                await asyncio.Event().wait()

        handler = asyncio.create_task(handle())
        await is_open.wait()
        with gate.shut():
            handler.cancel()
            with pytest.raises(asyncio.CancelledError):
                await in_time(handler)


async def test_a_store_is_closed_while_its_calls_get_no_answer(
    store: PostgresStore, gate: Gate
) -> None:
    with gate.shut():
        asking = asyncio.create_task(store.ping())
        await gate.someone_asks()
        await in_time(store.close())
        with pytest.raises(StoreUnavailable):
            await in_time(asking)


async def test_transactions_inside_each_other_are_told_what_they_wait_for(
    postgres: PostgresServer, schema: str
) -> None:
    async with store_on(postgres, schema, connections="2") as store:
        both = asyncio.Barrier(2)

        async def nest() -> StoreBusy:
            async with store.transaction():
                await both.wait()
                with pytest.raises(StoreBusy) as told:
                    await store.transaction().__aenter__()
                await both.wait()  # or the other would get what this one gives back
                return told.value

        for error in await in_time(asyncio.gather(nest(), nest())):
            assert "All 2 connections for transactions of handlers" in error.cause
            assert "inside another" in error.next_step
            assert "`connections`" in error.next_step
        async with store.transaction(), store.transaction():
            pass
