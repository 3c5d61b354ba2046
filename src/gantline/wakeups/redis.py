"""Wake-ups through Redis: SUBSCRIBE on one connection, PUBLISH on another.

In a cluster any server will do: each passes on what is published to all the others.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.exceptions import RedisError

from gantline.contract.wakeup import Hint, OnHint, RedisChannel
from gantline.wakeups.remote import RemoteWakeup, WakeupPace

_HINTS: Final = {hint.value: hint for hint in Hint}
_PRIMARY: Final = b"master"
_MESSAGE: Final = b"message"


def redis_wakeup(channel: RedisChannel, pace: WakeupPace | None = None) -> RemoteWakeup:
    """Notify all who use the same prefix. Connects for sending when there is something to send."""
    pace = pace or WakeupPace()
    return RemoteWakeup(
        lambda: RedisLink(channel, pace),
        what="wake-ups through Redis",
        pace=pace,
        always_connected=False,
        is_announced=channel.early_hints.were_sent_for,
    )


class RedisLink:
    """One connection that listens, and one that publishes."""

    def __init__(self, channel: RedisChannel, pace: WakeupPace) -> None:
        self._channel = channel
        self._pace = pace
        self._sending: _Connection | None = None

    async def hold(self, on_hint: OnHint | None, connected: Callable[[], None]) -> None:
        connection = await self._connect()
        try:
            if on_hint is not None:
                await connection.call("SUBSCRIBE", self._channel.name)
            connected()
            while True:
                await self._listen(connection, on_hint)
        finally:
            await connection.close()

    async def _listen(self, connection: "_Connection", on_hint: OnHint | None) -> None:
        """Pass on what comes; ping a silent server."""
        message = await connection.read(self._pace.heartbeat_seconds)
        if message is None:
            message = await connection.call("PING")
        if on_hint is not None and message[0] == _MESSAGE:
            # A later version may send an unknown one.
            on_hint(_HINTS.get(message[2], Hint.WORK))

    async def send(self, hint: Hint, job_id: UUID | None) -> None:
        if self._sending is not None:
            # It may have been lost long ago, unnoticed.
            with suppress(RedisError, OSError):
                await self._sending.call("PUBLISH", self._channel.name, hint.value)
                return
            await self.close()
        self._sending = await self._connect()
        await self._sending.call("PUBLISH", self._channel.name, hint.value)

    async def close(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            await sending.close()

    async def _connect(self) -> "_Connection":
        """Connect to the first usable server. A replica does not pass hints on to its primary."""
        failed: Exception = ConnectionError("no server is a primary")
        for url in self._channel.urls:
            connection = _Connection(url, self._pace.answer_seconds)
            try:
                await connection.open()
                if self._channel.any_server or (await connection.call("ROLE"))[0] == _PRIMARY:
                    return connection
            except (RedisError, OSError) as error:
                failed = error
            except BaseException:
                await connection.close()
                raise
            await connection.close()
        raise failed


class _Connection:
    """A connection that waits `answer_seconds` at most for a reply, and closes at once."""

    def __init__(self, url: str, answer_seconds: float) -> None:
        options: dict[str, Any] = dict(parse_url(url))
        kind = options.pop("connection_class", Connection)
        options |= {"protocol": 2, "socket_timeout": None, "client_name": "gantline-wakeup"}
        self._driver: AbstractConnection = kind(**options, socket_connect_timeout=answer_seconds)
        self._answer_seconds = answer_seconds
        self._transport: asyncio.WriteTransport | None = None

    async def open(self) -> None:
        async with asyncio.timeout(self._answer_seconds):
            await self._driver.connect()  # type: ignore[no-untyped-call]  # the driver's
        if self._driver._writer is not None:
            self._transport = self._driver._writer.transport

    async def read(self, seconds: float) -> Any:
        """Read what comes next; None where nothing comes in time."""
        return await self._driver.read_response(timeout=seconds)

    async def call(self, *command: str | bytes) -> Any:
        await self._driver.send_command(*command)
        reply = await self.read(self._answer_seconds)
        if reply is None:
            await self.close()
            raise ConnectionError("the server does not answer")
        return reply

    async def close(self) -> None:
        if self._transport is not None:
            # Not an orderly end: TLS would wait for the other side.
            self._transport.abort()
        await self._driver.disconnect(nowait=True)
