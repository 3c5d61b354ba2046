"""The health server: what it answers, and that no client can keep it from answering others."""

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gantline import GantlineError, InvalidInput
from gantline.telemetry.health_server import (
    AsgiApp,
    HealthServer,
    ListenAddress,
    Response,
    Routes,
    ServerLimits,
    parse_address,
)

LOCAL = ListenAddress("127.0.0.1", 0)
_PATIENCE_SECONDS = 30


async def hello() -> Response:
    return Response.of(200, {"hello": "world"})


async def broken() -> Response:
    raise RuntimeError("secret")


PAGES = Routes({"/hello": hello, "/broken": broken})


@contextmanager
def serving(
    app: AsgiApp = PAGES, address: ListenAddress = LOCAL, limits: ServerLimits | None = None
) -> Iterator[HealthServer]:
    server = HealthServer(address, app, limits=limits or ServerLimits())
    server.start()
    try:
        yield server
    finally:
        server.stop()


def connect(server: HealthServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.address.port), _PATIENCE_SECONDS)


def said(connection: socket.socket) -> bytes:
    """All that comes until the other side hangs up."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def until(reached: Callable[[], bool]) -> None:
    end, never = time.monotonic() + _PATIENCE_SECONDS, threading.Event()
    while not reached():
        assert time.monotonic() < end
        never.wait(0.005)


def get(server: HealthServer, path: str, method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.address.port, timeout=_PATIENCE_SECONDS
    )
    connection.request(method, path, headers={"X-Odd": "\xe9"})
    return connection.getresponse()


def test_a_page_is_served_to_an_ordinary_client() -> None:
    with serving() as server:
        with get(server, "/hello?probe=1") as answer:
            assert (answer.status, answer.read()) == (200, b'{"hello":"world"}\n')
            assert answer.headers["Connection"] == "close"
        with get(server, "/hello", "HEAD") as answer:
            assert (answer.status, answer.read()) == (200, b"")
            assert answer.headers["Content-Length"] == "18"
        with get(server, "/nope") as answer:
            assert answer.status == 404


@pytest.mark.parametrize(
    "request_",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /hello\r\n\r\n",
        b"GET  /hello HTTP/1.1\r\n\r\n",
        b"GET /hello HTTP/2\r\n\r\n",
        b"GET /h\xe9llo HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    ],
    ids=["nothing", "a word", "no version", "two spaces", "HTTP/2", "no ASCII", "TLS", "too long"],
)
def test_what_is_no_request_is_refused(request_: bytes) -> None:
    with serving() as server, connect(server) as connection:
        connection.sendall(request_)
        assert said(connection).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_client_that_says_nothing_is_hung_up_on() -> None:
    limits = ServerLimits(read_seconds=0.05)
    with serving(limits=limits) as server, connect(server) as connection:
        connection.sendall(b"GET /hello HT")
        assert said(connection) == b""


def test_a_client_that_takes_nothing_is_hung_up_on() -> None:
    async def large() -> Response:
        return Response(200, b"x" * 50_000_000)

    limits = ServerLimits(response_seconds=0.2)
    pages = Routes({"/large": large})
    with serving(pages, limits=limits) as server, connect(server) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        until(lambda: server.open_connections == 1)
        until(lambda: server.open_connections == 0)


def test_slow_clients_do_not_keep_others_waiting() -> None:
    with serving() as server:
        slow = [connect(server) for _ in range(20)]
        for connection in slow:
            connection.sendall(b"GET ")
        with get(server, "/hello") as answer:
            assert answer.status == 200
        for connection in slow:
            connection.close()


def test_more_clients_than_allowed_are_turned_away() -> None:
    with serving(limits=ServerLimits(connections=1)) as server, connect(server) as first:
        first.sendall(b"GET ")
        while not server.open_connections:
            pass
        with connect(server) as second:
            second.sendall(b"GET /hello HTTP/1.1\r\n\r\n")
            assert said(second) == b""
        first.sendall(b"/hello HTTP/1.1\r\n\r\n")
        assert said(first).startswith(b"HTTP/1.1 200")


def test_a_page_that_breaks_tells_nothing_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving() as server:
        with connect(server) as connection:
            connection.sendall(b"GET /broken HTTP/1.1\r\n\r\n")
            assert b"secret" not in said(connection)
        with get(server, "/hello") as answer:
            assert answer.status == 200
    assert "a health page failed" in caplog.text


def test_it_answers_while_another_loop_is_blocked() -> None:
    may_go = threading.Event()

    async def block() -> None:
        with serving() as server:

            def probe() -> None:
                with get(server, "/hello") as answer:
                    assert answer.status == 200
                may_go.set()

            asked = threading.Thread(target=probe)
            asked.start()
            assert may_go.wait(_PATIENCE_SECONDS)  # this very loop stands still meanwhile
            asked.join()

    asyncio.run(block())


def test_a_port_that_is_taken_is_told() -> None:
    with serving() as server, pytest.raises(GantlineError, match=r"cannot be opened.*--health"):
        HealthServer(ListenAddress("127.0.0.1", server.address.port), PAGES).start()


def test_a_local_socket_is_served_and_taken_over(tmp_path: Path) -> None:
    place = ListenAddress(path=tmp_path / "s")
    with serving(address=place):
        pass
    with serving(address=place), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "s"))
        connection.sendall(b"GET /hello HTTP/1.1\r\n\r\n")
        assert b'{"hello":"world"}' in said(connection)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8081", ListenAddress(None, 8081)),
        ("127.0.0.1:8081", ListenAddress("127.0.0.1", 8081)),
        ("localhost:0", ListenAddress("localhost", 0)),
        ("[::1]:8081", ListenAddress("::1", 8081)),
        ("unix:/run/health", ListenAddress(path=Path("/run/health"))),
    ],
)
def test_an_address_is_read_and_written(text: str, address: ListenAddress) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["8081", "host", "::1:8081", ":x", ":-1", ":70000", "", ":", ":\N{SUPERSCRIPT TWO}"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="8081"):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"Host: 127.0.0.1:8081\r\n", b"200"),
        (b"host: LOCALHOST\r\n", b"200"),
        (b"Host: [::1]:8081\r\n", b"200"),
        (b"", b"200"),
        (b"Host: evil.example\r\n", b"400"),
        (b"Host: localhost\r\nHost: evil.example\r\n", b"400"),
    ],
)
def test_who_listens_to_this_host_alone_is_called_by_its_names(host: bytes, status: bytes) -> None:
    """A page whose own name leads here would have a browser read it."""
    with serving() as server, connect(server) as connection:
        connection.sendall(b"GET /hello HTTP/1.1\r\n" + host + b"\r\n")
        assert said(connection).split()[1] == status


def test_who_listens_to_all_is_called_by_any_name() -> None:
    everywhere = ListenAddress("0.0.0.0", 0)  # noqa: S104  # as a container has it
    with serving(address=everywhere) as server, connect(server) as connection:
        connection.sendall(b"GET /hello HTTP/1.1\r\nHost: pod.cluster\r\n\r\n")
        assert said(connection).split()[1] == b"200"
