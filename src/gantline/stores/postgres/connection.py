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

# So that a host that is gone is noticed in seconds, not hours. The URL may say otherwise.
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
_SETTINGS: Final = """
SELECT current_setting('default_transaction_isolation') = 'read committed',
       current_setting('synchronous_commit') <> 'off' AND current_setting('fsync')::boolean
"""
# All that DISCARD ALL does but forgetting the plans of our functions, which are nobody's secret.
# Measured per transaction: 0.3 ms; with the plans 0.6 ms; a new connection instead 8 ms.
_RESET: Final = """
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; DEALLOCATE ALL; UNLISTEN *;
DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_advisory_unlock_all()
"""


class Connection(AsyncConnection[Row]):
    """One that a call can leave at once."""

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
        """Wait for the server; when cancelled, ask it to stop too and hang up.

        psycopg would wait for its answer, and a server that stands still gives none for as long as
        it likes. For the same reason a call that is being cancelled does not wait for its rollback.
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
        """Learn how the server treats us; a role or a database may have defaults of its own."""
        cursor = await self.execute(_SETTINGS, prepare=False, binary=True)
        ((self.is_read_committed, self.is_durable),) = await cursor.fetchall()

    async def reset(self) -> None:
        """Undo whatever a handler has left in the session."""
        await self.execute(_RESET, prepare=False)

    async def lend(self) -> "Connection":
        """Give a handler a connection object of its own: what it sets on it, it sets for itself."""
        lent = Connection(self.pgconn)
        lent.number = self.number
        lent.prepare_threshold = self.prepare_threshold
        await _set_up(lent)
        return lent

    def detach(self) -> None:
        """Take the server away from an object that was lent; to its user it is closed."""
        gone = PGconn.connect_start(b"port=none")  # so nobody is asked
        gone.finish()
        self.pgconn = gone


def full_conninfo(location: Location) -> str:
    return make_conninfo(**_DEFAULTS | conninfo_to_dict(location.conninfo))


async def connect(location: Location) -> Connection:
    """Open one connection; it commits by itself unless told otherwise."""
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
    # Whatever the server's default is: our verbs look again at what others have committed.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)


@asynccontextmanager
async def lend(pool: Pool[Connection]) -> AsyncIterator[Connection]:
    """Lend a connection to code that is not ours: like new for each, whatever was done before."""
    async with pool.connection() as connection:
        lent = await connection.lend()
        try:
            yield lent
        finally:
            lent.detach()
            await _reset(connection)


async def _reset(connection: Connection) -> None:
    """Reset the session, or hang up where that does not work: what was done stays done."""
    if not connection.is_reusable:
        return
    try:
        async with asyncio.timeout(_RESET_SECONDS):
            await connection.reset()
    except (psycopg.Error, TimeoutError):
        await connection.close()
