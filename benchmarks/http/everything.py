"""`http`: submitting and asking over HTTP on PostgreSQL, beside a route that does nothing."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.contest.children import ROOT
from benchmarks.http.server import CONSTANT_PATH
from benchmarks.postgres.server import Server
from benchmarks.report import GANTLINE, Goal

ENGINE: Final = "postgres"
_CONNECTIONS: Final = 64


def run(bench: Bench) -> None:
    server = Server()
    try:
        _measure_submits(bench, server.make("http_submit"))
        _measure_cache(bench, server.make("http_cache"))
    finally:
        server.stop()


def _measure_submits(bench: Bench, store: str) -> None:
    """Both routes in turn, so that what slows the machine slows both."""
    constant: list[float] = []
    submit: list[float] = []
    status: list[float] = []
    with _serving(store) as told:
        status_path = f"/api/jobs/{told['job']}/status"
        for number in range(bench.scale.worker_runs):
            bench.report.say(f"  submit over HTTP, run {number + 1} of {bench.scale.worker_runs}")
            constant.append(_loaded(bench, told, CONSTANT_PATH)["rate"])
            submit.append(_loaded(bench, told, "/api/jobs")["rate"])
            status.append(_loaded(bench, told, "/api/jobs", status_path)["status_p99_ms"])
    metric = f"submit over HTTP, {_CONNECTIONS} connections"
    bench.report.add(
        engine=ENGINE,
        system="constant bytes",
        metric=f"constant bytes over HTTP, {_CONNECTIONS} connections",
        unit="requests/s",
        values=constant,
    )
    bench.report.add(
        engine=ENGINE, system=GANTLINE, metric=metric, unit="requests/s", values=submit
    )
    bench.report.compare(
        engine=ENGINE,
        metric=metric,
        values=submit,
        beside=constant,
        beside_name="constant bytes",
        goal=Goal(least=0.6),
    )
    bench.report.add(
        engine=ENGINE,
        system=GANTLINE,
        metric=f"status while {_CONNECTIONS} connections submit, p99",
        unit="ms",
        values=status,
    )


def _measure_cache(bench: Bench, store: str) -> None:
    rates: dict[float, list[float]] = {0.0: [], 1.0: []}
    for number in range(bench.scale.worker_runs):
        bench.report.say(f"  status of an ended job, run {number + 1} of {bench.scale.worker_runs}")
        for seconds, values in rates.items():
            with _serving(store, cache_seconds=seconds) as told:
                path = f"/api/jobs/{told['job']}/status"
                values.append(_loaded(bench, told, path)["rate"])
    plain, cached = rates.values()
    metric = f"status of an ended job, {_CONNECTIONS} connections"
    bench.report.add(engine=ENGINE, system=GANTLINE, metric=metric, unit="requests/s", values=plain)
    bench.report.add(
        engine=ENGINE, system=GANTLINE, metric=f"{metric}, cached", unit="requests/s", values=cached
    )
    bench.report.compare(
        engine=ENGINE,
        metric=f"{metric}, cached",
        values=cached,
        beside=plain,
        beside_name="uncached",
    )


@contextmanager
def _serving(store: str, *, cache_seconds: float = 0.0) -> Iterator[dict[str, Any]]:
    """A server in a process of its own; gives what it tells of itself."""
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.http.server", store, str(cache_seconds)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            assert child.stdout is not None
            yield json.loads(child.stdout.readline())
        finally:
            assert child.stdin is not None
            child.stdin.close()
            child.wait(30)


def _loaded(
    bench: Bench, told: dict[str, Any], path: str, status_path: str | None = None
) -> dict[str, float]:
    words = [told["url"], told["key"], path, str(_CONNECTIONS), str(bench.scale.http_seconds)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.http.load", *words, *filter(None, [status_path])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer
