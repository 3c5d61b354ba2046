"""Submitting through HTTP on PostgreSQL, beside a route that only answers the same."""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pytest

from benchmarks.bench import Bench
from benchmarks.http.routes import CONSTANT, SUBMIT
from benchmarks.postgres.server import Server
from benchmarks.report import WINDLASS, Goal
from benchmarks.worker.children import ROOT

_ENGINE: Final = "http"
_CONNECTIONS: Final = 64
_PATIENCE_SECONDS: Final = 60.0


class _Api(NamedTuple):
    """Where the API is, a key, and the id of a job."""

    address: str
    key: str
    job_id: str


def run(bench: Bench) -> None:
    try:
        server = Server()
    except pytest.skip.Exception as reason:
        bench.report.say(f"  left out: {reason}")
        return
    try:
        with _served(server.make("http")) as api:
            _measure(bench, api)
    finally:
        server.stop()


@contextmanager
def _served(url: str) -> Iterator[_Api]:
    command = [sys.executable, "-m", "benchmarks.http.serving_child", url]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield _Api(*json.loads(child.stdout.readline()))
            child.stdin.close()
            child.wait(_PATIENCE_SECONDS)
        finally:
            child.kill()


def _measure(bench: Bench, api: _Api) -> None:
    report, seconds = bench.report, bench.scale.http_seconds
    rates: dict[str, list[float]] = {SUBMIT: [], CONSTANT: []}
    delays: dict[str, list[list[float]]] = {SUBMIT: [], "status": []}
    for number in range(bench.scale.worker_runs):
        report.say(f"  submit through HTTP, run {number + 1} of {bench.scale.worker_runs}")
        for path, taken in rates.items():
            # One more asks for a status all the time.
            with _caller(api, "GET", f"{SUBMIT}/{api.job_id}/status", 1, seconds) as polling:
                rate, took = _told(_caller(api, "POST", path, _CONNECTIONS, seconds))
                status_took = _told(polling)[1]
            taken.append(rate)
            if path == SUBMIT:
                delays[SUBMIT].append(took)
                delays["status"].append(status_took)
    what = f"submit through HTTP, {_CONNECTIONS} connections"
    for name, path in ((what, SUBMIT), (f"{what}, a route that stores nothing", CONSTANT)):
        report.add(
            engine=_ENGINE, system=WINDLASS, metric=name, unit="requests/s", values=rates[path]
        )
    report.compare(
        engine=_ENGINE,
        metric=what,
        values=rates[SUBMIT],
        beside=rates[CONSTANT],
        beside_name="a route that stores nothing",
        goal=Goal(least=0.6),
    )
    for name, runs in ((what, delays[SUBMIT]), ("status under that load", delays["status"])):
        for percent in (50, 99):
            values = [statistics.quantiles(took, n=100)[percent - 1] for took in runs]
            report.add(
                engine=_ENGINE,
                system=WINDLASS,
                metric=f"{name}, p{percent}",
                unit="ms",
                values=values,
            )


def _caller(
    api: _Api, method: str, path: str, connections: int, seconds: float
) -> subprocess.Popen[str]:
    options = [api.address, api.key, method, path, str(connections), str(seconds)]
    command = [sys.executable, "-m", "benchmarks.http.calling_child", *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _told(child: subprocess.Popen[str]) -> Any:
    """Wait for a caller's end; the last line that it prints is its answer."""
    output, _ = child.communicate(timeout=_PATIENCE_SECONDS)
    assert child.returncode == 0, f"{child.args!r} ended with {child.returncode}"
    return json.loads(output.splitlines()[-1])
