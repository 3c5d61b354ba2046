"""A job is followed to its end though the API is killed and restarted: nothing missed or doubled.

By curl and by a browser's own EventSource, on SQLite and on PostgreSQL, from real processes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from gantline import Gantline, WorkerSettings
from gantline.api.seal import read_seal
from gantline.auth.peppers import PEPPER_VARIABLE, new_pepper
from gantline.contract.status import Event
from tests.api.streams.event_stream import Heard, Parser, opened
from tests.api.streams.followed import ORIGIN, Steps, make_followed
from tests.api.streams.followers import PATIENCE_SECONDS, Curl, browsing, empty_page
from tests.api.streams.playing import numbers
from tests.servers.api import BY_GANTLINE, BY_UVICORN, ApiProcess
from tests.servers.postgres import PostgresServer
from tests.servers.web import WebServer

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]

LOGGED = [event.value for event in Event]
WORKER = WorkerSettings(queues={"steps": 2, "noise": 2})


@pytest.fixture
def page() -> Iterator[WebServer]:
    server = empty_page()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gantline.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(schema=f"w{uuid4().hex}")


@asynccontextmanager
async def serving(
    store_url: str, page: WebServer, *, by: tuple[str, ...] = BY_GANTLINE
) -> AsyncIterator[ApiProcess]:
    environment = {
        "GANTLINE_STORE": store_url,
        ORIGIN: page.url,
        PEPPER_VARIABLE: f"1:{new_pepper()}",
    }
    process = ApiProcess("tests.api.streams.followed:api", by=by, **environment)
    try:
        await asyncio.to_thread(process.start)
        yield process
    finally:
        process.close()


async def post(api: ApiProcess, path: str, body: Any = None, who: str = "alice") -> Any:
    async with httpx2.AsyncClient(base_url=api.url) as client:
        response = await client.post(path, json=body, headers={"authorization": f"Bearer {who}"})
        response.raise_for_status()
        return response.json()


def has_logged(number: int) -> Callable[[list[Heard]], bool]:
    return lambda heard: len(logged(heard)) >= number


def logged(heard: list[Heard]) -> list[Heard]:
    return [event for event in heard if event.name in LOGGED]


def has_progressed(percent: int) -> Callable[[list[Heard]], bool]:
    return lambda heard: any(event.data["progress"] == percent for event in heard)


async def numbers_of(jobs: Gantline, job_id: str) -> list[tuple[str, int]]:
    """What there was to be heard."""
    events = await jobs.store.events(after=0, limit=10_000)
    return [
        (event.entry.event.value, event.sequence)
        for event in events
        if event.entry.job_id == UUID(job_id)
    ]


async def make_noise(api: ApiProcess) -> list[str]:
    """Jobs of somebody else, between those that are followed."""
    made = [
        await post(api, "/api/jobs", {"jobType": "noise", "payload": number}, "eve")
        for number in range(3)
    ]
    return [noise["jobId"] for noise in made]


@pytest.mark.wide
async def test_curl_and_a_browser_follow_a_job_to_its_end_across_restarts(
    store_url: str, page: WebServer
) -> None:
    steps = Steps()
    jobs = make_followed(store_url, steps)
    async with jobs, serving(store_url, page) as api, browsing(page.url) as browser:
        job_id = (await post(api, "/api/jobs", {"jobType": "steps", "payload": "one"}))["jobId"]
        path = f"/api/jobs/{job_id}/events"
        token = await post(api, f"{path}/token")
        curl = Curl(api.url + path, "alice")
        await browser.follow(api.url + token["url"], ["state", "progress", "reset", *LOGGED])
        followers = (curl, browser)
        noise: list[str] = []
        try:
            for follower in followers:
                await follower.until(lambda heard: [event.name for event in heard] == ["state"])
            async with jobs.running(WORKER):
                steps.next("25")
                for follower in followers:
                    await follower.until(has_progressed(25))
                steps.next("again")
                noise += await make_noise(api)
                for follower in followers:
                    await follower.until(has_logged(1))
                api.kill()
                steps.next("again")
                steps.next("again")
                await _until_logged(jobs, job_id, 3)
                await asyncio.to_thread(api.start)
                for follower in followers:
                    await follower.until(has_logged(3))
                noise += await make_noise(api)
                steps.next("again")
                assert await asyncio.to_thread(api.stop) == 0, api.log
                await _until_logged(jobs, job_id, 4)
                steps.next("50")
                await asyncio.to_thread(api.start)
                for follower in followers:
                    await follower.until(has_progressed(50))
                api.kill()
                steps.next("end")
                await _until_logged(jobs, job_id, 5)
                await asyncio.to_thread(api.start)
                for follower in followers:
                    await follower.until(has_logged(5))
                    await follower.until_it_gave_up()
            expected = await numbers_of(jobs, job_id)
            assert [name for name, _ in expected] == ["retried"] * 4 + ["completed"]
            for follower in followers:
                heard = logged(follower.heard)
                positions = await numbers(jobs, heard)
                named = zip(heard, positions, strict=True)
                assert [(event.name, number) for event, number in named] == expected
                assert heard[-1].data["result"] == {"name": "one"}
                assert "reset" not in [event.name for event in follower.heard]
                versions = [event.data["version"] for event in follower.heard]
                assert versions == sorted(versions)
                assert {event.data["jobId"] for event in follower.heard} == {job_id}
            assert len(noise) == 6
            assert not any(other in curl.text.decode() for other in noise)
        finally:
            await curl.close()


async def _until_logged(jobs: Gantline, job_id: str, number: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if len(await jobs.store.history(UUID(job_id), tenant_id=None)) >= number:
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("by", [BY_GANTLINE, BY_UVICORN], ids=["gantline", "uvicorn"])
async def test_a_server_that_is_told_to_stop_does_not_wait_for_its_streams(
    tmp_path: Path, page: WebServer, by: tuple[str, ...]
) -> None:
    store_url = f"sqlite:///{tmp_path}/gantline.db"
    async with serving(store_url, page, by=by) as api:
        async with httpx2.AsyncClient(base_url=api.url, timeout=60) as client:
            headers = {"authorization": "Bearer viewer"}
            async with client.stream("GET", "/api/events", headers=headers) as response:
                texts = response.aiter_bytes()
                assert (await anext(texts)).startswith(b"retry: 3000")
                stopping = asyncio.create_task(asyncio.to_thread(api.stop))
                # A clean end: the client would raise if the body had just been cut off.
                parser = Parser()
                async for text in texts:
                    assert list(parser.feed(text)) == []
        code = await stopping
        assert code in (0, -15), api.log  # uvicorn raises the signal again when it is done
        assert "Traceback" not in api.log
        assert "Cancel" not in api.log


async def test_a_page_follows_many_jobs_by_one_stream_and_hears_of_its_own_only(
    tmp_path: Path, page: WebServer
) -> None:
    """Its lastEventId moves on by pings, though nothing is told: so a gap before it is no reset."""
    store_url = f"sqlite:///{tmp_path}/gantline.db"
    steps = Steps()
    jobs = make_followed(store_url, steps)
    async with jobs, serving(store_url, page) as api, browsing(page.url) as browser:
        mine = [
            (await post(api, "/api/jobs", {"jobType": "steps", "payload": name}))["jobId"]
            for name in ("one", "two")
        ]
        token = await post(api, "/api/events/token")
        await browser.follow(api.url + token["url"], ["state", "reset", *LOGGED])
        await browser.until(lambda heard: len(heard) == 2)
        async with jobs.running(WORKER):
            noise = await make_noise(api)
            for other in noise:
                await _until_logged(jobs, other, 1)
            await _until_pings_say(jobs, api, 3)
            await jobs.manager.delete([UUID(noise[-1])], tenant_id="evil")
            api.kill()
            for step in ("again", "end", "end"):
                steps.next(step)
            for job_id in mine:
                await _until_logged(jobs, job_id, 1)
            await asyncio.to_thread(api.start)
            await browser.until(has_logged(3))
        ended = [event.data["jobId"] for event in browser.heard if event.name == "completed"]
        assert sorted(ended) == sorted(mine)
        assert await numbers(jobs, logged(browser.heard)) == [4, 5, 6]
        assert "reset" not in [event.name for event in browser.heard]
        assert {event.data["jobId"] for event in browser.heard} == set(mine)


async def _until_pings_say(jobs: Gantline, api: ApiProcess, number: int) -> None:
    """Wait as long as two pings take, which those who have listened for longer get as well."""
    async with httpx2.AsyncClient(base_url=api.url, timeout=PATIENCE_SECONDS) as client:
        headers = {"authorization": "Bearer mailer"}
        async with client.stream("GET", "/api/events", headers=headers) as response:
            parser, texts = Parser(), response.aiter_bytes()
            seal = await read_seal(jobs.store)
            while opened(seal, parser.last_id) != number or len(parser.comments) < 2:
                assert list(parser.feed(await anext(texts))) == []
