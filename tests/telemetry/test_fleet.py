"""The pages of several processes as one."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from gantline.telemetry.fleet import Fleet, make_fleet_routes, merge_pages
from gantline.telemetry.health import LOOP_MAY_BE_SILENT_SECONDS
from gantline.telemetry.health_server import (
    HealthPaths,
    HealthServer,
    ListenAddress,
    Response,
    Routes,
)
from tests.telemetry.asking import Samples, ask, samples

PAGE = """\
# HELP gantline_jobs_finished_total Help.
# TYPE gantline_jobs_finished_total counter
gantline_jobs_finished_total{{job_type="a",status="Completed"}} {done}
# HELP gantline_store_up Help.
# TYPE gantline_store_up gauge
gantline_store_up {up}
# HELP gantline_queue_depth Help.
# TYPE gantline_queue_depth gauge
{depth}# HELP own_seconds Of the handler.
# TYPE own_seconds histogram
own_seconds_bucket{{le="1.0"}} {done}
own_seconds_bucket{{le="+Inf"}} {done}
own_seconds_count {done}
own_seconds_sum 1.5
"""
PROBE_SECONDS = 4.0  # of the readiness probe in docs/operations.md
DEPTH = 'gantline_queue_depth{queue="q",job_type="a"} 7\n'


class Child:
    """What one process of the fleet would answer."""

    def __init__(self, place: Path, number: int) -> None:
        self.is_ready = True
        self.metrics = PAGE.format(done=number + 1, up=1.0, depth=DEPTH)
        pages = Routes({"/readyz": self._ready, "/metrics": self._metrics})
        self.server = HealthServer(ListenAddress(path=place), pages)
        self.server.start()

    async def _ready(self) -> Response:
        checks = {"store": {"ok": self.is_ready}}
        return Response.of(200 if self.is_ready else 503, {"ok": self.is_ready, "checks": checks})

    async def _metrics(self) -> Response:
        return Response(200, self.metrics.encode())


class Company:
    """Two children and the supervisor's pages."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        places = [folder / str(number) for number in range(2)]
        self.children = [Child(place, number) for number, place in enumerate(places)]
        for child in self.children:
            stack.callback(child.server.stop)
        self.idle_seconds = 0.0
        self.app = make_fleet_routes(
            Fleet(places, idle_seconds=lambda: self.idle_seconds), HealthPaths()
        )


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Company]:
    with ExitStack() as stack:
        yield Company(tmp_path, stack)


async def test_the_fleet_is_ready_when_all_are(company: Company) -> None:
    answer = await ask(company.app, "/readyz")
    assert (answer.status, answer.json["ok"]) == (200, True)
    assert [one["process"] for one in answer.json["processes"]] == [0, 1]
    company.children[1].is_ready = False
    answer = await ask(company.app, "/readyz")
    assert answer.status == 503
    assert answer.json["processes"] == [
        {"process": 0, "ok": True, "checks": {"store": {"ok": True}}},
        {"process": 1, "ok": False, "checks": {"store": {"ok": False}}},
    ]


async def test_a_process_that_does_not_answer_is_unready(company: Company) -> None:
    company.children[0].server.stop()
    answer = await ask(company.app, "/readyz")
    assert answer.status == 503
    silent = {"process": 0, "ok": False, "message": "It does not answer."}
    assert answer.json["processes"][0] == silent


async def test_a_frozen_process_is_told_of_before_a_probe_gives_up(tmp_path: Path) -> None:
    """The kernel takes the connection in its place, and nobody answers."""
    with closing(socket.socket(socket.AF_UNIX)) as frozen:
        frozen.bind(str(tmp_path / "0"))
        frozen.listen()
        app = make_fleet_routes(Fleet([tmp_path / "0"], idle_seconds=lambda: 0.0), HealthPaths())
        async with asyncio.timeout(PROBE_SECONDS):
            answer = await ask(app, "/readyz")
    assert answer.status == 503


async def test_the_supervisor_lives_as_long_as_it_tends_whatever_its_children_do(
    company: Company,
) -> None:
    for child in company.children:
        child.server.stop()
    assert (await ask(company.app, "/healthz")).status == 200
    company.idle_seconds = LOOP_MAY_BE_SILENT_SECONDS + 0.1
    assert (await ask(company.app, "/healthz")).status == 503


async def test_every_series_of_a_process_says_which_and_what_is_the_stores_is_told_once(
    company: Company,
) -> None:
    page = await samples(company.app)
    done, kind = "gantline_jobs_finished_total", {"job_type": "a", "status": "Completed"}
    assert [page.get(done, **kind, process=number) for number in "01"] == [1, 2]
    assert page.get("own_seconds_count", process="1") == 2, "what handlers count themselves, too"
    assert page.get("own_seconds_bucket", le="+Inf", process="1") == 2
    assert page.labels("gantline_queue_depth") == [{"queue": "q", "job_type": "a"}]
    assert page.labels("gantline_store_up") == [{}]
    assert [page.get("gantline_process_up", process=number) for number in "01"] == [1, 1]


async def test_a_process_that_is_gone_is_missing_from_the_page_and_said_to_be(
    company: Company,
) -> None:
    company.children[0].server.stop()
    page = await samples(company.app)
    assert [page.get("gantline_process_up", process=number) for number in "01"] == [0, 1]
    assert page.labels("gantline_queue_depth") == [{"queue": "q", "job_type": "a"}]


def test_who_could_count_the_store_speaks_for_all() -> None:
    blind, seeing = PAGE.format(done=1, up=0.0, depth=""), PAGE.format(done=1, up=1.0, depth=DEPTH)
    for pages in ({"0": blind, "1": seeing}, {"0": seeing, "1": blind}):
        page = Samples(merge_pages(pages).encode())
        assert page.get("gantline_store_up") == 1
        assert page.get("gantline_queue_depth", queue="q", job_type="a") == 7
    page = Samples(merge_pages({"0": blind, "1": blind}).encode())
    assert page.get("gantline_store_up") == 0
    assert page.labels("gantline_queue_depth") == []


def test_odd_labels_and_values_survive_the_merging() -> None:
    odd = 'a"b\\c\nd{e}, f=g\u2028h'
    registry = CollectorRegistry()
    gauge = Gauge("odd", "With {braces} and more.", ["kind"], registry=registry)
    gauge.labels(odd).set(float("inf"))
    Gauge("plain", "", registry=registry).set(1e-9)
    Counter("counted", "x", registry=registry).inc(3)
    text = generate_latest(registry).decode()
    page = Samples(merge_pages({"0": text, "1": text}).encode())
    for process in "01":
        assert page.get("odd", kind=odd, process=process) == float("inf")
        assert page.get("plain", process=process) == 1e-9
        assert page.get("counted_total", process=process) == 3
    assert page.families["odd"].documentation == "With {braces} and more."


def test_nothing_is_merged_into_nothing() -> None:
    assert merge_pages({}) == ""
