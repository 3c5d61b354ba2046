"""Mounting: nobody serves an API by mistake that lets everybody in."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gantline import Gantline, InvalidInput
from gantline.api import ApiSettings
from gantline.contract.errors import AuthMisconfigured
from tests.api.application import ByName, make_jobs
from tests.api.conftest import asker_of
from tests.api.test_submit import DOCUMENT


def test_an_api_without_an_authenticator_does_not_start(jobs: Gantline) -> None:
    with pytest.raises(AuthMisconfigured) as raised:
        jobs.api()
    for choice in ("ApiKeyAuthenticator", "JwtAuthenticator", "AnyOf", "allow_anonymous"):
        assert choice in str(raised.value)
    with pytest.raises(AuthMisconfigured, match="both"):
        jobs.api(authenticator=ByName(), allow_anonymous=True)


async def test_who_allows_everybody_says_so(jobs: Gantline) -> None:
    async with asker_of(jobs.api(allow_anonymous=True)) as ask:
        response = await ask(None, "POST", "/api/jobs", DOCUMENT)
        assert response.status_code == 202
        assert (await ask(None, "GET", response.json()["statusUrl"])).status_code == 200


@pytest.mark.parametrize(
    "settings", [{"cors_origins": ("*",)}, {"mounted_at": "gantline"}, {"mounted_at": "/a/"}]
)
def test_settings_that_are_not_safe_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        ApiSettings(**settings)  # type: ignore[arg-type]  # wrong on purpose


async def test_the_first_request_opens_the_store(tmp_path: Path) -> None:
    """A mounted application does not hear of the start of the one that it is mounted in."""
    jobs = make_jobs(f"sqlite:///{tmp_path}/gantline.db")
    async with asker_of(jobs.api(authenticator=ByName())) as ask:
        assert (await ask("alice", "GET", "/api/jobs")).status_code == 200
    assert jobs.is_open
    await jobs.close()


async def test_a_store_that_cannot_be_opened_is_503(tmp_path: Path) -> None:
    jobs = make_jobs(f"sqlite:///{tmp_path}/no/such/folder/gantline.db")
    async with asker_of(jobs.api(authenticator=ByName())) as ask:
        response = await ask("alice", "GET", "/api/jobs")
        assert response.status_code == 503
        assert str(tmp_path) not in response.text


async def test_health_is_served_without_credentials(jobs: Gantline) -> None:
    app = jobs.api(authenticator=ByName())
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://api.test") as client:
        assert (await client.get("/healthz")).json()["ok"] is True
        assert (await client.get("/readyz")).json()["ok"] is True
        assert (await client.get("/metrics")).status_code == 404
    shown = jobs.api(authenticator=ByName(), settings=ApiSettings(show_metrics=True))
    transport = httpx2.ASGITransport(app=shown)
    async with httpx2.AsyncClient(transport=transport, base_url="http://api.test") as client:
        assert "gantline_queue_depth" in (await client.get("/metrics")).text


async def test_probes_may_ask_by_paths_of_their_own(jobs: Gantline) -> None:
    paths: dict[str, Any] = {"live_path": "/v1/health/live", "ready_path": "/v1/health/ready"}
    transport = httpx2.ASGITransport(
        app=jobs.api(authenticator=ByName(), settings=ApiSettings(**paths))
    )
    async with httpx2.AsyncClient(transport=transport, base_url="http://api.test") as client:
        for path in (*paths.values(), "/healthz", "/readyz"):
            assert (await client.get(path)).json()["ok"] is True, path
    refused: list[dict[str, Any]] = [
        {"live_path": "/api/jobs"},
        {"ready_path": "/healthz"},
        {"live_path": "/a b"},
    ]
    for wrong in refused:
        with pytest.raises(InvalidInput, match="health pages cannot be at"):
            jobs.api(authenticator=ByName(), settings=ApiSettings(**wrong))
    with pytest.raises(InvalidInput, match="page of the metrics"):
        jobs.health_app(live_path="/metrics")


async def test_the_lifespan_opens_and_closes(tmp_path: Path) -> None:
    jobs = make_jobs(f"sqlite:///{tmp_path}/gantline.db")
    api = jobs.api(authenticator=ByName())
    received = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    messages: list[str] = []

    async def receive() -> dict[str, str]:
        message = next(received)
        assert jobs.is_open is (message["type"] == "lifespan.shutdown")
        return message

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message["type"])

    await api({"type": "lifespan"}, receive, send)
    assert messages == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert not jobs.is_open


async def test_a_start_that_fails_is_told_to_the_server(tmp_path: Path) -> None:
    jobs = make_jobs(f"sqlite:///{tmp_path}/no/such/folder/gantline.db")
    messages: list[str] = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup"}

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message["type"])

    await jobs.api(authenticator=ByName())({"type": "lifespan"}, receive, send)
    assert messages == ["lifespan.startup.failed"]


async def test_what_cannot_be_audited_is_not_done(jobs: Gantline) -> None:
    class Broken:
        async def record(self, entry: Any) -> None:
            raise OSError("the audit log is full")

    async with asker_of(jobs.api(authenticator=ByName(), audit=Broken())) as ask:
        accepted = await ask("alice", "POST", "/api/jobs", DOCUMENT)
        path = f"/api/jobs/{accepted.json()['jobId']}"
        for who, method, where in (
            (None, "GET", "/status"),
            ("eve", "GET", "/status"),
            ("alice", "POST", "/cancel"),
        ):
            response = await ask(who, method, path + where)
            assert (response.status_code, response.json()["errorCode"]) == (500, "INTERNAL_ERROR")
        assert (await ask("alice", "GET", f"{path}/status")).json()["status"] == "Queued"
