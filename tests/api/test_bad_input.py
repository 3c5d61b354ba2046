"""Bad input: every request that cannot be served is a problem, and nothing is stored."""

import asyncio
import gzip
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from fastapi import FastAPI

from gantline import Gantline
from gantline.api import ApiSettings
from gantline.api.application import Api
from gantline.api.shares import Share
from gantline.contract.errors import StoreUnavailable
from tests.api.application import ByName
from tests.api.conftest import Asker, asker_of, check_answer
from tests.api.playing import stored
from tests.api.test_submit import DOCUMENT, MAIL

GOOD = b'{"jobType": "mail", "payload": "a@example.org"}'


def deep(levels: int) -> bytes:
    return b'{"jobType": "mail", "payload": ' + b"[" * levels + b"]" * levels + b"}"


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "INVALID_FORMAT"),
        (b"{", 400, "INVALID_FORMAT"),
        (b"not json", 400, "INVALID_FORMAT"),
        (GOOD + b"x", 400, "INVALID_FORMAT"),
        (b"\xff\xfe", 400, "INVALID_FORMAT"),
        (b'{"jobType": "\xed\xa0\x80"}', 400, "INVALID_FORMAT"),
        (b'{"jobType": "mail", "payload": NaN}', 400, "INVALID_FORMAT"),
        (b'{"jobType": "mail", "payload": \xff}', 400, "INVALID_FORMAT"),
        (deep(100_000), 400, "INVALID_FORMAT"),
        (deep(65), 422, "VALIDATION_ERROR"),
        (b"[]", 422, "VALIDATION_ERROR"),
        (b"null", 422, "VALIDATION_ERROR"),
        (b"{}", 422, "VALIDATION_ERROR"),
        (b'{"jobType": ""}', 422, "VALIDATION_ERROR"),
        (b'{"jobType": 5}', 422, "VALIDATION_ERROR"),
        (
            b'{"jobType": "mail", "payload": "a", "createdAt": "9999-01-01T00:00:00Z"}',
            422,
            "VALIDATION_ERROR",
        ),
        (b'{"jobType": "mail", "payload": "a", "jobId": "nope"}', 422, "VALIDATION_ERROR"),
        (b'{"jobType": "mail", "payload": "a", "priority": 4}', 422, "VALIDATION_ERROR"),
        (b'{"jobType": "mail", "payload": "a", "attempt": 4}', 422, "VALIDATION_ERROR"),
        (b'{"jobType": "mail", "payload": "a", "delaySeconds": -1}', 422, "VALIDATION_ERROR"),
        (b'{"jobType": "mail", "payload": "a", "delaySeconds": 1e300}', 422, "VALIDATION_ERROR"),
        (b'{"jobType": "mail", "payload": "a", "queue": "a\\u0000b"}', 422, "VALIDATION_ERROR"),
        (b'{"jobType": "mail", "payload": "a", "subjectId": "a\\nb"}', 422, "VALIDATION_ERROR"),
        (
            b'{"jobType": "mail", "payload": "a", "scheduledAt": "2020-01-01T00:00:00"}',
            422,
            "VALIDATION_ERROR",
        ),
        (
            b'{"jobType": "mail", "payload": "a", "scheduledAt": "0001-01-01T00:00:00+23:00"}',
            422,
            "VALIDATION_ERROR",
        ),
        (b'{"jobType": "mail\\u0000"}', 422, "UNKNOWN_JOB_TYPE"),
    ],
)
async def test_a_body_that_is_wrong_is_refused(
    ask: Asker, jobs: Gantline, content: bytes, status: int, code: str
) -> None:
    response = await ask("alice", "POST", "/api/jobs", content=content)
    assert (response.status_code, response.json()["errorCode"]) == (status, code)
    assert len(response.json()["detail"]) < 500
    assert await stored(jobs) == []


@pytest.mark.parametrize(
    ("payload", "status", "code"),
    [
        (b'"\xff"', 400, "INVALID_FORMAT"),
        (b'{"\xff": 1}', 400, "INVALID_FORMAT"),
        (b"1e999", 422, "VALIDATION_ERROR"),
    ],
)
async def test_what_cannot_be_read_has_no_idempotency_key(
    ask: Asker, jobs: Gantline, payload: bytes, status: int, code: str
) -> None:
    """The key goes with all that was sent, also with what the job's type would not look at."""
    content = b'{"jobType": "sweep", "payload": ' + payload + b"}"
    headers = {"idempotency-key": "k"}
    response = await ask("alice", "POST", "/api/jobs", content=content, headers=headers)
    assert (response.status_code, response.json()["errorCode"]) == (status, code)
    batch = b'{"jobs": [' + content + b", " + GOOD + b"]}"
    response = await ask("alice", "POST", "/api/jobs/batch", content=batch, headers=headers)
    assert (response.json()["accepted"], response.json()["rejected"]) == (1, 1)
    assert response.json()["items"][0]["problem"]["errorCode"] == code
    assert [job.job.job_type for job in await stored(jobs)] == ["mail"]


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
)
async def test_a_body_that_is_not_declared_as_json_is_415(
    ask: Asker, jobs: Gantline, content_type: str
) -> None:
    headers = {"content-type": content_type}
    response = await ask("alice", "POST", "/api/jobs", content=GOOD, headers=headers)
    assert (response.status_code, response.json()["errorCode"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert await stored(jobs) == []


async def test_a_body_that_is_packed_is_415(ask: Asker, jobs: Gantline) -> None:
    for content in (gzip.compress(GOOD), GOOD):
        headers = {"content-encoding": "gzip"}
        response = await ask("alice", "POST", "/api/jobs", content=content, headers=headers)
        assert response.status_code == 415
    assert await stored(jobs) == []
    headers = {"content-encoding": "identity"}
    response = await ask("alice", "POST", "/api/jobs", content=GOOD, headers=headers)
    assert response.status_code == 202


@pytest.mark.parametrize("digits", [30, 5000])
async def test_a_length_that_no_body_can_have_is_413(ask: Asker, digits: int) -> None:
    """Python reads no number of more than 4300 digits."""
    headers = {"content-length": "9" * digits}
    response = await ask("alice", "POST", "/api/jobs", content=GOOD, headers=headers)
    assert (response.status_code, response.json()["errorCode"]) == (413, "BODY_TOO_LARGE")


async def test_json_in_utf_8_may_be_said_in_so_many_words(ask: Asker) -> None:
    headers = {"content-type": "Application/JSON; charset=UTF-8"}
    response = await ask("alice", "POST", "/api/jobs", content=GOOD, headers=headers)
    assert response.status_code == 202


async def test_a_giant_body_is_413_before_it_is_read(jobs: Gantline) -> None:
    api = jobs.api(authenticator=ByName(), settings=ApiSettings(max_body_bytes=1000))
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 600

    async with asker_of(api) as ask:
        declared = await ask("alice", "POST", "/api/jobs", content=b"x" * 1001)
        assert (declared.status_code, declared.json()["errorCode"]) == (413, "BODY_TOO_LARGE")
    transport = httpx2.ASGITransport(app=api)
    async with httpx2.AsyncClient(transport=transport, base_url="http://api.test") as client:
        headers = {"authorization": "Bearer alice", "content-type": "application/json"}
        response = await client.post("/api/jobs", content=endless(), headers=headers)
        check_answer(response)
        assert response.status_code == 413
        assert sent <= 3
    assert await stored(jobs) == []


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-correlation-id", "with blank"),
        ("x-correlation-id", "a" * 129),
        ("x-correlation-id", ""),
        ("x-correlation-id", "a\tb"),
        ("x-correlation-id", 'a"b'),
        ("idempotency-key", ""),
        ("idempotency-key", '""'),
        ("idempotency-key", '"unended'),
        ("idempotency-key", "two, keys"),
        ("idempotency-key", "with blank"),
        ("idempotency-key", "k" * 256),
        ("idempotency-key", '"a";p=1'),
        ("idempotency-key", '"a\\x"'),
    ],
)
async def test_a_header_that_is_malformed_is_named(
    ask: Asker, jobs: Gantline, header: str, value: str
) -> None:
    headers = {header: value}
    response = await ask("alice", "POST", "/api/jobs", MAIL, headers=headers)
    assert (response.status_code, response.json()["errorCode"]) == (400, "INVALID_REQUEST")
    (error,) = response.json()["errors"]
    assert error["parameter"].lower() == header
    assert await stored(jobs) == []


async def raw(api: Api, headers: list[tuple[bytes, bytes]]) -> tuple[int, dict[bytes, bytes]]:
    """Ask with headers that no client would send, as a raw ASGI server could hand them in."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/jobs",
        "root_path": "",
        "query_string": b"",
        "headers": [
            (b"authorization", b"Bearer alice"),
            (b"content-type", b"application/json"),
            *headers,
        ],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": GOOD, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await api(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.mark.parametrize("name", [b"x-correlation-id", b"idempotency-key", b"traceparent"])
@pytest.mark.parametrize(
    "value", [b"a\r\nSet-Cookie: b=c", b"a\nb", b"a\x00b", b"\r\n\r\n<html>", b"\xe9"]
)
async def test_nothing_can_be_injected_into_our_headers(
    api: Api, jobs: Gantline, name: bytes, value: bytes
) -> None:
    status, headers = await raw(api, [(name, value)])
    for key, text in headers.items():
        assert not {0, 10, 13} & {*key, *text}
    assert b"set-cookie" not in headers
    if name == b"traceparent":
        assert status == 202  # what is malformed there is dropped
    else:
        assert status == 400
        assert await stored(jobs) == []


async def test_two_correlation_ids_are_none(api: Api) -> None:
    status, _ = await raw(api, [(b"x-correlation-id", b"a"), (b"x-correlation-id", b"b")])
    assert status == 400


@pytest.mark.parametrize(
    "query",
    [
        "?bogus=1",
        "?limit=0",
        "?limit=201",
        "?limit=ten",
        "?limit=1&limit=2",
        "?limit=",
        "?limit",
        "?=1",
        "?%ff=1",
        "?status=nonsense",
        "?jobType=",
        "?createdFrom=yesterday",
        "?createdFrom=2020-01-01T00:00:00",
        "?parentJobId=nope",
        "?errorCode=",
        "?minAttempts=-1",
        "?minAttempts=1001",
        "?internal=1",
        "?internal=True",
        "?internal=true&internal=true",
        "?allTenants=",
        "?cursor=",
        "?cursor=nonsense",
        "?cursor=AQ",
        "?cursor=" + "A" * 34,
        "?cursor=" + "A" * 200,
        "?cursor=%00",
        "?" + "&".join(f"a{n}=1" for n in range(600)),
    ],
)
async def test_a_query_that_is_wrong_is_400(ask: Asker, query: str) -> None:
    response = await ask("alice", "GET", f"/api/jobs{query}")
    assert (response.status_code, response.json()["errorCode"]) == (400, "INVALID_REQUEST")


async def test_a_parameter_where_there_is_none_is_400(ask: Asker) -> None:
    for path in (f"/api/jobs/{uuid4()}/status?x=1", "/api/jobs?dryRun=1", "/api/job-types?a=b"):
        assert (await ask("admin", "GET", path)).status_code == 400
    assert (await ask("alice", "POST", "/api/jobs?x=1", MAIL)).status_code == 400


@pytest.mark.parametrize(
    "job_id",
    [
        "nope",
        "1",
        "%00",
        "00000000000000000000000000000001",
        "{f99d0a82-a22c-474b-b390-1071bd18874e}",
    ],
)
async def test_what_is_no_uuid_is_400(ask: Asker, job_id: str) -> None:
    for path in ("", "/status", "/history", "/attempts"):
        response = await ask("alice", "GET", f"/api/jobs/{job_id}{path}")
        assert (response.status_code, response.json()["errorCode"]) == (400, "INVALID_REQUEST")
    for verb in ("cancel", "redrive"):
        assert (await ask("alice", "POST", f"/api/jobs/{job_id}/{verb}")).status_code == 400


@pytest.mark.parametrize("tag", ["nope", '"a', "W/a", '"a" "b"', ""])
async def test_a_malformed_etag_is_400(ask: Asker, tag: str) -> None:
    job_id = (await ask("alice", "POST", "/api/jobs", DOCUMENT)).json()["jobId"]
    path = f"/api/jobs/{job_id}"
    read = await ask("alice", "GET", f"{path}/status", headers={"if-none-match": tag})
    cancel = await ask("alice", "POST", f"{path}/cancel", headers={"if-match": tag})
    assert (read.status_code, cancel.status_code) == (400, 400)
    assert (await ask("alice", "GET", f"{path}/status")).json()["status"] == "Queued"


async def test_an_unknown_path_is_404_and_a_wrong_method_405(ask: Asker) -> None:
    for path in ("/", "/api", "/api/nothing", "/api/jobs/", f"/api/jobs/{uuid4()}/nothing"):
        response = await ask(None, "GET", path)
        assert (response.status_code, response.json()["errorCode"]) == (404, "NOT_FOUND")
        assert "/api/docs" in response.json()["detail"]
    response = await ask(None, "PATCH", "/api/jobs")
    assert (response.status_code, response.json()["errorCode"]) == (405, "METHOD_NOT_ALLOWED")
    assert response.headers["allow"] == "GET, HEAD, POST"
    assert (await ask("alice", "OPTIONS", "/api/jobs")).status_code == 405


async def test_no_other_origin_is_let_in_by_default(ask: Asker) -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for method in ("OPTIONS", "GET"):
        response = await ask("alice", method, "/api/jobs", headers=headers)
        assert not [name for name in response.headers if name.startswith("access-control")]


async def test_an_origin_that_is_named_is_let_in(jobs: Gantline) -> None:
    settings = ApiSettings(cors_origins=("https://shop.example",))
    transport = httpx2.ASGITransport(app=jobs.api(authenticator=ByName(), settings=settings))
    async with httpx2.AsyncClient(transport=transport, base_url="http://api.test") as client:
        for origin, allowed in (("https://shop.example", True), ("https://evil.example", False)):
            headers = {"origin": origin, "access-control-request-method": "POST"}
            response = await client.options("/api/jobs", headers=headers)
            assert ("access-control-allow-origin" in response.headers) is allowed


async def test_a_request_that_takes_too_long_is_503(
    jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*args: Any, **kwargs: Any) -> Any:
        await asyncio.Event().wait()

    api = jobs.api(authenticator=ByName(), settings=ApiSettings(request_timeout_seconds=0.01))
    monkeypatch.setattr(jobs.store, "get", never)
    async with asker_of(api) as ask:
        response = await ask("alice", "GET", f"/api/jobs/{uuid4()}/status")
        assert (response.status_code, response.json()["errorCode"]) == (503, "REQUEST_TIMEOUT")


async def test_a_body_that_does_not_arrive_is_408(jobs: Gantline) -> None:
    async def stuck() -> Any:
        yield b"{"
        await asyncio.Event().wait()

    api = jobs.api(authenticator=ByName(), settings=ApiSettings(request_timeout_seconds=0.01))
    transport = httpx2.ASGITransport(app=api)
    async with httpx2.AsyncClient(transport=transport, base_url="http://api.test") as client:
        headers = {"authorization": "Bearer alice", "content-type": "application/json"}
        response = await client.post("/api/jobs", content=stuck(), headers=headers)
        check_answer(response)
        assert (response.status_code, response.json()["errorCode"]) == (408, "BODY_TIMEOUT")


async def test_an_error_of_ours_tells_nothing_of_itself(
    ask: Asker, jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("password=secret at /srv/gantline.db")

    monkeypatch.setattr(jobs.store, "get", broken)
    response = await ask("alice", "GET", f"/api/jobs/{uuid4()}/status")
    assert (response.status_code, response.json()["errorCode"]) == (500, "INTERNAL_ERROR")
    assert "secret" not in response.text
    assert "/srv" not in response.text


async def test_a_store_that_is_gone_is_503_without_its_address(
    ask: Asker, jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("db.internal:5432 refuses connections")

    monkeypatch.setattr(jobs.store, "get", gone)
    monkeypatch.setattr(jobs.store, "insert", gone)
    read = await ask("alice", "GET", f"/api/jobs/{uuid4()}/status")
    write = await ask("alice", "POST", "/api/jobs", MAIL)
    for response in (read, write):
        assert (response.status_code, response.json()["errorCode"]) == (503, "STORE_UNAVAILABLE")
        assert "db.internal" not in response.text


async def test_only_names_that_are_allowed_reach_an_api_that_says_so(jobs: Gantline) -> None:
    settings = ApiSettings(allowed_hosts=("localhost", "::1"))
    api = jobs.api(authenticator=ByName(), settings=settings)
    async with asker_of(api) as ask:
        for host, status in (
            ("localhost:8080", 200),
            ("[::1]:8080", 200),
            ("LOCALHOST", 200),
            ("evil.example", 400),
            ("", 400),
        ):
            response = await ask("alice", "GET", "/api/jobs", headers={"host": host})
            assert response.status_code == status


def as_it_is(jobs: Gantline, settings: ApiSettings) -> Any:
    return jobs.api(authenticator=ByName(), settings=settings)


def as_a_router(jobs: Gantline, settings: ApiSettings) -> Any:
    web = FastAPI()
    web.include_router(jobs.router(authenticator=ByName(), settings=settings))
    return web


@pytest.mark.parametrize("mounted", [as_it_is, as_a_router])
async def test_more_requests_than_can_be_served_at_once_are_503(
    jobs: Gantline, mounted: Callable[..., Any]
) -> None:
    accepted = asyncio.Event()

    async def tell() -> None:
        accepted.set()

    jobs.after_submit = tell
    settings = ApiSettings(requests=Share(of_principal=2, of_tenant=2, in_process=1))
    async with asker_of(mounted(jobs, settings)) as ask:
        waiting = asyncio.create_task(
            ask("alice", "POST", "/api/jobs", MAIL, headers={"prefer": "wait=30"})
        )
        await accepted.wait()
        refused = await ask("alice", "GET", "/api/jobs")
        assert (refused.status_code, refused.json()["errorCode"]) == (503, "OVERLOADED")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await ask("alice", "GET", "/api/jobs")).status_code == 200


async def test_what_is_not_known_is_told_with_what_is(ask: Asker) -> None:
    """A misspelt name is mended from the answer alone."""
    job = await ask("alice", "POST", "/api/jobs", {"type": "mail", "payload": "a@example.org"})
    assert job.json()["errors"][0]["pointer"] == "#/jobType"
    assert "is missing; there are jobType, payload, " in job.json()["detail"]
    body = await ask("alice", "POST", "/api/dead-letters/redrive", {"jobId": []})
    assert body.json()["errors"][0]["pointer"] == "#/jobId"
    assert "is not known here; there are jobIds, " in body.json()["detail"]
    query = await ask("alice", "GET", "/api/jobs?stats=Queued")
    assert query.json()["errors"][0]["parameter"] == "stats"
    assert "is not known here; there are jobType, queue, " in query.json()["detail"]
    job_type = await ask("alice", "POST", "/api/jobs", {"jobType": "mial"})
    assert "GET /api/job-types" in job_type.json()["detail"]


@pytest.mark.parametrize(
    "headers", [{"authorization": "Basic YTpi"}, {"x-api-key": "k"}], ids=["scheme", "header"]
)
async def test_credentials_of_a_kind_that_nobody_knows_are_not_called_missing(
    api: Api, headers: dict[str, str]
) -> None:
    async with asker_of(api) as ask:
        problem = (await ask(None, "GET", "/api/jobs", headers=headers)).json()
        assert problem["errorCode"] == "INVALID_CREDENTIALS"
        assert "kind" in problem["detail"]
        nothing = (await ask(None, "GET", "/api/jobs")).json()
        assert nothing["errorCode"] == "UNAUTHENTICATED"
        assert "Authorization: Bearer" in nothing["detail"]
