"""Every kind of connection that a user may hold, behind one face."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # has no types
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session


class Caller:
    """A connection with a transaction that began, or begins with the first statement."""

    def __init__(self, connection: Any, say: Callable[[str], Any] = lambda sql: sql) -> None:
        self.connection = connection
        self._say = say

    async def run(self, sql: str) -> None:
        await _awaited(self.connection.execute(self._say(sql)))

    async def commit(self) -> None:
        await _awaited(self.connection.commit())

    async def rollback(self) -> None:
        await _awaited(self.connection.rollback())


class _AsyncpgCaller(Caller):
    """Its transactions are objects of their own."""

    async def begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()
        await self.begin()

    async def rollback(self) -> None:
        await self._transaction.rollback()
        await self.begin()


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _via(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@asynccontextmanager
async def psycopg_sync(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url) as connection:
        yield Caller(connection)
        connection.rollback()


@asynccontextmanager
async def psycopg_sync_with_dict_rows(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        yield Caller(connection)
        connection.rollback()


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Caller(connection)
        await connection.rollback()


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    caller = _AsyncpgCaller(connection)
    await caller.begin()
    yield caller
    await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
    async with pool, pool.acquire() as connection:
        caller = _AsyncpgCaller(connection)
        await caller.begin()
        yield caller
        await caller._transaction.rollback()


@asynccontextmanager
async def sqlalchemy_connection(url: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(_via(url, "psycopg"))
    with engine.connect() as connection:
        yield Caller(connection, sqlalchemy.text)
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_session(url: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(_via(url, "psycopg"))
    with Session(engine) as session:
        yield Caller(session, sqlalchemy.text)
    engine.dispose()


class SessionOfAnotherPackage(Session):
    """As SQLModel's is."""

    __module__ = "another.package"


@asynccontextmanager
async def sqlalchemy_session_of_another_package(url: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(_via(url, "psycopg"))
    with SessionOfAnotherPackage(engine) as session:
        yield Caller(session, sqlalchemy.text)
    engine.dispose()


def _async_connection(driver: str) -> "Connects":
    @asynccontextmanager
    async def connected(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(_via(url, driver))
        async with engine.connect() as connection:
            yield Caller(connection, sqlalchemy.text)
        await engine.dispose()

    return connected


def _async_session(driver: str) -> "Connects":
    @asynccontextmanager
    async def connected(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(_via(url, driver))
        async with AsyncSession(engine) as session:
            yield Caller(session, sqlalchemy.text)
        await engine.dispose()

    return connected


Connects = Callable[[str], AbstractAsyncContextManager[Caller]]

SYNC: dict[str, Connects] = {
    "psycopg": psycopg_sync,
    "psycopg-dict-rows": psycopg_sync_with_dict_rows,
    "sqlalchemy-connection": sqlalchemy_connection,
    "sqlalchemy-session": sqlalchemy_session,
    "sqlalchemy-session-of-another-package": sqlalchemy_session_of_another_package,
}
ASYNC: dict[str, Connects] = {
    "psycopg-async": psycopg_async,
    "asyncpg": asyncpg_connection,
    "asyncpg-pool": asyncpg_pool,
    "sqlalchemy-async-connection-psycopg": _async_connection("psycopg"),
    "sqlalchemy-async-connection-asyncpg": _async_connection("asyncpg"),
    "sqlalchemy-async-session-psycopg": _async_session("psycopg"),
    "sqlalchemy-async-session-asyncpg": _async_session("asyncpg"),
}
ALL = SYNC | ASYNC
