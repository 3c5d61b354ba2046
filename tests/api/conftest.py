"""An API over memory and over SQLite, and somebody to ask it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from gantline import Gantline
from gantline.api.application import Api
from gantline.testing.clock import FakeClock
from tests.api.application import AuditKept, ByName, make_jobs


class Asker:
    """Asks the API as somebody, and holds every answer to what all answers must be."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def __call__(
        self,
        who: str | None,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx2.Response:
        sent = dict(headers or {})
        if who is not None:
            sent.setdefault("authorization", f"Bearer {who}")
        if body is not None:
            content = msgspec.json.encode(body)
        if content is not None:
            sent.setdefault("content-type", "application/json")
        response = await self._client.request(method, path, content=content, headers=sent)
        check_answer(response)
        return response


def check_answer(response: httpx2.Response) -> None:
    """What holds for each and every answer."""
    assert response.headers["x-correlation-id"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "cache-control" in response.headers
    if response.status_code >= 400:
        check_problem(response)


def check_problem(response: httpx2.Response) -> None:
    assert response.headers["content-type"] == "application/problem+json"
    if response.request.method == "HEAD":
        return
    problem = response.json()
    assert problem["status"] == response.status_code
    assert problem["correlationId"] == response.headers["x-correlation-id"]
    assert problem["type"].endswith(problem["errorCode"].lower().replace("_", "-"))
    for key in ("title", "detail", "instance", "retryable", "errors"):
        assert key in problem
    assert "Traceback" not in response.text
    if response.status_code == 401:
        assert response.headers["www-authenticate"]
    if response.status_code in (429, 503):
        assert int(response.headers["retry-after"]) >= 1
        assert problem["retryable"] is True


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def audit() -> AuditKept:
    return AuditKept()


@pytest.fixture(params=["memory", "sqlite"])
async def jobs(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Gantline]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/gantline.db"
    async with make_jobs(url, clock) as opened:
        yield opened


@pytest.fixture
def api(jobs: Gantline, audit: AuditKept) -> Api:
    return jobs.api(authenticator=ByName(), audit=audit)


@pytest.fixture
async def ask(api: Api) -> AsyncIterator[Asker]:
    async with asker_of(api) as asker:
        yield asker


class asker_of:  # noqa: N801  # reads as the function that it is
    """Somebody to ask an ASGI application, without a server in between."""

    def __init__(self, app: Any) -> None:
        transport = httpx2.ASGITransport(app=app)
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://api.test")

    async def __aenter__(self) -> Asker:
        return Asker(self._client)

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()
