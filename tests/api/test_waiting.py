"""Prefer: wait, which holds an answer until the job has ended, and no longer."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from fastapi import FastAPI

from gantline import Gantline
from gantline.api import ApiSettings
from gantline.api.application import Api
from gantline.api.server import ApiServer
from gantline.api.shares import Share
from gantline.contract.wakeup import Hint
from gantline.integrations.fastapi import enqueue
from gantline.wakeups.job_waiter import JobWaiter
from tests.api.application import ByName, make_jobs
from tests.api.conftest import Asker, asker_of
from tests.api.playing import PERMANENT, run_all, stored
from tests.api.test_submit import DOCUMENT, MAIL, submit

ONE = Share(of_principal=1, of_tenant=1, in_process=1)


class Submitted:
    """Tells when a job was accepted."""

    def __init__(self, jobs: Gantline) -> None:
        self._event = asyncio.Event()
        jobs.after_submit = self._told

    async def _told(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event.clear()

    def clear(self) -> None:
        self._event.clear()


async def test_a_job_that_ends_in_time_is_answered_with_its_end(ask: Asker, jobs: Gantline) -> None:
    submitted = Submitted(jobs)
    waiting = asyncio.create_task(submit(ask, DOCUMENT, prefer="wait=30"))
    await submitted.wait()
    await run_all(jobs, PERMANENT)
    jobs.wakeup.notify(Hint.ENDED)
    response = await waiting
    status = response.json()
    assert (response.status_code, status["status"]) == (200, "Failed")
    assert response.headers["preference-applied"] == "wait=30"
    assert response.headers["vary"] == "Prefer"
    assert response.headers["content-location"] == f"/api/jobs/{status['jobId']}/status"
    read = await ask("alice", "GET", response.headers["content-location"])
    assert (read.json(), read.headers["etag"]) == (status, response.headers["etag"])


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        ("wait=0", "wait=0"),
        ("respond-async, wait=0", "wait=0"),
        ("wait=0, wait=9", "wait=0"),
        ('wait="0"; a=b', "wait=0"),
        ("respond-async", None),
        ("wait", None),
        ("wait=soon", None),
        ("wait=-1", None),
        (",;,=", None),
    ],
)
async def test_a_job_that_does_not_is_answered_202(
    ask: Asker, prefer: str, applied: str | None
) -> None:
    response = await submit(ask, DOCUMENT, prefer=prefer)
    assert response.status_code == 202
    assert response.headers.get("preference-applied") == applied


async def test_nobody_waits_longer_than_the_api_allows(jobs: Gantline) -> None:
    settings = ApiSettings(longest_wait_seconds=0.01)
    async with asker_of(jobs.api(authenticator=ByName(), settings=settings)) as ask:
        response = await submit(ask, DOCUMENT, prefer="wait=1000")
        assert response.status_code == 202


async def test_a_duplicate_waits_for_the_job_that_there_is(ask: Asker, jobs: Gantline) -> None:
    first = (await submit(ask)).json()
    await run_all(jobs)
    response = await submit(ask, DOCUMENT, prefer="wait=30")
    assert (response.status_code, response.json()["jobId"]) == (200, first["jobId"])


async def test_who_may_not_read_does_not_wait(ask: Asker, jobs: Gantline) -> None:
    response = await submit(ask, MAIL, "submitter", prefer="wait=30")
    assert response.status_code == 202
    await submit(ask, DOCUMENT, "submitter")
    await run_all(jobs)
    response = await submit(ask, DOCUMENT, "submitter", prefer="wait=30")
    assert (response.status_code, response.json()["status"]) == (202, None)


async def test_a_cancelled_job_ends_the_wait(ask: Asker, jobs: Gantline) -> None:
    submitted = Submitted(jobs)
    waiting = asyncio.create_task(submit(ask, DOCUMENT, prefer="wait=30"))
    await submitted.wait()
    (job,) = (await ask("alice", "GET", "/api/jobs")).json()["items"]
    await ask("alice", "POST", f"/api/jobs/{job['jobId']}/cancel")
    assert (await waiting).json()["status"] == "Cancelled"


async def test_more_than_may_wait_are_answered_at_once(jobs: Gantline) -> None:
    settings = ApiSettings(waits=ONE)
    submitted = Submitted(jobs)
    async with asker_of(jobs.api(authenticator=ByName(), settings=settings)) as ask:
        waiting = asyncio.create_task(submit(ask, DOCUMENT, prefer="wait=30"))
        await submitted.wait()
        await asyncio.sleep(0)  # lets it begin to wait
        response = await submit(ask, MAIL, prefer="wait=30")
        assert response.status_code == 202
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


class Caller:
    """Sends a request by ASGI itself, and hangs up when he likes."""

    def __init__(self, app: Any, body: Any, path: str = "/api/jobs") -> None:
        self._body = msgspec.json.encode(body)
        self._is_sent = False
        self._gone = asyncio.Event()
        self.answers: list[Any] = []
        headers = {"authorization": "Bearer alice", "content-type": "application/json"}
        pairs = [*headers.items(), ("prefer", "wait=30")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in pairs],
        }
        self.request = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if not self._is_sent:
            self._is_sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.answers.append(message)

    def hang_up(self) -> None:
        self._gone.set()


def in_fastapi(api: Api, jobs: Gantline) -> FastAPI:
    app = FastAPI()
    sweep = jobs.find_type("sweep")
    assert sweep is not None
    enqueue(app, "/sweep", sweep, api=api)
    app.mount("/", api)
    return app


@pytest.mark.parametrize("path", ["/api/jobs", "/sweep"])
async def test_who_hangs_up_leaves_his_place_to_others(jobs: Gantline, path: str) -> None:
    submitted = Submitted(jobs)
    api = jobs.api(authenticator=ByName(), settings=ApiSettings(waits=ONE))
    app = in_fastapi(api, jobs)
    caller = Caller(app, {"jobType": "sweep"} if path == "/api/jobs" else None, path)
    await submitted.wait()
    async with asker_of(app) as ask:
        assert (await submit(ask, MAIL, prefer="wait=30")).status_code == 202  # no place is left
        submitted.clear()
        caller.hang_up()
        async with asyncio.timeout(10):
            await caller.request
        waiting = asyncio.create_task(submit(ask, DOCUMENT, prefer="wait=30"))
        await submitted.wait()
        await run_all(jobs)
        jobs.wakeup.notify(Hint.ENDED)
        assert (await waiting).status_code == 200
    assert len(await stored(jobs)) == 3, "what was accepted is kept, whoever hangs up"


async def test_the_end_of_a_connection_is_noticed_by_a_real_server(jobs: Gantline) -> None:
    submitted = Submitted(jobs)
    api = jobs.api(authenticator=ByName())
    server = ApiServer(api, host="127.0.0.1", port=0)
    serving = asyncio.create_task(server.serve())
    address = urlsplit(server.url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    body = b'{"jobType":"sweep"}'
    writer.write(
        b"POST /api/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\nPrefer: wait=30\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    await submitted.wait()
    writer.close()
    await writer.wait_closed()
    server.stop()
    async with asyncio.timeout(10):  # it answers all who wait before it stops
        await serving


async def test_a_worker_of_another_process_ends_the_wait_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its hint: looking by ourselves is put off for so long that it could not be it."""
    for looking in ("FIRST_LOOK", "LONGEST_LOOK", "LONGEST_LOOK_WITH_HINTS"):
        monkeypatch.setattr(f"gantline.wakeups.job_waiter._{looking}_SECONDS", 60.0)
    url = f"sqlite:///{tmp_path}/gantline.db"
    async with (
        make_jobs(url) as jobs,
        make_jobs(url) as elsewhere,
        elsewhere.running(),
        asker_of(jobs.api(authenticator=ByName())) as ask,
    ):
        sweep = elsewhere.find_type("sweep")
        assert sweep is not None
        await (await sweep.submit(None)).wait(30)  # then the worker is there, and listens
        response = await submit(ask, DOCUMENT, prefer="wait=30")
        assert (response.status_code, response.json()["result"]) == (200, {"pages": 3})


async def test_without_any_hint_it_is_found_by_looking(jobs: Gantline) -> None:
    class Deaf:
        is_listening = False

        async def open(self, on_hint: Any) -> None: ...

        def notify(self, hint: Hint = Hint.WORK, *, job_id: Any = None) -> None: ...

        async def close(self) -> None: ...

    waiter = JobWaiter(jobs.store, Deaf)
    job = jobs.find_type("sweep")
    assert job is not None
    handle = await job.submit(None)
    waiting = asyncio.create_task(waiter.wait(handle.job_id, 30))
    await asyncio.sleep(0)
    await run_all(jobs)
    ended = await waiting
    assert ended is not None
    assert ended.status.is_terminal
    await waiter.close()


async def test_a_look_that_fails_is_tried_again(
    jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.find_type("sweep")
    assert job is not None
    handle = await job.submit(None)
    await run_all(jobs)
    failures = 2
    get = jobs.store.get

    async def flaky(*args: Any, **kwargs: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise OSError("no route")
        return await get(*args, **kwargs)

    monkeypatch.setattr(jobs.store, "get", flaky)
    waiter = JobWaiter(jobs.store, jobs.new_wakeup)
    ended = await waiter.wait(handle.job_id, 30)
    assert ended is not None
    await waiter.close()
