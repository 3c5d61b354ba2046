"""An event stream as an answer: a body that goes on until the stream has ended."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final

from gantline.api.answer import Answer, Header, Send
from gantline.api.body import Receive
from gantline.api.streams.subscription import End, Subscription
from gantline.contract.errors import GantlineError

_log = logging.getLogger("gantline.api")

HEADERS: Final[Sequence[Header]] = (
    (b"content-type", b"text/event-stream"),
    # Whoever is in between must neither keep nor pack nor hold back what is sent.
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)
# Where the answer is never sent, what it holds is let go after this time.
_SENT_WITHIN_SECONDS: Final = 60.0


class EventStream(Answer):
    """Send texts until there are no more, the client is gone, or takes nothing any more."""

    __slots__ = ("_close", "_closing", "_stall_seconds", "_subscription", "_texts")

    def __init__(
        self,
        texts: AsyncGenerator[bytes, None],
        subscription: Subscription,
        *,
        close: Callable[[], None],
        stall_seconds: float,
    ) -> None:
        super().__init__(200, headers=HEADERS)
        self._texts = texts
        self._subscription = subscription
        self._close = close
        self._stall_seconds = stall_seconds
        self._closing = asyncio.get_running_loop().call_later(_SENT_WITHIN_SECONDS, close)

    async def send(
        self, send: Send, receive: Receive, *, correlation_id: str, with_body: bool = True
    ) -> None:
        self._closing.cancel()
        try:
            headers = self.all_headers(correlation_id)
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            if with_body:
                await self._send_texts(send, receive)
            async with asyncio.timeout(self._stall_seconds):
                await send({"type": "http.response.body", "body": b""})
        except (TimeoutError, OSError):
            _log.info("an event stream was dropped: its client takes nothing")
        finally:
            self._close()

    async def _send_texts(self, send: Send, receive: Receive) -> None:
        leaving = asyncio.create_task(self._until_gone(receive))
        try:
            async with aclosing(self._texts) as texts:
                async for text in texts:
                    async with asyncio.timeout(self._stall_seconds):
                        message = {"type": "http.response.body", "body": text, "more_body": True}
                        await send(message)
        except GantlineError as error:
            _log.warning("an event stream has ended, for its client to come back: %s", error)
        finally:
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._subscription.drop(End.CLIENT_GONE)
