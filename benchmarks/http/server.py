"""The server that is measured: `python -m benchmarks.http.server STORE CACHE_SECONDS`.

Prints its URL, an API key and the id of a job that has ended; stops when its input ends.
"""

import asyncio
import json
import os
import sys
from typing import Any, Final

import msgspec
from starlette.responses import Response

from gantline import Gantline
from gantline.api.application import Api, Resource
from gantline.api.call import Call
from gantline.api.operation import Operation
from gantline.api.rate_limits import RateLimits
from gantline.api.requests import JobToSubmit
from gantline.api.server import ApiServer
from gantline.api.settings import ApiSettings
from gantline.auth.action import Action
from gantline.auth.api_key import KeyGrant
from gantline.auth.api_key_authenticator import ApiKeyAuthenticator
from gantline.auth.api_keys import ApiKeys
from gantline.auth.peppers import Peppers
from gantline.cli.process import run_tuned

CONSTANT_PATH: Final = "/constant"
_ACCEPTED: Final = (
    b'{"jobId":"01998f3e-aaaa-7aaa-8aaa-aaaaaaaaaaaa","subjectId":"d1-100","statusUrl":'
    b'"/api/jobs/01998f3e-aaaa-7aaa-8aaa-aaaaaaaaaaaa/status","status":"Queued","duplicate":false}'
)
_HEADERS: Final = {
    "content-type": "application/json",
    "cache-control": "no-store",
    "vary": "Prefer",
    "location": "/api/jobs/01998f3e-aaaa-7aaa-8aaa-aaaaaaaaaaaa/status",
    "retry-after": "1",
}


class Document(msgspec.Struct, rename="camel"):
    document_id: str
    row_version: int = 1


def make_jobs(store: str) -> Gantline:
    jobs = Gantline(store)

    @jobs.job("index", subject="{document_id}")
    async def index(document: Document) -> dict[str, int]:
        return {"pages": 3}

    return jobs


async def constant(call: Call) -> Response:
    """The same bytes behind the same authentication, read and decoded alike."""
    return Response(_ACCEPTED, 202, _HEADERS)


class WithConstant:
    """The API, and the constant route beside it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        operation = Operation(
            name="constant",
            method="POST",
            path=CONSTANT_PATH,
            tag="",
            right=Action.SUBMIT,
            summary="",
            run=constant,
            body=JobToSubmit,
            answers={},
        )
        self._constant = Resource(api.dispatcher, [operation])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == CONSTANT_PATH:
            await self._constant(scope, receive, send)
        else:
            await self._api(scope, receive, send)


async def serve(store: str, cache_seconds: str) -> None:
    os.environ["GANTLINE_READ_CACHE_SECONDS"] = cache_seconds
    jobs = make_jobs(store)
    async with jobs:
        keys = ApiKeys(jobs.store, Peppers.random(), clock=jobs.clock)
        issued = await keys.create(KeyGrant(name="bench"))
        unlimited = RateLimits(per_key_here=None, per_tenant_here=None)
        settings = ApiSettings(rate_limits=unlimited)
        api = jobs.api(authenticator=ApiKeyAuthenticator(keys), settings=settings)
        server = ApiServer(WithConstant(api), host="127.0.0.1", port=0)
        serving = asyncio.create_task(server.serve())
        ended = await _ended_job(jobs, f"key:{issued.key.id}")
        print(json.dumps({"url": server.url, "key": issued.text, "job": ended}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.stop()
        await serving


async def _ended_job(jobs: Gantline, owner: str) -> str:
    index = jobs.find_type("index")
    assert index is not None
    handle = await index.submit(Document("d1"), owner=owner)
    async with jobs.running():
        await handle.wait(30)
    return str(handle.job_id)


if __name__ == "__main__":
    run_tuned(serve(sys.argv[1], sys.argv[2]))
