"""Wake-ups through PostgreSQL: LISTEN on one connection, NOTIFY on another.

Never in the transaction that inserts: NOTIFY takes a lock at commit, and all inserts would queue
for it. LISTEN does not work through a pooler that assigns a connection per transaction.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, waiting
from psycopg.abc import PQGen
from psycopg.sql import SQL, Composed, Identifier

from gantline.contract.wakeup import Hint, OnHint, PostgresChannel
from gantline.wakeups.remote import RemoteWakeup, WakeupPace

_HINTS: Final = {hint.value.decode(): hint for hint in Hint}
_LOOK_SECONDS: Final = 0.1  # as psycopg has it

RV = TypeVar("RV")


class _Connection(AsyncConnection[tuple[Any, ...]]):
    """A connection that closes at once when cancelled: nothing sent on it needs an orderly end."""

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = _LOOK_SECONDS,
        timeout: float | None = None,  # noqa: ASYNC109  # psycopg's own
    ) -> RV:
        """Wait for the server; when cancelled, close the connection.

        psycopg would ask the server to stop and wait for its response. A frozen server sends none,
        and an error that comes instead would hide the cancellation.
        """
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval, timeout)
        except asyncio.CancelledError:
            self.pgconn.finish()
            raise


def postgres_wakeup(channel: PostgresChannel, pace: WakeupPace | None = None) -> RemoteWakeup:
    """Notify all who use the same schema. Connects for sending when there is something to send."""
    pace = pace or WakeupPace()
    return RemoteWakeup(
        lambda: PostgresLink(channel, pace),
        what="wake-ups through PostgreSQL",
        pace=pace,
        always_connected=False,
    )


class PostgresLink:
    """One connection that listens, and one that notifies."""

    def __init__(self, channel: PostgresChannel, pace: WakeupPace) -> None:
        self._channel = channel
        self._pace = pace
        self._sending: _Connection | None = None

    async def hold(self, on_hint: OnHint | None, connected: Callable[[], None]) -> None:
        connection = await self._connect()
        try:
            if on_hint is not None:
                await self._run(connection, SQL("LISTEN {}").format(Identifier(self._channel.name)))
            connected()
            while True:
                async for notice in connection.notifies(timeout=self._pace.heartbeat_seconds):
                    if on_hint is not None:
                        # From SQL the payload is empty; a later version may send an unknown one.
                        on_hint(_HINTS.get(notice.payload, Hint.WORK))
                await self._run(connection, SQL("SELECT 1"))
        finally:
            await connection.close()

    async def send(self, hint: Hint, job_id: UUID | None) -> None:
        if self._sending is not None:
            # It may have been lost long ago, unnoticed.
            with suppress(psycopg.Error, TimeoutError):
                await self._notify(self._sending, hint)
                return
            await self.close()
        self._sending = await self._connect()
        await self._notify(self._sending, hint)

    async def close(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            await sending.close()

    async def _connect(self) -> _Connection:
        async with asyncio.timeout(self._pace.answer_seconds):
            return await _Connection.connect(self._channel.conninfo, autocommit=True)

    async def _notify(self, connection: _Connection, hint: Hint) -> None:
        name, payload = self._channel.name, hint.value.decode()
        await self._run(connection, SQL("SELECT pg_notify({}, {})").format(name, payload))

    async def _run(self, connection: _Connection, statement: SQL | Composed) -> None:
        async with asyncio.timeout(self._pace.answer_seconds):
            # Unprepared, so that a pooler in front of the server does no harm.
            await connection.execute(statement, prepare=False)
