"""The fleet: the pages of several worker processes as one, for the supervisor that runs them.

Every child serves its own pages on a local socket; the supervisor asks them all when it is asked.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gantline.telemetry.health import LOOP_MAY_BE_SILENT_SECONDS
from gantline.telemetry.merging import merged, up
from gantline.telemetry.metrics import METRICS_TYPE, NOT_INSTALLED
from gantline.telemetry.routes import Response, Routes

# More than a child waits for its store, less than a probe waits for us.
_DEADLINE_SECONDS: Final = 3.5


class Fleet:
    """Ready when all are; alive as long as the supervisor is, for it starts the others anew."""

    def __init__(self, children: Sequence[Path], *, idle_seconds: Callable[[], float]) -> None:
        """`idle_seconds`: how long ago the supervisor last looked after its children."""
        self._children = children
        self._idle_seconds = idle_seconds

    async def alive(self) -> Response:
        ok = self._idle_seconds() <= LOOP_MAY_BE_SILENT_SECONDS
        return Response.of(200 if ok else 503, {"ok": ok})

    async def ready(self) -> Response:
        answers = await self._ask_all("/readyz")
        processes = [_shown(number, answer) for number, answer in enumerate(answers)]
        ok = all(process["ok"] for process in processes)
        return Response.of(200 if ok else 503, {"ok": ok, "processes": processes})

    async def metrics(self) -> Response:
        answers = await self._ask_all("/metrics")
        if any(answer is not None and answer.status == 404 for answer in answers):
            return NOT_INSTALLED
        pages = {
            str(number): answer.body.decode()
            for number, answer in enumerate(answers)
            if answer is not None and answer.status == 200
        }
        processes = [(str(number), str(number) in pages) for number in range(len(answers))]
        return Response(200, (merged(pages) + up(processes)).encode(), METRICS_TYPE)

    async def _ask_all(self, path: str) -> list[Response | None]:
        return await asyncio.gather(*(_ask(child, path) for child in self._children))


def fleet_routes(fleet: Fleet) -> Routes:
    return Routes({"/healthz": fleet.alive, "/readyz": fleet.ready, "/metrics": fleet.metrics})


async def _ask(child: Path, path: str) -> Response | None:
    """One page of a child; None where it does not answer."""
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            reader, writer = await asyncio.open_unix_connection(child)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                said = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = said.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    return Response(int(words[1]), body) if len(words) == 3 else None


def _shown(number: int, answer: Response | None) -> dict[str, Any]:
    if answer is None:
        return {"process": number, "ok": False, "message": "It does not answer."}
    return {"process": number, **msgspec.json.decode(answer.body)}
