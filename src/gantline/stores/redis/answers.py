"""Answers: reads what the server says, in place of the driver's streams."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError, InvalidResponse

_NOT_ENOUGH: Final = object()
_CLOSED: Final = "the server has closed the connection"


class Answers(asyncio.Protocol):
    """Gives the answers to one batch of commands at a time, in order."""

    def __init__(self, error_of: Callable[[str], Exception]) -> None:
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=error_of, notEnoughData=_NOT_ENOUGH
        )
        self._read: list[Any] = []
        self._wanted = 0
        self._waiter: asyncio.Future[list[Any]] | None = None
        self.is_lost = False

    def expect(self, count: int) -> asyncio.Future[list[Any]]:
        """Errors of the server are among the answers; a lost connection is raised."""
        if self.is_lost:
            raise ConnectionError(_CLOSED)
        self._waiter = asyncio.get_running_loop().create_future()
        self._wanted, self._read = count, []
        return self._waiter

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets(False)) is not _NOT_ENOUGH:
                self._read.append(answer)
        except InvalidResponse as error:
            self._lose(error)
        else:
            waiter = self._waiter
            if waiter is not None and len(self._read) == self._wanted and not waiter.done():
                waiter.set_result(self._read)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(ConnectionError(str(error or _CLOSED)))

    def _lose(self, error: Exception) -> None:
        self.is_lost = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
