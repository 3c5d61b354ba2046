"""Connections: no more than are needed, and none that is left behind."""

import asyncio
from uuid import uuid4

import psycopg
import pytest

from gantline import Gantline
from gantline.contract.results import Applied
from gantline.stores.postgres import open_store
from gantline.testing.factories import make_new
from tests.servers.postgres import PostgresServer


@pytest.fixture
def name() -> str:
    return f"gantline-{uuid4().hex[:12]}"


async def open_connections(server: PostgresServer, name: str, condition: str = "true") -> int:
    statement = f"""
        SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND {condition}
    """
    async with await psycopg.AsyncConnection.connect(server.url()) as connection:
        row = await (await connection.execute(statement.encode(), (name,))).fetchone()
    assert row is not None
    return int(row[0])


async def until_at_most(server: PostgresServer, name: str, count: int) -> None:
    """A backend whose client has left takes a moment to go."""
    async with asyncio.timeout(10):
        while await open_connections(server, name) > count:  # noqa: ASYNC110  # only it can tell
            await asyncio.sleep(0.01)


async def until_so_many_wait(server: PostgresServer, name: str, count: int) -> None:
    async with asyncio.timeout(10):
        while (  # noqa: ASYNC110  # only the server can tell
            await open_connections(server, name, "wait_event_type = 'Lock'") != count
        ):
            await asyncio.sleep(0.01)


def test_event_loops_that_ended_leave_no_connection_behind(
    postgres: PostgresServer, url: str, name: str
) -> None:
    jobs = Gantline(f"{url}&application_name={name}")

    @jobs.job("order")
    async def order(value: int) -> None: ...

    for number in range(10):
        asyncio.run(_submitted(order, number))
    asyncio.run(until_at_most(postgres, name, 2))
    asyncio.run(jobs.close())
    asyncio.run(until_at_most(postgres, name, 0))


async def _submitted(order: object, number: int) -> None:
    await order.submit(number)  # type: ignore[attr-defined]  # a job type


async def test_there_are_no_more_connections_than_the_url_allows(
    postgres: PostgresServer, url: str, name: str
) -> None:
    store = open_store(f"{url}&application_name={name}&connections=3")
    await store.open()
    await asyncio.gather(*(store.ping() for _ in range(50)))
    assert await open_connections(postgres, name) <= 3
    await store.close()
    await until_at_most(postgres, name, 0)


async def test_a_call_that_is_given_up_does_not_go_on_in_the_server(
    postgres: PostgresServer, url: str, name: str
) -> None:
    store = open_store(f"{url}&application_name={name}")
    await store.open()
    first, second = (make_new(1, idempotency_key="k") for _ in range(2))
    await store.insert([make_new(0)])
    async with await psycopg.AsyncConnection.connect(postgres.url()) as holder:
        await store.insert_in(holder, [first])
        waiting = asyncio.create_task(store.insert([second]))
        await until_so_many_wait(postgres, name, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until_so_many_wait(postgres, name, 0)
        await holder.rollback()
    assert await store.get([second.job.job_id], tenant_id=None) == [None]
    assert await store.insert([second]) == [Applied(1)]
    await store.close()
