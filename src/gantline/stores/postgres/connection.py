"""Connections: how one is opened, waited on, reset and closed; and the pool of an event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg import AsyncConnection, IsolationLevel, waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PGconn, TransactionStatus

from gantline.stores.pool import Pool, is_being_cancelled
from gantline.stores.postgres import arrays
from gantline.stores.postgres.location import Location

Row = tuple[Any, ...]
RV = TypeVar("RV")

# So that a lost host is noticed in seconds, not hours. The URL may override these.
_DEFAULTS: Final[dict[str, Any]] = {
    "application_name": "gantline",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_PREPARE_AFTER: Final = 2
_RESET_SECONDS: Final = 5.0
_CANCEL_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.1  # as psycopg has it
# The server, too, notices a lost host in seconds: until then it keeps the locks of a transaction.
_KEEPALIVES: Final = """set_config('tcp_keepalives_idle', '10', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false),
       set_config('tcp_user_timeout', '20000', false)"""
_SETTINGS: Final = f"""
SELECT current_setting('default_transaction_isolation') = 'read committed',
       current_setting('synchronous_commit') <> 'off' AND current_setting('fsync')::boolean,
       {_KEEPALIVES}
"""
# All of DISCARD ALL except DISCARD PLANS: the plans of our functions can be kept.
# Measured per transaction: 0.3 ms; with the plans 0.6 ms; a new connection instead 8 ms.
_RESET: Final = f"""
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; DEALLOCATE ALL; UNLISTEN *;
DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_advisory_unlock_all();
SELECT {_KEEPALIVES}
"""


class Connection(AsyncConnection[Row]):
    """A connection that a cancelled call can leave at once."""

    number = 0
    """Which of the store's connections it is, in the order in which they were opened."""
    is_read_committed = True
    """Whether a statement by itself is READ COMMITTED, as our verbs need it."""
    is_durable = True
    """Whether what is committed on it survives a crash of the server."""

    @property
    def is_reusable(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    def abandon(self) -> None:
        """Close it where its event loop has ended."""
        self.pgconn.finish()

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = _POLL_SECONDS,
        timeout: float | None = None,  # noqa: ASYNC109  # psycopg's own
    ) -> RV:
        """Wait for the server; when cancelled, cancel the statement and close the connection.

        psycopg would wait for the response, which a server that hangs does not send. For the same
        reason a call that is being cancelled does not wait for its rollback.
        """
        if is_being_cancelled():
            return await self._wait_briefly(gen, interval)
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval, timeout)
        except asyncio.CancelledError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                with suppress(psycopg.Error):
                    await self.cancel_safe(timeout=_CANCEL_SECONDS)
                self.pgconn.finish()
            raise

    async def _wait_briefly(self, gen: PQGen[RV], interval: float) -> RV:
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                return await waiting.wait_async(gen, self.pgconn.socket, interval)
        except TimeoutError:
            self.pgconn.finish()
            raise asyncio.CancelledError from None

    async def read_settings(self) -> None:
        """Read the settings of the session; a role or a database may have its own defaults."""
        cursor = await self.execute(_SETTINGS, prepare=False, binary=True)
        ((self.is_read_committed, self.is_durable, *_),) = await cursor.fetchall()

    async def reset(self) -> None:
        """Undo all that a handler has changed in the session."""
        await self.execute(_RESET, prepare=False)

    async def lend(self) -> "Connection":
        """Make a connection object for a handler: what it sets there does not affect ours."""
        lent = Connection(self.pgconn)
        lent.number = self.number
        lent.prepare_threshold = self.prepare_threshold
        await _set_up(lent)
        return lent

    def detach(self) -> None:
        """Detach a lent object from the server; for its user it is closed."""
        gone = PGconn.connect_start(b"port=none")  # connects to nothing
        gone.finish()
        self.pgconn = gone


def full_conninfo(location: Location) -> str:
    return make_conninfo(**_DEFAULTS | conninfo_to_dict(location.conninfo))


async def connect(location: Location) -> Connection:
    """Open one connection, in autocommit mode."""
    connection = await Connection.connect(
        full_conninfo(location),
        autocommit=True,
        prepare_threshold=_PREPARE_AFTER if location.prepare else None,
    )
    try:
        await _set_up(connection)
        await connection.read_settings()
    except BaseException:
        await connection.close()
        raise
    return connection


async def _set_up(connection: Connection) -> None:
    arrays.register(connection.adapters)
    # Whatever the server's default is: our verbs must see what others commit meanwhile.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)


@asynccontextmanager
async def lend(pool: Pool[Connection]) -> AsyncIterator[Connection]:
    """Lend a connection to code that is not ours; each gets it as if it were new."""
    async with pool.connection() as connection:
        lent = await connection.lend()
        try:
            yield lent
        finally:
            lent.detach()
            await _reset(connection)


async def _reset(connection: Connection) -> None:
    """Reset the session, or close it where that fails. What was committed stays."""
    if not connection.is_reusable:
        return
    try:
        async with asyncio.timeout(_RESET_SECONDS):
            await connection.reset()
    except (psycopg.Error, TimeoutError):
        await connection.close()
