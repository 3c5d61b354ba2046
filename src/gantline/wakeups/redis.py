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
from gantline.wakeups.remote import Pace, RemoteWakeup

_HINTS: Final = {hint.value: hint for hint in Hint}
_PRIMARY: Final = b"master"
_MESSAGE: Final = b"message"


def redis_wakeup(channel: RedisChannel, pace: Pace | None = None) -> RemoteWakeup:
    """Reach all who use the same prefix. Connects for sending when there is something to send."""
    pace = pace or Pace()
    return RemoteWakeup(
        lambda: RedisLink(channel, pace),
        what="wake-ups through Redis",
        pace=pace,
        always_connected=False,
        is_told=channel.bell.has_rung_for,
    )


class RedisLink:
    """One connection that listens, and one that publishes."""

    def __init__(self, channel: RedisChannel, pace: Pace) -> None:
        self._channel = channel
        self._pace = pace
        self._sending: _Connection | None = None

    async def hold(self, heard: OnHint | None, connected: Callable[[], None]) -> None:
        connection = await self._connect()
        try:
            if heard is not None:
                await connection.ask("SUBSCRIBE", self._channel.name)
            connected()
            while True:
                await self._listen(connection, heard)
        finally:
            await connection.close()

    async def _listen(self, connection: "_Connection", heard: OnHint | None) -> None:
        """Pass on what comes; ask a server that says nothing whether it is still there."""
        message = await connection.read(self._pace.heartbeat_seconds)
        if message is None:
            message = await connection.ask("PING")
        if heard is not None and message[0] == _MESSAGE:
            # A later version may say what we don't know.
            heard(_HINTS.get(message[2], Hint.WORK))

    async def send(self, hint: Hint, job_id: UUID | None) -> None:
        if self._sending is not None:
            # It may have died long ago without anybody noticing.
            with suppress(RedisError, OSError):
                await self._sending.ask("PUBLISH", self._channel.name, hint.value)
                return
            await self.close()
        self._sending = await self._connect()
        await self._sending.ask("PUBLISH", self._channel.name, hint.value)

    async def close(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            await sending.close()

    async def _connect(self) -> "_Connection":
        """To the first server that may be used. What a replica is told, its primary never hears."""
        failed: Exception = ConnectionError("no server is a primary")
        for url in self._channel.urls:
            connection = _Connection(url, self._pace.answer_seconds)
            try:
                await connection.open()
                if self._channel.any_server or (await connection.ask("ROLE"))[0] == _PRIMARY:
                    return connection
            except (RedisError, OSError) as error:
                failed = error
            except BaseException:
                await connection.close()
                raise
            await connection.close()
        raise failed


class _Connection:
    """One that waits for no answer longer than it may take, and is left at once."""

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
        """What comes next; None where nothing comes."""
        return await self._driver.read_response(timeout=seconds)

    async def ask(self, *command: str | bytes) -> Any:
        await self._driver.send_command(*command)
        answer = await self.read(self._answer_seconds)
        if answer is None:
            await self.close()
            raise ConnectionError("the server does not answer")
        return answer

    async def close(self) -> None:
        if self._transport is not None:
            # Not in order: TLS would say good-bye and wait for the answer.
            self._transport.abort()
        await self._driver.disconnect(nowait=True)
