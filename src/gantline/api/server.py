"""Serving the API by uvicorn: patient with jobs, but not with slow clients."""

import asyncio
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gantline.api.headers import host, merged
from gantline.api.streams.watch import notify_stopping
from gantline.contract.errors import GantlineError

_HEAD_SECONDS: Final = 10.0
_MOST_HEAD_BYTES: Final = 64 * 1024
_MOST_PIPELINED: Final = 100
# How long what was written may lie here because the client does not read it.
_READ_SECONDS: Final = 60.0
_KEEP_ALIVE_SECONDS: Final = 15
_DRAIN_SECONDS: Final = 35
# A last resort of the server itself; `ApiSettings.most_at_once` answers with a problem before.
_MOST_CONNECTIONS: Final = 10_000
_NO_NAME_OF_OURS: Final = PlainTextResponse(
    "Host is not a name by which this server may be called; see the setting allowed_hosts.\n", 400
)


class ImpatientProtocol(HttpToolsProtocol):
    """Ends a connection whose client takes what is not its own: time, or memory.

    uvicorn itself waits for ever: for the rest of a head, and for a client to read its answer; so a
    few thousand clients that do a little now and then could take all connections. It also keeps
    whatever is sent as a head, and all requests that are sent before the first is answered. The
    body's time and size are limited by the API.
    """

    _ending: asyncio.TimerHandle | None = None
    _stalling: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._end_unless_in_time()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _MOST_HEAD_BYTES or len(self.pipeline) > _MOST_PIPELINED:
            self.transport.abort()
        elif self._is_answering():
            self._let_be()
        elif self._ending is None:
            self._end_unless_in_time()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        return cycle is not None and not cycle.response_complete

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._end_unless_read()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_read()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._end_unless_read()

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._let_be()
        self._is_read()
        super().connection_lost(error)

    def _end_unless_in_time(self) -> None:
        self._ending = self.loop.call_later(_HEAD_SECONDS, self.transport.abort)

    def _let_be(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _end_unless_read(self) -> None:
        if self._stalling is None:
            self._stalling = self.loop.call_later(_READ_SECONDS, self.transport.abort)

    def _is_read(self) -> None:
        if self._stalling is not None:
            self._stalling.cancel()
            self._stalling = None


class _Server(uvicorn.Server):
    """Leaves signals to the command that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ApiServer:
    """Serve an ASGI application until stopped."""

    def __init__(
        self,
        app: Any,
        *,
        host: str,
        port: int,
        has_lifespan: bool = False,
        names: Collection[str] = (),
    ) -> None:
        """Take the address; raise GantlineError where that cannot be done.

        `names` are those by which it may be called: see `names_for`.
        """
        self._app = app
        self._names = frozenset(names)
        self._socket = _listening(host, port)
        self._server = _Server(
            uvicorn.Config(
                self._serve_one,
                interface="asgi3",
                http=ImpatientProtocol,
                ws="none",
                lifespan="on" if has_lifespan else "off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                # A proxy in front may name the client only if the operator allows it, by
                # FORWARDED_ALLOW_IPS; by default that is this host.
                proxy_headers=True,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_DRAIN_SECONDS,
            )
        )

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def serve(self) -> None:
        """Answer requests; returns when `stop` was called and those under way are answered."""
        await self._server.serve(sockets=[self._socket])

    async def _serve_one(self, scope: Any, receive: Any, send: Any) -> None:
        notify_stopping(scope, lambda: self._server.should_exit)
        if (
            self._names
            and scope["type"] == "http"
            and host(merged(scope["headers"])) not in self._names
        ):
            await _NO_NAME_OF_OURS(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def stop(self) -> None:
        """Take no more requests, and answer those under way."""
        self._server.should_exit = True

    def stop_now(self) -> None:
        self._server.should_exit = self._server.force_exit = True


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
        # asyncio sets it only on sockets that name their protocol; without it every answer but the
        # first of a connection takes 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (OSError, OverflowError) as error:
        raise GantlineError(
            f"The address {host}:{port} cannot be served: {error}.",
            next_step="Name another one with --host and --port, or end what uses it.",
        ) from None
