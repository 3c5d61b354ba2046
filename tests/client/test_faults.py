"""A server that is gone, hangs, breaks off or talks nonsense: bounded in time, and told plainly."""

import re
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from gantline.client import new_job
from gantline.client.exchange import Retries
from gantline.contract.errors import (
    BadAnswer,
    GantlineError,
    ServerFailed,
    ServerUnreachable,
)
from gantline.contract.status import JobStatus
from tests.client.conftest import asking
from tests.client.test_following import status as status_of_a_job
from tests.servers.http_api import ApiProcess
from tests.servers.scripted import (
    Act,
    ScriptedServer,
    answering,
    dripping,
    saying,
    stalling,
)

Serve = Callable[..., ScriptedServer]
QUICK = Retries(first_pause_seconds=0.001)
ONCE = Retries(attempts=1)
KEY = re.compile(rb'idempotency-key: "(.+)"\r\n', re.IGNORECASE)
CORRELATION = re.compile(rb"x-correlation-id: (.+)\r\n", re.IGNORECASE)


def accepted() -> Act:
    body = {
        "jobId": str(uuid4()),
        "subjectId": "",
        "statusUrl": "/api/jobs/x/status",
        "status": "Queued",
        "duplicate": False,
    }
    json = "content-type: application/json"
    return answering("202 Accepted", msgspec.json.encode(body), json)


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[ScriptedServer] = []

    def start(*acts: Act) -> ScriptedServer:
        servers.append(ScriptedServer(acts))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


BROKEN_OFF = {
    "no answer at all": saying(),
    "half a head": saying(b"HTTP/1.1 200 OK\r\ncontent-le"),
    "half a body": saying(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"),
    "half a chunk": saying(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{"),
    "no HTTP": saying(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "garbage": saying(bytes(range(256)) * 64),
    "bad status": saying(b"HTTP/1.1 abc OK\r\n\r\n"),
}


@pytest.mark.parametrize("act", BROKEN_OFF.values(), ids=BROKEN_OFF)
async def test_a_submit_whose_answer_is_lost_is_repeated_with_the_same_key(
    kind: str, serve: Serve, act: Act
) -> None:
    server = serve(act, act, accepted())
    async with asking(kind, server.url, retries=QUICK) as ask:
        assert (await ask("submit", "sweep")).status is JobStatus.QUEUED
    assert len(server.requests) == 3
    for pattern in (KEY, CORRELATION):
        found = [pattern.search(request) for request in server.requests]
        assert len({match[1] for match in found if match}) == 1
        assert all(found)


@pytest.mark.parametrize("act", BROKEN_OFF.values(), ids=BROKEN_OFF)
async def test_a_cancel_whose_answer_is_lost_is_not_repeated(
    kind: str, serve: Serve, act: Act
) -> None:
    server = serve(act)
    async with asking(kind, server.url, retries=QUICK) as ask:
        with pytest.raises(ServerUnreachable, match="not known whether") as caught:
            await ask("cancel", uuid4())
    assert len(server.requests) == 1
    match = CORRELATION.search(server.requests[0])
    assert match
    assert caught.value.correlation_id == match[1].decode()


STUCK = {
    "silence": stalling(),
    "half a head": stalling(b"HTTP/1.1 200 OK\r\n"),
    "half a body": stalling(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"),
    "a body without end": dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n", b" "),
}


@pytest.mark.parametrize("act", STUCK.values(), ids=STUCK)
async def test_a_server_that_is_stuck_is_given_up(kind: str, serve: Serve, act: Act) -> None:
    server = serve(act)
    async with asking(kind, server.url, timeout_seconds=0.3, retries=ONCE) as ask:
        with pytest.raises(ServerUnreachable):
            await ask("statistics")


async def test_a_server_that_is_stuck_takes_no_longer_with_retries(kind: str, serve: Serve) -> None:
    server = serve(stalling())
    async with asking(kind, server.url, timeout_seconds=0.3, retries=QUICK) as ask:
        with pytest.raises(ServerUnreachable, match=r"after 0\.3 s"):
            await ask("submit", "sweep")
    assert len(server.requests) == 1


@pytest.mark.parametrize("span", [0.5, timedelta(seconds=0.5)])
async def test_the_time_of_a_wait_holds_for_a_server_that_is_stuck(
    kind: str, serve: Serve, span: timedelta | float
) -> None:
    server = serve(stalling())
    async with asking(kind, server.url, retries=QUICK) as ask:
        with pytest.raises(ServerUnreachable, match=r"after 0\.5 s"):
            await ask("submit_and_wait", "sweep", timeout=span)
        with pytest.raises(ServerUnreachable, match=r"after 0\.5 s"):
            await ask("wait", uuid4(), timeout=span)
    assert len(server.requests) == 2


async def test_a_refusal_that_asks_for_more_time_than_there_is_is_raised_at_once(
    kind: str, serve: Serve
) -> None:
    server = serve(answering("503 Away", b"", "retry-after: 5"))
    async with asking(kind, server.url, retries=Retries()) as ask:
        with pytest.raises(ServerFailed):
            await ask("submit_and_wait", "sweep", timeout=3)
    assert len(server.requests) == 1


async def test_a_server_that_gets_stuck_while_a_job_is_waited_for_is_a_timeout(
    kind: str, serve: Serve
) -> None:
    head = "content-type: application/json"
    server = serve(answering("200 OK", status_of_a_job(), head), stalling())
    async with asking(kind, server.url, retries=QUICK) as ask:
        with pytest.raises(TimeoutError, match="still Queued"):
            await ask("wait", uuid4(), timeout=0.6)


async def test_a_head_without_end_is_given_up(kind: str, serve: Serve) -> None:
    server = serve(dripping(b"HTTP/1.1 200 OK\r\n", b"x-more: x\r\n"))
    async with asking(kind, server.url, timeout_seconds=0.3, retries=ONCE) as ask:
        with pytest.raises(ServerUnreachable):
            await ask("statistics")


NONSENSE = {
    "a page": answering("200 OK", b"<html></html>", "content-type: text/html"),
    "other JSON": answering("200 OK", b'{"hello":"world"}', "content-type: application/json"),
    "not UTF-8": answering("200 OK", b'{"jobId":"\xff"}', "content-type: application/json"),
    "deep": answering("200 OK", b'{"lanes":' + b"[" * 200_000, "content-type: application/json"),
    "nothing": answering("200 OK"),
    "a redirect": answering("302 Found", b"", "location: https://evil.example/api/stats"),
    "another server": answering("404 Not Found", b"no", "content-type: text/plain"),
    "compressed": answering("200 OK", b"\x1f\x8b\x08", "content-encoding: gzip"),
}


@pytest.mark.parametrize("act", NONSENSE.values(), ids=NONSENSE)
async def test_nonsense_is_told_as_such_and_not_asked_for_again(
    kind: str, serve: Serve, act: Act
) -> None:
    server = serve(act)
    async with asking(kind, server.url, retries=QUICK) as ask:
        with pytest.raises(BadAnswer) as caught:
            await ask("statistics")
    assert len(server.requests) == 1
    assert str(caught.value).isprintable()


async def test_an_answer_that_is_far_too_large_is_not_read(
    kind: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantline.client.http._LARGEST_ANSWER", 100_000)
    server = serve(answering("200 OK", b" " * 1_000_000))
    async with asking(kind, server.url, retries=ONCE) as ask:
        with pytest.raises(ServerUnreachable, match="too large"):
            await ask("statistics")


@pytest.mark.parametrize("status", ["500 Oh", "502 Bad Gateway", "503 Away", "504 Slow"])
async def test_a_server_that_fails_is_told_as_such(kind: str, serve: Serve, status: str) -> None:
    page = answering(status, b"<html>secret stack trace</html>", "content-type: text/html")
    server = serve(page)
    async with asking(kind, server.url, retries=QUICK) as ask:
        with pytest.raises(ServerFailed) as caught:
            await ask("statistics")
    assert "secret" not in str(caught.value)
    assert len(server.requests) == (1 if status.startswith("500") else 4)


async def test_nobody_there_is_told_as_such(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with asking(kind, url, "hush", retries=QUICK) as ask:
        with pytest.raises(
            ServerUnreachable, match=r"in 4 attempts: 127\.0\.0\.1:\d+ cannot be reached"
        ) as caught:
            await ask("cancel", uuid4())
        assert "not known whether" not in str(caught.value)
        with pytest.raises(ServerUnreachable):
            await ask.listed("jobs")


async def test_a_list_goes_on_where_a_page_was_lost(kind: str, serve: Serve) -> None:
    def page(cursor: str | None) -> Act:
        body = msgspec.json.encode({"items": [], "nextCursor": cursor})
        return answering("200 OK", body, "content-type: application/json")

    server = serve(page("c1"), saying(), page("c2"), page(None))
    async with asking(kind, server.url, retries=QUICK) as ask:
        assert await ask.listed("jobs") == []
    asked = [request.split(b" ")[1] for request in server.requests]
    assert asked == [
        b"/api/jobs?limit=100",
        b"/api/jobs?limit=100&cursor=c1",
        b"/api/jobs?limit=100&cursor=c1",
        b"/api/jobs?limit=100&cursor=c2",
    ]


async def test_a_server_that_hangs_and_comes_back_is_waited_for(kind: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/gantline.db"
    server = ApiProcess("tests.client.served:app", store=store)
    try:
        async with asking(kind, server.url, "alice") as ask:
            first = await ask("submit", "sweep")
            server.pause()
            async with asking(kind, server.url, timeout_seconds=0.3, retries=ONCE) as hasty:
                with pytest.raises(ServerUnreachable):
                    await hasty("status", first.job_id)
            server.resume()
            assert (await ask("status", first.job_id)).status is JobStatus.QUEUED
            server.kill()
            with pytest.raises(ServerUnreachable):
                await ask("status", first.job_id)
            server.start()
            # Its pool holds a connection that is dead.
            assert (await ask("status", first.job_id)).status is JobStatus.QUEUED
            batch = await ask("submit_many", [new_job("sweep")] * 3)
            assert batch.accepted == 3
    finally:
        server.stop()


async def test_every_failure_is_a_gantline_error(kind: str) -> None:
    async with asking(kind, "https://no-such-host.invalid", retries=ONCE) as ask:
        with pytest.raises(GantlineError):
            await ask("statistics")
