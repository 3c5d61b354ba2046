"""The API: every operation answers any request by a document or a problem, and never by a 500."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from gantline.api import ApiSettings
from gantline.api.application import Api
from gantline.api.problems import KINDS, ApiCode
from gantline.api.streams.settings import StreamSettings
from gantline.auth.peppers import Peppers
from gantline.auth.stream_tokens import StreamTokens
from gantline.contract.clock import SystemClock
from tests.api.application import PRINCIPALS, AuditKept, ByName, make_jobs
from tests.api.playing import PERMANENT, run_all
from tests.fuzz.effort import effort
from tests.fuzz.limits import CPU_SECONDS, in_bounds, in_time
from tests.fuzz.mutation import EDGES, Raw, written
from tests.fuzz.requests import BODIES, JOB, MAIL, SCHEDULE, SWEEP, WEBHOOK, Requests, Sent

SECONDS: Final = 5.0
CALLERS: Final = ("admin", "admin", "system", "alice", "operator", "viewer", "eve", "nobody")


class Answered:
    """What the API has said: the status, the headers and the body."""

    def __init__(self, messages: list[Any]) -> None:
        start, *parts = messages
        self.status: int = start["status"]
        self.headers = dict(start["headers"])
        self.body = b"".join(part.get("body", b"") for part in parts)

    @property
    def document(self) -> Any:
        return msgspec.json.decode(self.body) if self.body else None

    @property
    def is_sound(self) -> bool:
        """Whether it is no failure of the server; a type that is switched off is none."""
        if self.status < 500:
            return True
        code = self.document["errorCode"]
        return code in KINDS and code != ApiCode.INTERNAL_ERROR


class Server:
    """An API in this process, asked as a server asks it."""

    def __init__(self, runner: asyncio.Runner, api: Api) -> None:
        self._runner = runner
        self.api = api
        self.values: dict[str, list[str]] = {}

    def ask(self, sent: Sent) -> Answered:
        async def within() -> Answered:
            async with asyncio.timeout(SECONDS):
                return await self._ask(sent)

        return self._runner.run(within())

    async def _ask(self, sent: Sent) -> Answered:
        messages: list[Any] = []
        left = [{"type": "http.request", "body": sent.body, "more_body": False}]

        async def receive() -> Any:
            if left:
                return left.pop()
            return await asyncio.Event().wait()  # the client stays, and says no more

        async def send(message: Any) -> None:
            messages.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": sent.method,
            "scheme": "http",
            "path": sent.path,
            "raw_path": sent.path.encode(),
            "root_path": "",
            "query_string": sent.query,
            "headers": list(sent.headers),
            "client": ("127.0.0.1", 1),
            "server": ("api.test", 80),
            "state": {},
        }
        await self.api(scope, receive, send)
        return Answered(messages)

    def post(self, path: str, body: Any, who: str = "admin") -> Any:
        headers = (
            (b"content-type", b"application/json"),
            (b"authorization", f"Bearer {who}".encode()),
        )
        answered = self.ask(Sent("", "POST", path, b"", headers, msgspec.json.encode(body)))
        assert answered.status < 300, answered.body
        return answered.document


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def server(
    request: pytest.FixtureRequest,
    runner: asyncio.Runner,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fuzz")
    is_memory = request.param == "memory"
    jobs = make_jobs("memory://" if is_memory else f"sqlite:///{folder}/gantline.db?sync=normal")
    settings = ApiSettings(longest_wait_seconds=0.01, streams=StreamSettings(longest_seconds=0.01))
    api = jobs.api(
        authenticator=ByName(),
        audit=AuditKept(),
        settings=settings,
        stream_tokens=StreamTokens(Peppers.random(), clock=SystemClock()),
    )
    runner.run(jobs.open())
    server = Server(runner, api)
    dead = [server.post("/api/jobs", {"jobType": "sweep"})["jobId"] for _ in range(3)]
    runner.run(run_all(jobs, PERMANENT))
    server.post("/api/schedules", SCHEDULE)
    queued = [server.post("/api/jobs", one)["jobId"] for one in (MAIL, SWEEP, JOB)]
    webhook = server.post("/api/webhooks", WEBHOOK)["webhook"]["webhookId"]
    delivery = server.post(f"/api/webhooks/{webhook}/test", None)["deliveryId"]
    server.values = {
        "job_id": [*dead, *queued, "00000000-0000-0000-0000-000000000000"],
        "queue": ["documents", "a/b", "default"],
        "job_type": ["mail", "sweep", "document-indexing", "nothing"],
        "webhook_id": [webhook, "00000000-0000-0000-0000-000000000000"],
        "delivery_id": [delivery, queued[0]],
        "schedule": ["nightly", "often", "nothing"],
        "problem": ["not-found", "nothing"],
    }
    yield server
    runner.run(jobs.close())


def check(server: Server, sent: Sent) -> None:
    """What holds for every answer, whatever was asked."""
    answered = server.ask(sent)
    operations = {one.name: one for one in server.api.operations}
    assert answered.headers[b"x-correlation-id"]
    if answered.status < 400:
        named = operations[sent.operation]
        is_elsewhere = b"text/" in answered.headers.get(b"content-type", b"")
        assert answered.status in named.answers or is_elsewhere
        if b"json" in answered.headers.get(b"content-type", b""):
            assert answered.document is not None or sent.method == "HEAD"
        return
    assert answered.headers[b"content-type"] == b"application/problem+json"
    problem = answered.document
    assert answered.is_sound, problem
    assert problem["errorCode"] in KINDS
    assert problem["status"] == answered.status
    assert len(answered.body) < 20_000 + 8 * sent.size


@given(number=st.integers(0, 2**64 - 1))
@effort(800)
def test_any_request_is_answered_by_a_document_or_a_problem(server: Server, number: int) -> None:
    made = Requests(server.api.operations, server.values, CALLERS).make(Random(number))
    with in_time():
        note(f"{made!r:.5000}")
        check(server, made)


def test_every_caller_is_known() -> None:
    assert set(CALLERS) - set(PRINCIPALS) == {"nobody"}


@pytest.mark.parametrize("name", BODIES)
def test_no_field_is_troubled_by_an_edge_of_json(server: Server, name: str) -> None:
    operation = next(one for one in server.api.operations if one.name == name)
    make = Requests([operation], server.values, ["admin"]).make
    for document in BODIES[name]:
        for field in document:
            for edge in EDGES:
                body = written(document | {field: Raw(edge)})
                sent = make(Random(1))._replace(body=body, query=b"", headers=HEADERS)
                with in_time():
                    check(server, sent)


HEADERS: Final = ((b"content-type", b"application/json"), (b"authorization", b"Bearer admin"))
LIMIT: Final = ApiSettings().max_body_bytes
LARGE: Final = {
    "unknown name": b'{"' + b"x" * (LIMIT - 10) + b'": 1}',
    "name like a path": b'{"' + b" - at `$" * (LIMIT // 8 - 2) + b'": 1}',
    "name like a key": b'{"' + b" - at `key` in `$" * (LIMIT // 17 - 2) + b'": 1}',
    "dots": b'{"' + b"." * (LIMIT - 10) + b'": 1}',
    "brackets in a name": b'{"' + b"[1]" * (LIMIT // 3 - 3) + b'": 1}',
    "text": b'{"jobType": "' + b"x" * (LIMIT - 20) + b'"}',
    "names": b"{" + b",".join(b'"%d":0' % n for n in range(LIMIT // 10)) + b"}",
    "deep": b"[" * (LIMIT // 2) + b"]" * (LIMIT // 2),
    "deep payload": b'{"jobType":"mail","payload":' + b"[" * 400_000 + b"]" * 400_000 + b"}",
    "many jobs": b'{"jobs":[' + b",".join([b'{"jobType":"sweep"}'] * 1000) + b"]}",
    "many bad jobs": b'{"jobs":[' + b",".join([b"0"] * 1000) + b"]}",
    "too many jobs": b'{"jobs":[' + b",".join([b"0"] * 500_000) + b"]}",
    "many ids": b'{"jobIds":[' + b",".join([b'"%s"' % (b"0" * 36)] * 20_000) + b"]}",
    "trace": b'{"jobType":"sweep","traceContext":{'
    + b",".join(b'"%d":"v"' % n for n in range(LIMIT // 14))
    + b"}}",
    "cron": b'{"name":"n","jobType":"sweep","cron":"' + b"*/1," * 60 + b'1 * * * *"}',
    "too large": b'"' + b"x" * LIMIT + b'"',
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_body_at_the_limit_takes_bounded_time_and_memory(server: Server, kind: str) -> None:
    """So many jobs in a batch are stored, which takes longer than to refuse them."""
    body = LARGE[kind]
    seconds = 4 * CPU_SECONDS if kind == "many jobs" else CPU_SECONDS
    for path in ("/api/jobs", "/api/jobs/batch", "/api/dead-letters/redrive", "/api/schedules"):
        sent = Sent("", "POST", path, b"", HEADERS, body)
        with in_bounds(len(body), seconds):
            answered = server.ask(sent)
        assert answered.is_sound


LINES: Final = {
    "cookie": (b"cookie", b'a="' + b"\\" * 60_000 + b'"'),
    "many cookies": (b"cookie", b"a=b;" * 15_000),
    "key": (b"idempotency-key", b'"' + b'\\"' * 30_000),
    "tags": (b"if-match", b'"1",' * 15_000),
    "open tags": (b"if-none-match", b'W/"' * 20_000),
    "preferences": (b"prefer", b"wait=1," * 8_000),
    "blanks": (b"prefer", b"wait" + b" " * 60_000 + b"="),
    "trace": (b"traceparent", b"00-" + b"a" * 60_000),
    "state": (b"tracestate", b"a=b," * 15_000),
    "correlation": (b"x-correlation-id", b"a" * 60_000),
    "length": (b"content-length", b"9" * 60_000),
    "token": (b"authorization", b"Bearer " + b"a." * 30_000),
    "type": (b"content-type", b"application/json;" + b" " * 60_000 + b"x"),
    "event": (b"last-event-id", b"9" * 60_000),
}


@pytest.mark.parametrize("kind", LINES)
def test_a_long_header_takes_bounded_time_and_memory(server: Server, kind: str) -> None:
    name, value = LINES[kind]
    headers = (*(one for one in HEADERS if one[0] != name), (name, value))
    for method, path in (("POST", "/api/jobs"), ("GET", f"/api/jobs/{server.values['job_id'][0]}")):
        with in_bounds(len(value)):
            answered = server.ask(Sent("", method, path, b"", headers, b'{"jobType": "sweep"}'))
        assert answered.is_sound


@pytest.mark.parametrize("part", [b"a=b&", b"%", b"%41", b"jobType=x&", b"&", b"=", b";", b"+"])
def test_a_long_query_takes_bounded_time_and_memory(server: Server, part: bytes) -> None:
    query = part * (60_000 // len(part))
    with in_bounds(len(query)):
        answered = server.ask(Sent("", "GET", "/api/jobs", query, HEADERS, b""))
    assert answered.status == 400


@pytest.mark.parametrize("part", ["/", "a", "%2f", "../", "é", "\x00", "//a"])
def test_a_long_path_takes_bounded_time_and_memory(server: Server, part: str) -> None:
    for start in ("/api/jobs/", "/api/queues/", "/api/job-types/", "/api/schedules/", "/"):
        path = start + part * (60_000 // len(part))
        for method in ("GET", "POST"):
            with in_bounds(len(path)):
                answered = server.ask(Sent("", method, path, b"", HEADERS, b""))
            assert answered.is_sound
