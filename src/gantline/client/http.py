"""The whole border to the network: a request out, its answer or an event stream in, by httpx2."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from uuid import UUID

import httpx2
import msgspec

from gantline.client.address import Setup

_CONNECT_SECONDS: Final = 5.0
_LARGEST_ANSWER: Final = 64 * 1024 * 1024
_NEVER_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, without the credentials, which only Http has."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    job_id: UUID | None = None
    """The job that the path names, if it names one."""
    timeout_seconds: float
    """For all of it: connecting, sending, and reading the last byte of the answer, again if need
    be."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, read to its end. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unanswered(msgspec.Struct, frozen=True, kw_only=True):
    """No answer, or not all of it."""

    reason: str
    may_have_arrived: bool
    """False where the request cannot have reached the server."""


Parts = AsyncGenerator[bytes, None]
"""The bytes of an event stream as they come in, until it ends or breaks off."""


class Http:
    """The connections to a server. What goes wrong on the way is an answer, not an error."""

    def __init__(self, setup: Setup, transport: httpx2.AsyncBaseTransport | None) -> None:
        self.url = setup.url
        self._client = httpx2.AsyncClient(transport=transport, **setup.arguments)

    async def send(self, request: Request) -> Reply | Unanswered:
        async with self.stream(request, request.timeout_seconds) as answer:
            if isinstance(answer, AsyncGenerator):  # not what was asked for, and without an end
                return Reply(status=200, headers={}, body=b"")
            return answer

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_seconds: float
    ) -> AsyncIterator[Reply | Unanswered | Parts]:
        """Open an event stream, which is dead after so many seconds without a byte."""
        async with AsyncExitStack() as held:
            yield await self._answer(held, request, silence_seconds)

    async def _answer(
        self, held: AsyncExitStack, request: Request, silence_seconds: float
    ) -> Reply | Unanswered | Parts:
        seconds = request.timeout_seconds
        short = min(_CONNECT_SECONDS, seconds)
        opening = self._client.stream(
            request.method,
            self.url + request.path,
            params=request.query or None,
            headers=dict(request.headers),
            content=request.body,
            timeout=httpx2.Timeout(seconds, connect=short, pool=short, read=silence_seconds),
        )
        try:
            async with asyncio.timeout(seconds):
                response = await held.enter_async_context(opening)
                return _parts(response) if _is_event_stream(response) else await _read(response)
        except TimeoutError:
            reason = f"it was not all there after {seconds:.3g} s"
            return Unanswered(reason=reason, may_have_arrived=True)
        except httpx2.HTTPError as error:
            return _unanswered(error)

    async def close(self) -> None:
        await self._client.aclose()


def _is_event_stream(response: httpx2.Response) -> bool:
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status_code == 200 and media_type == "text/event-stream"


async def _parts(response: httpx2.Response) -> Parts:
    try:
        async for part in response.aiter_raw():
            yield part
    except httpx2.HTTPError:
        return


async def _read(response: httpx2.Response) -> Reply | Unanswered:
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > _LARGEST_ANSWER:
            return Unanswered(reason="the answer is far too large", may_have_arrived=True)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(status=response.status_code, headers=headers, body=bytes(body))


def _unanswered(error: httpx2.HTTPError) -> Unanswered:
    """What an error of httpx2 means. Its text is used where it is known to hold no secret."""
    if isinstance(error, _NEVER_SENT):
        why = f" ({error})" if str(error) else " in time"
        where = error.request.url.netloc.decode("ascii")
        return Unanswered(reason=f"{where} cannot be reached{why}", may_have_arrived=False)
    if isinstance(error, httpx2.TimeoutException):
        return Unanswered(reason="it took too long", may_have_arrived=True)
    return Unanswered(
        reason=f"the connection broke ({type(error).__name__})", may_have_arrived=True
    )
