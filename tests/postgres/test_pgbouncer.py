"""Through PgBouncer in transaction mode, where no two transactions need share a connection."""

from collections.abc import Iterator

import pytest

from gantline import Context, Gantline
from tests.postgres.load import Load, check_books
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def bouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    bouncer = PgBouncer(postgres)
    yield bouncer
    bouncer.stop()


async def test_an_application_works_through_it(
    bouncer: PgBouncer, postgres: PostgresServer, schema: str
) -> None:
    load = Load(bouncer.url(schema=schema, prepare="false"))
    async with load.running():
        await load.run_more(300)
    events = await check_books(postgres.url(), load.accepted, schema)
    assert set(events) == {"completed"}


async def test_a_handler_s_transaction_works_through_it(bouncer: PgBouncer, schema: str) -> None:
    jobs = Gantline(bouncer.url(schema=schema, prepare="false"))

    @jobs.job("book")
    async def book(value: int, ctx: Context) -> int:
        async with ctx.transaction(result=value) as connection:
            await connection.execute("SELECT 1")
        return 0

    async with jobs, jobs.running():
        assert await (await book.submit(7)).result(timeout=10) == 7
