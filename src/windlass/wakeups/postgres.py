"""Wake-ups through PostgreSQL: LISTEN on one connection, NOTIFY on another.

Never in the transaction that inserts: NOTIFY takes a lock at commit, and all inserts would queue
for it. LISTEN does not work through a pooler that lends a connection per transaction.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Identifier

from windlass.contract.wakeup import Hint, OnHint, PostgresChannel
from windlass.wakeups.remote import Pace, RemoteWakeup

Connection = AsyncConnection[tuple[Any, ...]]

_HINTS: Final = {hint.value.decode(): hint for hint in Hint}


def postgres_wakeup(channel: PostgresChannel, pace: Pace | None = None) -> RemoteWakeup:
    """Reach all who use the same schema. Connects for sending when there is something to send."""
    pace = pace or Pace()
    return RemoteWakeup(
        lambda: PostgresLink(channel, pace),
        what="wake-ups through PostgreSQL",
        pace=pace,
        always_connected=False,
    )


class PostgresLink:
    """One connection that listens, and one that notifies."""

    def __init__(self, channel: PostgresChannel, pace: Pace) -> None:
        self._channel = channel
        self._pace = pace
        self._sending: Connection | None = None

    async def hold(self, heard: OnHint | None, connected: Callable[[], None]) -> None:
        connection = await self._connect()
        try:
            if heard is not None:
                await self._run(connection, SQL("LISTEN {}").format(Identifier(self._channel.name)))
            connected()
            while True:
                async for notice in connection.notifies(timeout=self._pace.heartbeat_seconds):
                    if heard is not None:
                        # From SQL the payload is empty; a later version may say what we don't know.
                        heard(_HINTS.get(notice.payload, Hint.WORK))
                await self._run(connection, SQL("SELECT 1"))
        finally:
            await connection.close()

    async def send(self, hint: Hint, job_id: UUID | None) -> None:
        if self._sending is not None:
            # It may have died long ago without anybody noticing.
            with suppress(psycopg.Error):
                await self._notify(self._sending, hint)
                return
            await self.close()
        self._sending = await self._connect()
        await self._notify(self._sending, hint)

    async def close(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            await sending.close()

    async def _connect(self) -> Connection:
        async with asyncio.timeout(self._pace.answer_seconds):
            return await AsyncConnection.connect(self._channel.conninfo, autocommit=True)

    async def _notify(self, connection: Connection, hint: Hint) -> None:
        name, payload = self._channel.name, hint.value.decode()
        await self._run(connection, SQL("SELECT pg_notify({}, {})").format(name, payload))

    async def _run(self, connection: Connection, statement: SQL | Composed) -> None:
        with _cut_after(self._pace.answer_seconds, connection):
            # Unprepared, so that a pooler in front of the server does no harm.
            await connection.execute(statement, prepare=False)


@contextmanager
def _cut_after(seconds: float, connection: Connection) -> Iterator[None]:
    """Break the connection when time is up.

    A timeout would not do: psycopg meets a cancellation by asking the silent server to cancel.
    """
    cutting = asyncio.get_running_loop().call_later(seconds, _cut, connection)
    try:
        yield
    finally:
        cutting.cancel()


def _cut(connection: Connection) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
