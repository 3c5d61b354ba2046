"""The fleet: health and metrics pages of several worker processes as one, for their supervisor.

Every child serves its own pages on a local socket; the supervisor fetches them on request.
Metrics are merged as text, not by prometheus_client's parser, which takes ten times as long: with
many processes and job types a scrape would keep the probes waiting.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gantline.telemetry import metrics
from gantline.telemetry.health import LOOP_MAY_BE_SILENT_SECONDS
from gantline.telemetry.health_server import (
    METRICS_PATH,
    READY_PATH,
    HealthPaths,
    Response,
    Routes,
)
from gantline.telemetry.metrics_page import METRICS_TYPE, NOT_INSTALLED

_OF_THE_STORE: Final = frozenset(metric.name for metric in metrics.OF_THE_STORE)
_STORE_IS_UP: Final = f"\n{metrics.STORE_UP.name} 1.0\n"
# More than a child waits for its store, less than a probe waits for us.
_DEADLINE_SECONDS: Final = 3.5


class _Family:
    """The lines of one family: what they mean, and the samples of all processes."""

    def __init__(self) -> None:
        self.head: dict[str, None] = {}
        self.samples: list[str] = []


def merge_pages(pages: Mapping[str, str]) -> str:
    """Merge pages into one: every series gets a label `process`.

    Metrics of the store are the same on all pages, so they are taken from one that could read them.
    """
    chosen = next((name for name, page in pages.items() if _STORE_IS_UP in page), None)
    families: dict[str, _Family] = {}
    for process, page in pages.items():
        family, label, is_of_the_store = _Family(), f'process="{process}"', False
        for line in page.split("\n"):
            if line.startswith("#"):
                name = line.split(" ", 3)[2]
                family = families.setdefault(name, _Family())
                family.head[line] = None
                is_of_the_store = name in _OF_THE_STORE
            elif line and not is_of_the_store:
                family.samples.append(_add_label(line, label))
            elif line and process == (chosen or next(iter(pages))):
                family.samples.append(line)
    return "".join(
        f"{line}\n" for family in families.values() for line in (*family.head, *family.samples)
    )


def encode_process_up(processes: Iterable[tuple[str, bool]]) -> str:
    """Encode the metric that says which processes respond."""
    metric = metrics.PROCESS_UP
    lines = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
    lines += [f'{metric.name}{{process="{name}"}} {float(is_up)}' for name, is_up in processes]
    return "\n".join(lines) + "\n"


def _add_label(line: str, label: str) -> str:
    """Put a label in front of the others: the name ends at the first brace or space."""
    name, space, rest = line.partition(" ")
    if "{" not in name:
        return f"{name}{{{label}}}{space}{rest}"
    name, _, rest = line.partition("{")
    return f"{name}{{{label}{'' if rest.startswith('}') else ','}{rest}"


class Fleet:
    """Ready when all children are; alive as long as the supervisor is, since it restarts them."""

    def __init__(self, children: Sequence[Path], *, idle_seconds: Callable[[], float]) -> None:
        """`idle_seconds`: how long ago the supervisor last checked its children."""
        self._children = children
        self._idle_seconds = idle_seconds

    async def alive(self) -> Response:
        ok = self._idle_seconds() <= LOOP_MAY_BE_SILENT_SECONDS
        return Response.of(200 if ok else 503, {"ok": ok})

    async def ready(self) -> Response:
        responses = await self._fetch_all(READY_PATH)
        processes = [
            _describe_process(number, response) for number, response in enumerate(responses)
        ]
        ok = all(process["ok"] for process in processes)
        return Response.of(200 if ok else 503, {"ok": ok, "processes": processes})

    async def metrics(self) -> Response:
        responses = await self._fetch_all(METRICS_PATH)
        if any(response is not None and response.status == 404 for response in responses):
            return NOT_INSTALLED
        pages = {
            str(number): response.body.decode()
            for number, response in enumerate(responses)
            if response is not None and response.status == 200
        }
        processes = [(str(number), str(number) in pages) for number in range(len(responses))]
        return Response(
            200, (merge_pages(pages) + encode_process_up(processes)).encode(), METRICS_TYPE
        )

    async def _fetch_all(self, path: str) -> list[Response | None]:
        return await asyncio.gather(*(_fetch(child, path) for child in self._children))


def make_fleet_routes(fleet: Fleet, paths: HealthPaths) -> Routes:
    return Routes({**paths.pages(fleet.alive, fleet.ready), METRICS_PATH: fleet.metrics})


async def _fetch(child: Path, path: str) -> Response | None:
    """Fetch one page of a child; None where it does not answer."""
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            reader, writer = await asyncio.open_unix_connection(child)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                received = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = received.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    return Response(int(words[1]), body) if len(words) == 3 else None


def _describe_process(number: int, response: Response | None) -> dict[str, Any]:
    if response is None:
        return {"process": number, "ok": False, "message": "It does not answer."}
    return {"process": number, **msgspec.json.decode(response.body)}
