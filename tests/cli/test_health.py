"""gantline worker --health: real workers whose store goes away, whose loop stands still."""

import http.client
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from gantline.cli.health import HealthPort, supervise
from gantline.contract.errors import InvalidInput
from gantline.telemetry.health_server import HealthPaths, parse_address
from tests.cli.conftest import Place, Program, assert_refused
from tests.servers.postgres import PostgresServer, free_port
from tests.telemetry.asking import Samples

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]

SHOP = """
import asyncio
import os
import time
from pathlib import Path
from gantline import Gantline

jobs = Gantline()

@jobs.job("block")
async def block(flag: str) -> None:
    while not Path(flag).exists():
        time.sleep(0.02)

@jobs.job("hold")
async def hold(flag: str) -> None:
    while not Path(flag).exists():
        await asyncio.sleep(0.02)

@jobs.job("add")
async def add(number: int) -> int:
    return number + 1
"""


class Answer(NamedTuple):
    """What the port said; status 0 where nobody listens."""

    status: int
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def failed(self) -> set[str]:
        if self.status == 0:
            return set()
        return {name for name, check in self.json["checks"].items() if not check["ok"]}


class Health:
    """The health port of a worker."""

    def __init__(self, place: Place, program: Program) -> None:
        self._place = place
        program.wait_for("Health, readiness and metrics are on port ")
        found = re.search(r"are on port (\d+)", program.stderr)
        assert found
        self.port = int(found[1])

    def get(self, path: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read())
        except OSError:
            return Answer(0)
        finally:
            connection.close()

    def until(self, path: str, status: int, failed: set[str] | None = None) -> Answer:
        last = Answer(0)

        def reached() -> bool:
            nonlocal last
            last = self.get(path)
            return last.status == status and (failed is None or last.failed == failed)

        self._place.eventually(reached, f"{path} is {status} {failed or ''}")
        return last


@pytest.fixture
def shop(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    # A module is imported once for all tests, and remembers the store that it was imported with.
    name = f"shop_{uuid4().hex}"
    (place.folder / f"{name}.py").write_text(SHOP)
    monkeypatch.setenv("GANTLINE_POLL_SECONDS", "0.1")
    monkeypatch.setenv("GANTLINE_APP", f"{name}:jobs")
    return place


@contextmanager
def worker(shop: Place, *words: str) -> Iterator[tuple[Program, Health]]:
    with shop.process("worker", "--health", "127.0.0.1:0", *words) as program:
        yield program, Health(shop, program)
        program.process.send_signal(signal.SIGTERM)
        assert program.exit_code() == 0, program.stderr
        assert "Traceback" not in program.stderr


def test_a_worker_is_alive_and_ready_and_has_metrics(shop: Place) -> None:
    job_id = shop.submit("add", "1")
    with worker(shop) as (_, health):
        checks = health.until("/readyz", 200).json["checks"]
        assert list(checks) == ["loop", "store", "migrations", "draining", "consuming"]
        assert health.get("/healthz").status == 200
        shop.eventually(lambda: shop.status(job_id) == "Completed", "the job is done")
        done = "gantline_jobs_finished_total"
        page = Samples(health.get("/metrics").body)
        assert page.get(done, job_type="add", status="Completed") == 1
        assert page.get("gantline_loop_lag_seconds") is not None
        assert page.get("gantline_queue_depth", queue="default", job_type="add") is not None


def test_a_blocked_loop_is_unready_and_unhealthy_and_mends_itself(shop: Place) -> None:
    flag = shop.folder / "flag"
    with worker(shop) as (_, health):
        health.until("/readyz", 200)
        job_id = shop.submit("block", f'"{flag}"')
        assert "loop" in health.until("/readyz", 503).failed
        assert health.until("/healthz", 503).failed == {"loop"}
        assert health.get("/metrics").status == 200
        flag.touch()
        health.until("/healthz", 200)
        health.until("/readyz", 200)
        shop.eventually(lambda: shop.status(job_id) == "Completed", "the job is done")


def test_a_worker_is_unready_while_it_drains(shop: Place) -> None:
    flag = shop.folder / "flag"
    with worker(shop) as (program, health):
        health.until("/readyz", 200)
        job_id = shop.submit("hold", f'"{flag}"')
        shop.eventually(lambda: shop.status(job_id) == "Running", "the job runs")
        program.process.send_signal(signal.SIGTERM)
        health.until("/readyz", 503, {"draining", "consuming"})
        assert health.get("/healthz").status == 200
        flag.touch()
        assert program.exit_code() == 0
    assert shop.status(job_id) == "Completed"


@pytest.mark.wide
@pytest.mark.parametrize("trouble", ["stopped", "frozen"])
def test_a_worker_without_its_store_is_unready_and_ready_again_by_itself(
    shop: Place, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    server = PostgresServer()
    try:
        monkeypatch.setenv("GANTLINE_STORE", server.url(schema=f"w{uuid4().hex}"))
        with worker(shop) as (_, health):
            health.until("/readyz", 200)
            server.halt("immediate") if trouble == "stopped" else server.pause()
            assert {"store", "migrations"} <= health.until("/readyz", 503).failed
            health.until("/readyz", 503, {"store", "migrations", "consuming"})
            assert health.get("/healthz").status == 200, "a restart would not mend it"
            page = Samples(health.get("/metrics").body)
            assert page.get("gantline_store_up") == 0
            assert str(server.port) not in health.get("/readyz").body.decode()
            server.start() if trouble == "stopped" else server.resume()
            health.until("/readyz", 200)
            job_id = shop.submit("add", "1")
            shop.eventually(lambda: shop.status(job_id) == "Completed", "it works again")
    finally:
        server.resume()
        server.stop()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_probes_may_ask_by_paths_of_their_own(
    shop: Place, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    """By a setting and by a flag; the usual paths stay."""
    monkeypatch.setenv("GANTLINE_LIVE_PATH", "/v1/health/live")
    words = ("--ready-path", "/v1/health/ready", "--processes", processes)
    with worker(shop, *words) as (_, health):
        for path in ("/v1/health/ready", "/readyz", "/v1/health/live", "/healthz"):
            assert health.until(path, 200).json["ok"] is True
        assert health.get("/v1/health").status == 404


def test_paths_that_cannot_be_are_refused(shop: Place) -> None:
    for words in (
        ("--live-path", "health"),
        ("--ready-path", "/healthz"),
        ("--live-path", "/api/x"),
    ):
        refused = shop.run("worker", "--health", "127.0.0.1:0", *words)
        assert_refused(refused, 2, "The health pages cannot be at", "/v1/health/live")


def test_all_processes_of_a_worker_are_watched_through_one_port(shop: Place) -> None:
    flag = shop.folder / "flag"
    with worker(shop, "--processes", "2") as (program, health):
        program.wait_for("Working on", times=2)
        ready = health.until("/readyz", 200).json
        assert [(one["process"], one["ok"]) for one in ready["processes"]] == [(0, True), (1, True)]
        jobs = [shop.submit("add", str(number)) for number in range(20)]
        shop.eventually(
            lambda: all(shop.status(job_id) == "Completed" for job_id in jobs), "all are done"
        )
        page = Samples(health.get("/metrics").body)
        done = [
            page.get(
                "gantline_jobs_finished_total", job_type="add", status="Completed", process=number
            )
            for number in "01"
        ]
        assert sum(count or 0 for count in done) == 20
        assert len(page.labels("gantline_queue_depth")) == 1, "told once, not by each"
        blocked = shop.submit("block", f'"{flag}"')
        answer = health.until("/readyz", 503).json
        assert sorted(one["ok"] for one in answer["processes"]) == [False, True]
        assert health.get("/healthz").status == 200, "the supervisor sees to it"
        flag.touch()
        health.until("/readyz", 200)
        shop.eventually(lambda: shop.status(blocked) == "Completed", "it is done")


def test_a_killed_process_is_unready_until_it_was_started_anew(shop: Place) -> None:
    with worker(shop, "--processes", "2") as (program, health):
        health.until("/readyz", 200)
        killed = min(row["pid"] for row in shop.json("sessions"))
        os.kill(killed, signal.SIGKILL)  # a child of the process that this test started
        answer = health.until("/readyz", 503)
        assert "It does not answer." in answer.body.decode()
        page = Samples(health.get("/metrics").body)
        assert [page.get("gantline_process_up", process=number) for number in "01"].count(0) <= 1
        program.wait_for("Working on", times=3)
        health.until("/readyz", 200)


def test_the_setting_names_the_port_too(shop: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTLINE_HEALTH", "127.0.0.1:0")
    with shop.process("worker") as program:
        health = Health(shop, program)
        health.until("/readyz", 200)


def test_a_port_that_cannot_be_had_is_told(shop: Place) -> None:
    with worker(shop) as (_, health):
        for processes in ("1", "2"):
            words = ("--health", f"127.0.0.1:{health.port}", "--processes", processes)
            with shop.process("worker", *words) as second:
                assert second.exit_code() == 1
                last = second.stderr.splitlines()[-1]
                assert last.startswith(f"Error: The health port 127.0.0.1:{health.port} cannot")
                assert "Traceback" not in second.stderr


@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_cannot_be_watched_is_refused_before_the_worker_starts(
    shop: Place, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    many = ("--processes", processes)
    assert_refused(shop.run("worker", *many, "--health", "8081"), 2, ":8081")
    monkeypatch.setenv("GANTLINE_REQUIRE_BROKER", "perhaps")
    assert_refused(shop.run("worker", *many, "--health", ":0"), 2, "yes or no")
    monkeypatch.setenv("GANTLINE_REQUIRE_BROKER", "yes")
    assert_refused(shop.run("worker", *many, "--health", ":0"), 2, "GANTLINE_TRIGGER")


def test_a_worker_whose_broker_is_required_waits_for_it(
    shop: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_TRIGGER", f"amqp://127.0.0.1:{free_port()}/")
    monkeypatch.setenv("GANTLINE_REQUIRE_BROKER", "yes")
    with worker(shop) as (_, health):
        health.until("/readyz", 503, {"broker"})


def test_without_the_library_there_are_no_metrics_and_all_else_works(shop: Place) -> None:
    """The core runs without its extras."""
    missing = "import sys\nsys.modules['prometheus_client'] = sys.modules['opentelemetry'] = None\n"
    (shop.folder / "bare.py").write_text(missing + SHOP)
    job_id = shop.submit("add", "1")
    for processes in ("1", "2"):
        with worker(shop, "bare:jobs", "--processes", processes) as (_, health):
            health.until("/readyz", 200)
            answer = health.get("/metrics")
            assert (answer.status, "gantline[prometheus]" in answer.json["message"]) == (404, True)
            shop.eventually(lambda: shop.status(job_id) == "Completed", "the job is done")


def test_several_processes_without_a_temporary_folder_are_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_can_be_written(**options: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("gantline.cli.health.TemporaryDirectory", none_can_be_written)
    port = HealthPort(parse_address("127.0.0.1:0"), HealthPaths())
    with pytest.raises(InvalidInput, match="TMPDIR"):
        supervise(2, [], port, drain=timedelta(0), say=lambda text: None)
