"""The path of three operations: `python -m benchmarks.hot_path.calls_child FILE` tells its steps.

FILE is a new SQLite database. With PYTHONPATH it runs on the Gantline of any tree, so it uses
nothing but public names.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypedDict
from uuid import uuid4

from benchmarks.contest.meter import INVOICE, wait_for_go
from benchmarks.hot_path.json_watch import Crossing, JsonWatch
from benchmarks.hot_path.recorder import Recorder, Step

_WARM_UPS: Final = 5
_TIMES: Final = 21
_LONGEST_SECONDS: Final = 30.0


class Recorded(TypedDict):
    steps: list[Step]
    crossings: list[Crossing]


class Both:
    """The two that watch, started and stopped together."""

    def __init__(self, folder: Path, mark: str) -> None:
        self.recorder = Recorder(folder)
        self.json = JsonWatch(folder, mark)

    def install(self) -> None:
        self.json.install()
        self.recorder.install()

    def start(self) -> None:
        self.json.start()
        self.recorder.start()

    def stop(self) -> Recorded:
        return {"steps": self.recorder.stop(), "crossings": self.json.stop()}


def main() -> None:
    spec = find_spec("gantline")
    assert spec is not None
    assert spec.origin is not None
    module = Path(spec.origin)
    mark = uuid4().hex
    watch = Both(module.parent, mark)
    wait_for_go()
    print(json.dumps({"gantline": str(module)}), flush=True)
    watch.install()  # before Gantline is imported, and before any thread is started
    payload = INVOICE | {"note": mark + "x" * (130 - len(mark))}
    found = asyncio.run(_measured(f"sqlite:///{sys.argv[1]}", watch, payload))
    print(json.dumps(found), flush=True)


async def _measured(url: str, watch: Both, payload: dict[str, Any]) -> dict[str, Recorded]:
    import gantline

    app = gantline.Gantline(url)

    @app.job("invoices.send")
    async def send(invoice: dict[str, Any]) -> None:
        pass

    async def submit() -> Recorded:
        watch.start()
        await send.submit(payload)
        return watch.stop()

    api = app.api(allow_anonymous=True)

    async def get() -> Recorded:
        handle = await send.submit(payload)
        scope = _request(f"/api/jobs/{handle.job_id}")
        watch.start()
        status = await _status(api, scope)
        recorded = watch.stop()
        assert status == 200, status
        return recorded

    async def run(worker: Any) -> Recorded:
        """From the moment that the job is stored: a worker that waits hears of it after this."""
        await send.submit(payload)
        before = worker.counts["completed"]
        watch.start()
        await _counted(worker, before + 1)
        return watch.stop()

    async with app:
        found = {
            "JobType.submit": await _typical(submit),
            "GET /api/jobs/{id}": await _typical(get),
        }
        async with app.running() as worker:
            last = await send.submit(payload)
            await last.wait(_LONGEST_SECONDS)  # only then the worker is sure to have begun
            await _counted(worker, 2 * (_WARM_UPS + _TIMES) + 1)  # what the others have left
            found["a run, from claim to completion"] = await _typical(partial(run, worker))
    return found


async def _typical(operation: Callable[[], Awaitable[Recorded]]) -> Recorded:
    """Of several, the one in the middle by its calls: what a timer did in another is left out."""
    for _ in range(_WARM_UPS):
        await operation()
    taken = [await operation() for _ in range(_TIMES)]
    return sorted(taken, key=lambda recorded: len(recorded["steps"]))[_TIMES // 2]


async def _counted(worker: Any, completed: int) -> None:
    """Look from outside, for to be told would add to what is measured."""
    async with asyncio.timeout(_LONGEST_SECONDS):
        while worker.counts["completed"] < completed:  # noqa: ASYNC110  # nothing tells it
            await asyncio.sleep(0.001)


def _request(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
    }


async def _status(api: Any, scope: dict[str, Any]) -> int:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await api(scope, receive, send)
    status: int = sent[0]["status"]
    return status


if __name__ == "__main__":
    main()
