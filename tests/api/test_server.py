"""Over a real server: what only a connection can show."""

import asyncio
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gantline.api import ApiSettings
from gantline.api.server import ApiServer, ImpatientProtocol, Peers
from tests.api.application import AuditKept, ByName, make_jobs
from tests.api.serving import served
from tests.api.test_submit import DOCUMENT

ALICE = {"authorization": "Bearer alice"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    jobs = make_jobs("memory://")
    with served(jobs.api(authenticator=ByName(), audit=AuditKept())) as url:
        yield url


def connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(10)
    return connection


def test_many_requests_share_a_connection(url: str) -> None:
    with httpx2.Client(base_url=url, headers=ALICE) as client:
        for number in range(20):
            body = {**DOCUMENT, "payload": {"documentId": str(number)}}
            accepted = client.post("/api/jobs", json=body)
            assert accepted.status_code == 202
            status = client.get(accepted.headers["location"])
            assert status.json()["jobId"] == accepted.json()["jobId"]
            known = client.get(
                accepted.headers["location"], headers={"if-none-match": status.headers["etag"]}
            )
            assert (known.status_code, known.content) == (304, b"")


def test_no_answer_waits_for_the_client_to_confirm_the_one_before() -> None:
    """Else each but the first of a connection takes 40 ms."""
    server = ApiServer(None, host="127.0.0.1", port=0)
    with server._socket as listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_server_does_not_tell_what_it_is(url: str) -> None:
    assert "server" not in httpx2.get(f"{url}/api/jobs").headers


def test_a_client_that_does_not_end_its_head_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gantline.api.server._HEAD_SECONDS", 0.2)
    with served(make_jobs("memory://").api(authenticator=ByName())) as url:
        for first in (b"", b"GET /api/jobs HTTP/1.1\r\nHost: a\r\nX-Slow: "):
            with connected(url) as connection:
                connection.sendall(first)
                assert _ended(connection)
        with connected(url) as connection:
            # A whole request first: the second must not be slower for it.
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost")
            assert _ended(connection)


def _ended(connection: socket.socket) -> bool:
    _read_to_the_end(connection)
    return True


def _read_to_the_end(connection: socket.socket) -> bytes:
    read = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            read += part
    return read


@pytest.mark.parametrize(
    "before",
    [
        b"GET /api/jobs HTTP/1.1\r\nX-Large: ",
        b"GET /api/jobs?a=",
        b"GET /api/events HTTP/1.1\r\nAuthorization: Bearer alice\r\n\r\n"
        b"GET / HTTP/1.1\r\nX-Large: ",
        b"POST /api/jobs HTTP/1.1\r\nAuthorization: Bearer alice\r\n"
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\n{\r\n0\r\nX-Trailing: ",
    ],
    ids=["header", "url", "behind a stream", "trailer"],
)
def test_a_head_without_end_ends_the_connection(url: str, before: bytes) -> None:
    with connected(url) as connection:
        connection.sendall(before)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(b"a" * 25_000_000)


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"
MOST = 64 * 1024
LARGE_HEADS = {
    "one header": HEALTH + b"X-Large: " + MOST * b"a" + b"\r\n\r\n",
    "many headers": HEALTH + (MOST // 6) * b"a: b\r\n" + 4000 * b"c:\r\n" + b"\r\n",
    "headers without values": HEALTH + (MOST // 4) * b"a:\r\n" + b"\r\n",
    "url": b"GET /healthz?a=" + MOST * b"a" + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "with a body": b"POST /api/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
    + b"X-Large: "
    + MOST * b"a"
    + b"\r\n\r\n{}",
}


@pytest.mark.parametrize("parts", [1, 2, 50])
@pytest.mark.parametrize("head", LARGE_HEADS.values(), ids=LARGE_HEADS)
def test_a_head_over_the_limit_is_431_however_it_is_sent(url: str, head: bytes, parts: int) -> None:
    with connected(url) as connection:
        size = -(-len(head) // parts)
        with suppress(ConnectionResetError, BrokenPipeError):
            for start in range(0, len(head), size):
                connection.sendall(head[start : start + size])
        answer = _read_to_the_end(connection)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert b"connection: close" in answer.lower()
        assert answer.count(b"HTTP/1.1 ") == 1


def test_a_head_just_under_the_limit_is_read(url: str) -> None:
    head = HEALTH + b"X-Large: " + (MOST - 200) * b"a" + b"\r\n\r\n"
    with connected(url) as connection:
        for _ in range(3):
            connection.sendall(head)
            answer = b""
            while not answer.endswith(b"}\n"):
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("head", LARGE_HEADS.values(), ids=LARGE_HEADS)
def test_requests_before_a_head_over_the_limit_are_answered_and_none_after_it(
    url: str, head: bytes
) -> None:
    with connected(url) as connection:
        connection.sendall(3 * (HEALTH + b"\r\n") + head + 3 * (HEALTH + b"\r\n"))
        answers = _read_to_the_end(connection)
    statuses = re.findall(rb"HTTP/1\.1 (\d+)", answers)
    assert statuses == [b"200", b"200", b"200", b"431"]


def test_requests_are_answered_in_order_but_not_piled_up(url: str) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    with connected(url) as connection:
        connection.sendall(50 * request)
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 50:
            answers += connection.recv(65536)
    with connected(url) as connection:
        connection.sendall(5000 * request)
        assert _read_to_the_end(connection).count(b"HTTP/1.1 200") < 5000


def test_an_answer_that_is_not_read_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = threading.Event()

    class Telling(ImpatientProtocol):
        def connection_lost(self, error: Exception | None) -> None:
            super().connection_lost(error)
            lost.set()

    monkeypatch.setattr("gantline.api.server.ImpatientProtocol", Telling)
    monkeypatch.setattr("gantline.api.server._READ_SECONDS", 0.2)
    with served(make_jobs("memory://").api(authenticator=ByName())) as url, connected(url) as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.sendall(100 * b"GET /api/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n")
        assert lost.wait(20)


def test_a_body_in_chunks_is_bounded(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(
            b"POST /api/jobs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer alice\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        answer = b""
        try:
            for _ in range(40):
                connection.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"application/problem+json" in answer


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/jobs HTTP/1.1\r\nHost: a\r\nX-Correlation-Id: a\rb\r\n\r\n",
        b"GET /api/jobs HTTP/1.1\r\nHost: a\r\nX-Correlation-Id: a\x00b\r\n\r\n",
        b"GET /api/jobs%0d%0aSet-Cookie:a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"NONSENSE\r\n\r\n",
    ],
)
def test_a_head_that_is_none_is_4xx_and_injects_nothing(url: str, head: bytes) -> None:
    with connected(url) as connection:
        connection.sendall(head)
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 4")
        assert b"set-cookie" not in answer.partition(b"\r\n\r\n")[0].lower()


async def test_a_client_that_hangs_up_while_it_waits_harms_nobody(url: str) -> None:
    async with httpx2.AsyncClient(base_url=url, headers=ALICE) as client:
        body = {"jobType": "sweep"}
        with pytest.raises(httpx2.TimeoutException):
            await client.post("/api/jobs", json=body, headers={"prefer": "wait=30"}, timeout=0.3)
        assert (await client.get("/api/jobs")).status_code == 200
    await asyncio.sleep(0)


def test_what_is_no_http_is_refused_and_fills_no_log(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who is not known could else fill a disk, a line for each connection."""
    for sent in (b"\x16\x03\x01", b"GET /healthz HTTP/1.1\r\nHost: a\r\nA b: c\r\n\r\n"):
        with connected(url) as connection:
            connection.sendall(sent)
            assert connection.recv(65536).startswith(b"HTTP/1.1 400")
    assert not [one for one in caplog.records if one.name.startswith("uvicorn")]


# -- peers ----------------------------------------------------------------------------------------


def test_one_peer_leaves_connections_to_others() -> None:
    peers = Peers(5)
    assert [peers.connect("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert peers.connect("10.0.0.2")
    for peer in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"):
        peers.disconnect(peer)
    assert peers._connections == {}


def test_all_peers_together_have_no_more_connections_than_there_are() -> None:
    peers = Peers(4)
    assert [peers.connect(f"10.0.0.{number}") for number in range(5)] == [True] * 4 + [False]
    for number in range(5):
        peers.disconnect(f"10.0.0.{number}")
    assert peers.connect("10.0.0.5")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_server_opens_as_many_files_as_it_may_and_leaves_some_to_its_store() -> None:
    """By its soft limit, often 1024, a thousand idle connections of one client were an outage."""
    code = """if True:
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
        from gantline.api.server import most_connections
        print(most_connections(), *resource.getrlimit(resource.RLIMIT_NOFILE))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["172", "300", "300"]


def test_idle_connections_of_one_peer_keep_nobody_else_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gantline.api.server.most_connections", lambda: 20)
    with (
        served(make_jobs("memory://").api(authenticator=ByName())) as url,
        ExitStack() as held,
    ):
        address = (urlsplit(url).hostname, urlsplit(url).port)
        for _ in range(30):
            held.enter_context(socket.create_connection(address, source_address=("127.0.0.2", 0)))
        assert httpx2.get(f"{url}/api/jobs", headers=ALICE).status_code == 200


def test_a_connection_too_many_of_a_peer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantline.api.server.most_connections", lambda: 2)
    with (
        served(make_jobs("memory://").api(authenticator=ByName())) as url,
        httpx2.Client(base_url=url, headers=ALICE) as first,
    ):
        assert first.get("/api/jobs").status_code == 200
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{url}/api/jobs", headers=ALICE)
        assert first.get("/api/jobs").status_code == 200


def test_refusals_of_one_peer_come_so_often_however_many_it_asks_for() -> None:
    peers = Peers(1)
    held = [peers.hold_seconds("10.0.0.1", 0.0) for _ in range(1000)]
    assert held[:20] == [0.0] * 20, "who errs now and then does not notice"
    assert held[520] == pytest.approx(5.0)
    assert held[-1] < 10.0
    assert peers.hold_seconds("10.0.0.2", 0.0) == 0.0
    assert peers.hold_seconds("10.0.0.1", 60.0) == 0.0


def test_peers_that_were_refused_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantline.api.server._MOST_PEERS", 10)
    peers = Peers(1)
    for number in range(100):
        peers.hold_seconds(str(number), float(number))
    assert len(peers._next_at) <= 10


def test_a_refusal_that_is_held_holds_up_nothing_but_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gantline.api.server._REFUSALS_AT_ONCE", 0)
    monkeypatch.setattr("gantline.api.server._REFUSALS_PER_SECOND", 0.1)
    with served(make_jobs("memory://").api(authenticator=ByName())) as url:
        assert httpx2.get(f"{url}/api/jobs").status_code == 401
        with connected(url) as held:
            held.sendall(b"GET /api/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
            assert httpx2.get(f"{url}/api/jobs", headers=ALICE).status_code == 200
            held.settimeout(0.2)
            with pytest.raises(TimeoutError):
                held.recv(1)
        # The server stops at once, since nobody waits for that answer any more.


def test_a_body_that_is_given_up_ends_its_connection() -> None:
    settings = ApiSettings(body_stall_seconds=0.05)
    with (
        served(make_jobs("memory://").api(authenticator=ByName(), settings=settings)) as url,
        connected(url) as slow,
    ):
        slow.sendall(
            b"POST /api/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        answer = b""
        while part := slow.recv(4096):
            answer += part
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer


# -- what a proxy says ----------------------------------------------------------------------------


async def _tell_the_caller(request: Request) -> PlainTextResponse:
    address = request.client.host if request.client else ""
    return PlainTextResponse(f"{address} {request.url.scheme} {request.url.hostname}")


SAID = [
    ("X-Forwarded-For", "198.51.100.7"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "evil.example"),
    ("Forwarded", "for=198.51.100.7;proto=https;host=evil.example"),
    ("X-Real-IP", "198.51.100.7"),
]


@pytest.mark.parametrize(
    ("proxies", "told"),
    [
        ((), "127.0.0.1 http 127.0.0.1"),
        (("10.0.0.0/8",), "127.0.0.1 http 127.0.0.1"),
        (("127.0.0.1",), "198.51.100.7 https 127.0.0.1"),
        (("127.0.0.0/8", "198.51.100.0/24"), "203.0.113.9 https 127.0.0.1"),
    ],
)
def test_the_caller_is_named_only_by_a_proxy_that_was_named(
    proxies: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else anybody has an address of his own choice in the audit trail, and as many as he likes."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    before = [("X-Forwarded-For", "203.0.113.9")]  # what the caller himself sent to the proxy
    with served(Starlette(routes=[Route("/", _tell_the_caller)]), proxies=proxies) as url:
        assert httpx2.get(url, headers=[*before, *SAID]).text == told


def test_a_trailer_is_no_header() -> None:
    """A proxy checks and sets headers; what comes after the body may pass it as it is."""
    with (
        served(
            Starlette(routes=[Route("/", _tell_the_caller, methods=["POST"])]),
            proxies=("127.0.0.1",),
        ) as url,
        connected(url) as connection,
    ):
        connection.sendall(
            b"POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\n"
            b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            b"1\r\n{\r\n0\r\nX-Forwarded-For: 198.51.100.7\r\n\r\n"
        )
        assert _read_to_the_end(connection).endswith(b"203.0.113.9 http a")
