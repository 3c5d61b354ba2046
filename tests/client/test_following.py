"""Following jobs: nothing missed, nothing twice, whatever happens to the connection."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, closing
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantline.client.async_client import AsyncClient
from gantline.client.blocking import Client
from gantline.client.event_stream import EventReader, SentEvent, StreamEvent
from gantline.client.exchange import Retries
from gantline.contract.errors import (
    BadAnswer,
    Forbidden,
    JobNotFound,
    NotAuthenticated,
    RateLimited,
    ServerUnreachable,
)
from gantline.contract.snapshot import Progress
from gantline.contract.status import JobStatus
from tests.api.application import make_jobs
from tests.api.playing import PERMANENT, claim, settle, success
from tests.client.conftest import HASTY, KINDS, asking
from tests.servers.http_api import ApiProcess
from tests.servers.scripted import Act, ScriptedServer, answering, saying

QUICK = Retries(first_pause_seconds=0.001)
TEXT = (
    b"retry: 3000\n\n: ping\n\nid: 7\n\n"
    b'id: 8\r\nevent: state\r\ndata: {"a":\r\ndata: 1}\r\n\r\n'
    b"data:two\r\r"
    b"event: progress\nid: 9\ndata: \xc3\xa4\nunknown: x\nalone\n\n"
    b"event: nothing\n\n"
    b"id: a\x00b\ndata: three\n\n"
)
EVENTS = [
    SentEvent("state", '{"a":\n1}', "8"),
    SentEvent("message", "two", "8"),
    SentEvent("progress", "ä", "9"),
    SentEvent("message", "three", "9"),
]


@given(cuts=st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_events_are_read_the_same_however_they_are_cut(cuts: list[int]) -> None:
    reader = EventReader()
    places = [0, *sorted(cuts), len(TEXT)]
    parts = [TEXT[start:end] for start, end in pairwise(places)]
    assert [event for part in parts for event in reader.read(part)] == EVENTS
    assert reader.last_id == "9"


def test_an_event_without_end_is_not_kept() -> None:
    for endless in (b"data: " + b"x" * 2_000_000, b"data: x\n" * 200_000):
        with pytest.raises(BadAnswer):
            EventReader().read(endless)


# -- a server that is played ----------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def status(state: str = "Queued", version: int = 1) -> bytes:
    document = {
        "jobId": str(uuid4()), "jobType": "t", "subjectId": "", "correlationId": "",
        "status": state, "state": state, "attempt": 1, "maxAttempts": 3,
        "createdAt": "2026-01-01T00:00:00Z", "scheduledAt": None, "expiresAt": None,
        "startedAt": None, "completedAt": None, "updatedAt": "2026-01-01T00:00:00Z",
        "progress": None, "phase": None,
        "reason": None, "errorCode": None, "errorMessage": None, "result": None,
        "resultOmitted": None, "version": version, "externalId": None,
    }  # fmt: skip
    return msgspec.json.encode(document)


def event(name: str, data: bytes, number: int | None = None) -> bytes:
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: %b\ndata: %b\n\n" % (name.encode(), data)


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def start(*acts: Act) -> ScriptedServer:
        servers.append(ScriptedServer(acts))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


async def followed(kind: str, url: str, **options: Any) -> list[StreamEvent]:
    async with asking(kind, url, retries=options.pop("retries", QUICK)) as ask:
        verb = options.pop("verb", "follow")
        options = options or ({"job_id": uuid4()} if verb == "follow" else {})
        found: list[StreamEvent] = await ask.listed(verb, **options)
        return found


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_breaks_off_is_opened_after_its_last_event(
    kind: str, serve: Callable[..., ScriptedServer]
) -> None:
    server = serve(
        saying(HEAD, b"retry: 10\n\n", event("state", status(), 5)),
        saying(),
        saying(HEAD, b": ping\nid: 9\n\n", event("progress", status("Running", 2)), b"id: 77\nda"),
        answering("502 Bad Gateway"),
        saying(HEAD, event("completed", status("Completed", 3), 11)),
    )
    events = await followed(kind, server.url)
    assert [one.event for one in events] == ["state", "progress", "completed"]
    assert [one.last_event_id for one in events] == ["5", "9", "11"]
    assert [one.status.version for one in events if one.status] == [1, 2, 3]
    asked = [
        request.lower().partition(b"last-event-id: ")[2].partition(b"\r\n")[0]
        for request in server.requests
    ]
    # What was not complete was not heard.
    assert asked == [b"", b"5", b"5", b"9", b"9"]
    assert all(b"accept: text/event-stream" in one.lower() for one in server.requests)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_that_was_heard_to_its_end_brings_nothing_more(
    kind: str, serve: Callable[..., ScriptedServer]
) -> None:
    server = serve(answering("204 No Content"))
    assert await followed(kind, server.url, job_id=uuid4(), last_event_id="3") == []
    assert b"last-event-id: 3" in server.requests[0].lower()


@pytest.mark.parametrize("kind", KINDS)
async def test_domain_events_come_as_such(kind: str, serve: Callable[..., ScriptedServer]) -> None:
    """They do not move the Last-Event-ID: the end of their job, which comes after them, does."""
    document = {
        "eventId": "j.3.1", "eventType": "PASSPORT_SIGNED", "aggregateType": "PassportVersion",
        "aggregateId": "v-1", "occurredAt": "2026-01-01T00:00:00Z", "payload": {"key_id": "k"},
        "jobId": str(uuid4()), "jobType": "sign", "tenantId": "acme", "correlationId": "",
    }  # fmt: skip
    server = serve(
        saying(
            HEAD,
            event("state", status(), 5),
            event("PASSPORT_SIGNED", msgspec.json.encode(document)),
            event("completed", status("Completed", 3), 6),
        )
    )
    state, signed, completed = await followed(kind, server.url)
    assert (signed.event, signed.status, signed.last_event_id) == ("PASSPORT_SIGNED", None, "5")
    assert signed.emitted is not None
    assert (signed.emitted.aggregate_id, signed.emitted.payload) == ("v-1", {"key_id": "k"})
    assert (state.emitted, completed.emitted) == (None, None)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_missed_is_told(kind: str, serve: Callable[..., ScriptedServer]) -> None:
    server = serve(
        saying(HEAD, event("reset", b'{"detail":"x"}'), event("state", status("Failed"), 4))
    )
    events = await followed(kind, server.url)
    assert [(one.event, one.status is None) for one in events] == [
        ("reset", True),
        ("state", False),
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_brings_nothing_is_given_up(
    kind: str, serve: Callable[..., ScriptedServer]
) -> None:
    server = serve(saying(HEAD))
    with pytest.raises(ServerUnreachable, match="broke off"):
        await followed(kind, server.url)
    assert len(server.requests) == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "act",
    [
        saying(HEAD, event("state", b'{"hello":"world"}')),
        saying(HEAD, event("state", b"[" * 100_000)),
        answering("200 OK", b"<html>", "content-type: text/html"),
        answering("302 Found"),
    ],
)
async def test_nonsense_is_told_as_such(
    kind: str, serve: Callable[..., ScriptedServer], act: Act
) -> None:
    server = serve(act)
    with pytest.raises(BadAnswer):
        await followed(kind, server.url)
    assert len(server.requests) == 1


# -- a real server --------------------------------------------------------------------------------


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[ApiProcess]:
    server = ApiProcess("tests.client.served:app", store=f"sqlite:///{tmp_path}/gantline.db")
    yield server
    server.stop()


async def test_a_job_is_followed_to_its_end_across_a_restart(place: ApiProcess) -> None:
    async with (
        AsyncClient(place.url, api_key="alice", retries=HASTY) as client,
        make_jobs(place.store) as jobs,
    ):
        accepted = await client.submit("mail", "a@example.com")
        events: list[StreamEvent] = []
        async with aclosing(client.follow(accepted.job_id)) as following:
            async for one in following:
                events.append(one)
                match one.event:
                    case "state" if len(events) == 1:
                        (run,) = await claim(jobs)
                    case "state":
                        await jobs.store.progress([Progress(run.ref, 40.0, "half")])
                    case "progress":
                        place.kill()
                        await settle(jobs, run, success({"sent": 1}))
                        place.start()
        last = events[-1].status
        assert last is not None
        assert (last.status, last.result) == (JobStatus.COMPLETED, {"sent": 1})
        assert [one.event for one in events if one.event == "completed"] == ["completed"]
        again = [one async for one in client.follow(accepted.job_id)]
        assert [one.event for one in again] == ["state"]
        heard = events[-1].last_event_id
        assert heard
        rest = [one async for one in client.follow(accepted.job_id, last_event_id=heard)]
        assert rest == []


async def test_many_jobs_are_followed_by_one_stream(place: ApiProcess) -> None:
    with Client(place.url, api_key="operator", retries=HASTY) as client:
        jobs = [client.submit("mail", "a@example.com", subject="s") for _ in range(2)]
        other = client.submit("mail", "a@example.com", subject="other")
        seen: dict[str, list[str]] = {}
        with closing(client.follow_jobs(subject="s")) as following:
            for one in following:
                assert one.status is not None
                seen.setdefault(str(one.status.job_id), []).append(one.event)
                if sum(map(len, seen.values())) == 2:
                    for job in (*jobs, other):
                        client.cancel(job.job_id)
                if sum(map(len, seen.values())) == 4:
                    break
    assert seen == {str(job.job_id): ["state", "cancelled"] for job in jobs}


async def test_who_may_not_see_a_job_may_not_follow_it(kind: str, place: ApiProcess) -> None:
    async with asking(kind, place.url, "alice") as alice:
        accepted = await alice("submit", "mail", "a@example.com")
    for key, error in (("bob", Forbidden), ("eve", JobNotFound), (None, NotAuthenticated)):
        async with asking(kind, place.url, key) as ask:
            with pytest.raises(error):
                await ask.listed("follow", job_id=accepted.job_id)


async def test_too_many_streams_are_refused_as_too_many_requests(place: ApiProcess) -> None:
    with Client(place.url, api_key="alice", retries=Retries(attempts=1)) as client:
        accepted = client.submit("mail", "a@example.com")
        open_ = [client.follow(accepted.job_id) for _ in range(21)]
        try:
            for following in open_[:20]:
                next(following)
            with pytest.raises(RateLimited) as caught:
                next(open_[20])
            assert caught.value.retry_after_seconds == 10
        finally:
            for following in open_:
                following.close()


async def test_a_failure_ends_a_stream_like_a_success(kind: str, place: ApiProcess) -> None:
    async with asking(kind, place.url, "alice") as ask, make_jobs(place.store) as jobs:
        accepted = await ask("submit", "mail", "a@example.com")
        (run,) = await claim(jobs)
        await settle(jobs, run, PERMANENT)
        events = await ask.listed("follow", job_id=accepted.job_id)
        assert [one.status.error_code for one in events] == ["DOCUMENT_UNKNOWN"]
