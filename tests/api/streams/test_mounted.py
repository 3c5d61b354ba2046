"""Streams where the API is mounted in an application of somebody else."""

import signal
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException
from starlette.applications import Starlette
from starlette.routing import Mount

from gantline import Gantline
from gantline.auth.peppers import Peppers
from gantline.auth.principal import Principal
from gantline.auth.stream_tokens import StreamTokens
from tests.api.application import PRINCIPALS, ByName
from tests.api.conftest import Asker, asker_of
from tests.api.streams.event_stream import listening_to
from tests.api.streams.playing import HASTY, names, new_job, run_all, streams


def current_user(authorization: Annotated[str, Header()] = "") -> Principal:
    name = authorization.removeprefix("Bearer ")
    if name not in PRINCIPALS:
        raise HTTPException(401, "who are you?")
    return PRINCIPALS[name]


def in_fastapi(jobs: Gantline, **options: Any) -> FastAPI:
    app = FastAPI()
    app.include_router(jobs.router(principal=Depends(current_user), **options))
    return app


async def test_a_router_of_fastapi_streams(ask: Asker, jobs: Gantline) -> None:
    async with listening_to(in_fastapi(jobs, settings=HASTY)) as listen:
        job_id = await new_job(ask)
        path = f"/api/jobs/{job_id}/events"
        stream = await listen("alice", path)
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["x-correlation-id"]
        assert "content-length" not in stream.headers
        assert (await stream.hears()).shown == ("state", "Queued")
        await run_all(jobs)
        heard = await stream.ends()
        assert names(heard)[-1] == "completed"
        assert (await listen("alice", path, last=heard[-1].last_id)).status == 204
        assert (await listen("eve", path)).status == 404
        assert (await listen("nobody", path)).status == 401
        assert (await listen("alice", path, method="HEAD")).status == 200


async def test_who_was_told_by_a_dependency_is_asked_for_anew_by_coming_back(
    ask: Asker, jobs: Gantline
) -> None:
    """It cannot be called again for an open stream, so that must not be open for long."""
    settings = streams(longest_unchecked_seconds=0.01)
    async with listening_to(in_fastapi(jobs, settings=settings)) as listen:
        job_id = await new_job(ask)
        stream = await listen("alice", f"/api/jobs/{job_id}/events")
        assert names(await stream.ends()) == ["state"]


async def test_a_token_leads_to_where_the_api_is_mounted(jobs: Gantline) -> None:
    tokens = StreamTokens(Peppers.random(), clock=jobs.clock)
    api = jobs.api(authenticator=ByName(), settings=HASTY, stream_tokens=tokens)
    app = Starlette(routes=[Mount("/jobs-of-ours", api)])
    async with asker_of(app) as ask, listening_to(app) as listen:
        body = {"jobType": "sweep", "payload": None}
        job_id = (await ask("alice", "POST", "/jobs-of-ours/api/jobs", body)).json()["jobId"]
        path = f"/jobs-of-ours/api/jobs/{job_id}/events"
        response = await ask("alice", "POST", f"{path}/token")
        assert response.json()["url"].startswith(f"{path}?token=")
        assert f"Path={path};" in response.headers["set-cookie"]
        stream = await listen(None, response.json()["url"])
        assert (await stream.hears()).data["jobId"] == job_id


async def test_a_uvicorn_that_is_somebody_elses_is_seen_to_stop(ask: Asker, jobs: Gantline) -> None:
    class Server:
        should_exit = False

        def handle_exit(self, number: int, frame: object) -> None:
            """As uvicorn installs its own."""

    server = Server()
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        async with listening_to(jobs.api(authenticator=ByName(), settings=HASTY)) as listen:
            job_id = await new_job(ask)
            stream = await listen("alice", f"/api/jobs/{job_id}/events")
            await stream.hears()
            server.should_exit = True
            assert await stream.ends() == []
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("path", ["/api/events", "/api/events/token"])
async def test_other_origins_may_read_only_if_they_are_named(jobs: Gantline, path: str) -> None:
    async with asker_of(jobs.api(authenticator=ByName(), settings=HASTY)) as ask:
        origin = {"origin": "https://evil.example"}
        method = "POST" if path.endswith("token") else "HEAD"
        response = await ask("alice", method, path, headers=origin)
        assert "access-control-allow-origin" not in response.headers
