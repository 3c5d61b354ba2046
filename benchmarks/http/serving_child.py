"""The API that is measured: `python -m benchmarks.http.serving_child URL`.

Beside it a route with the same authentication and the same body, which answers what the first did
without storing anything. Says its port and an API key, and serves until its input is closed.
"""

import asyncio
import json
import sys

import msgspec
from starlette.routing import Route, Router

from benchmarks.http.routes import CONSTANT, SUBMIT
from benchmarks.worker.meter import INVOICE
from windlass import Windlass
from windlass.api.answer import Answer
from windlass.api.application import Api, Resource
from windlass.api.call import Call
from windlass.api.server import ApiServer
from windlass.auth.api_key import KeyGrant
from windlass.auth.api_keys import ApiKeys
from windlass.auth.key_authenticator import ApiKeyAuthenticator
from windlass.auth.peppers import Peppers
from windlass.auth.principal import Role
from windlass.worker.tuning import run_tuned


def main() -> None:
    run_tuned(_serve(sys.argv[1]))


async def _serve(url: str) -> None:
    jobs = Windlass(url)

    @jobs.job("no_op")
    async def no_op(invoice: dict[str, object]) -> None: ...

    async with jobs:
        keys = ApiKeys(jobs.store, Peppers.random(), clock=jobs.clock)
        issued = await keys.create(KeyGrant(name="load", roles=frozenset({Role.OPERATOR})))
        api = jobs.api(authenticator=ApiKeyAuthenticator(keys))
        server = ApiServer(_with_constant(api), host="127.0.0.1", port=0)
        serving = asyncio.create_task(server.serve())
        handle = await no_op.submit(dict(INVOICE))
        print(json.dumps([server.url, issued.text, str(handle.job_id)]), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.stop()
        await serving


def _with_constant(api: Api) -> Router:
    submit = next(one for one in api.operations if (one.method, one.path) == ("POST", SUBMIT))

    async def answer(call: Call) -> Answer:
        return _ANSWER

    constant = Resource(api.desk, [msgspec.structs.replace(submit, run=answer)])
    return Router([Route(CONSTANT, constant), *api.routes], redirect_slashes=False)


_ID = "01890000-0000-7000-8000-000000000000"
_DOCUMENT = {
    "jobId": _ID,
    "subjectId": "",
    "statusUrl": f"/api/jobs/{_ID}/status",
    "status": "Queued",
    "duplicate": False,
}
_ANSWER = Answer(
    202,
    msgspec.json.encode(_DOCUMENT),
    [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"vary", b"Prefer"),
        (b"location", f"/api/jobs/{_ID}/status".encode()),
        (b"retry-after", b"1"),
    ],
)


if __name__ == "__main__":
    main()
