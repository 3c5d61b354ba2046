"""`redis`: drain, submit, pick-up and memory, with each kind of persistence."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

import pytest

from benchmarks.bench import Bench
from benchmarks.postgres.systems import OURS
from benchmarks.report import Goal
from benchmarks.worker.children import drained_by, ended, started
from tests.servers.redis import RedisServer

ENGINE: Final = "redis"
# Without persistence, as peers are measured, and with it, as jobs should be kept.
_PERSISTENCE: Final[dict[str, dict[str, Any]]] = {
    "without persistence": {"appendonly": "no"},
    "AOF everysec": {"appendonly": "yes", "appendfsync": "everysec"},
    "AOF always": {"appendonly": "yes", "appendfsync": "always"},
}
_FIRST: Final = "without persistence"
_PICK_UPS_PER_SECOND: Final = 40
_WARM_UP_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 1.0


def run(bench: Bench) -> None:
    for name, settings in _PERSISTENCE.items():
        try:
            server = RedisServer(**settings)
        except pytest.skip.Exception as reason:
            bench.report.say(f"  left out: {reason}")
            return
        try:
            _Stage(bench, server, name).run()
        finally:
            server.stop()


class _Stage:
    """One kind of persistence."""

    def __init__(self, bench: Bench, server: RedisServer, persistence: str) -> None:
        self._bench = bench
        self._scale = bench.scale
        self._server = server
        self._persistence = persistence

    def run(self) -> None:
        self._bench.report.say(f"  {self._persistence}")
        self._drain(1, Goal(least=14_400) if self._persistence == _FIRST else None)
        self._drain(2, None)
        self._submit()
        self._pick_up()

    def _add(self, metric: str, unit: str, values: list[float], goal: Goal | None = None) -> None:
        self._bench.report.add(
            engine=ENGINE,
            system=OURS.name,
            metric=f"{metric}, {self._persistence}",
            unit=unit,
            values=values,
            goal=goal if self._persistence == _FIRST else None,
        )

    @contextmanager
    def _emptied(self) -> Iterator[str]:
        """The URL of an empty prefix; the server is emptied afterwards."""
        yield self._server.url(prefix=f"w{uuid4().hex}")
        self._server.call("FLUSHALL")

    def _drain(self, processes: int, goal: Goal | None) -> None:
        rates, cpu, server_cpu, resident, kept = [], [], [], [], []
        jobs = self._scale.postgres_jobs
        for _ in range(self._scale.worker_runs):
            with self._emptied() as url:
                before = self._server.memory_bytes()
                OURS.run(url, "fill", jobs=jobs)
                kept.append((self._server.memory_bytes() - before) / jobs)
                began = self._server.cpu_seconds()
                drained = drained_by(OURS.command(url, "drain", slots=OURS.slots), processes)
                assert drained.jobs == jobs, f"{drained.jobs} of {jobs}"
                server_cpu.append((self._server.cpu_seconds() - began) / jobs * 1e6)
            rates.append(drained.rate)
            cpu.append(drained.cpu_micros)
            resident.append(drained.resident_bytes / 1e6)
        name = f"no-op drain, {processes} process{'es' if processes > 1 else ''}"
        self._add(name, "jobs/s", rates, goal)
        if processes == 1:
            self._add(f"{name}, worker CPU per job", "µs", cpu)
            self._add(f"{name}, server CPU per job", "µs", server_cpu)
            self._add(f"{name}, memory of the worker", "MB", resident)
            self._add("memory per queued job", "bytes", kept, Goal(most=1700))

    def _submit(self) -> None:
        scale = self._scale
        at_once = scale.callers * scale.jobs_per_caller
        ways = {
            "submit one by one": ("submit", {"jobs": scale.single_jobs}, None),
            f"submit, {scale.callers} callers": (
                "submit",
                {"jobs": at_once, "callers": scale.callers},
                None,
            ),
            "submit_many": ("submit_many", {"jobs": scale.batch_jobs}, Goal(least=25_000)),
        }
        for name, (what, options, goal) in ways.items():
            rates = []
            for _ in range(scale.worker_runs):
                with self._emptied() as url:
                    rates.append(OURS.run(url, what, **options))
            self._add(name, "jobs/s", rates, goal)

    def _pick_up(self) -> None:
        runs = []
        for _ in range(self._scale.worker_runs):
            with self._emptied() as url:
                runs.append(self._delays_ms(url))
        for percent, goal in ((50, Goal(most=1.5)), (99, None)):
            figures = [statistics.quantiles(delays, n=100)[percent - 1] for delays in runs]
            self._add(f"idle pick-up, p{percent}", "ms", figures, goal)

    def _delays_ms(self, url: str) -> list[float]:
        jobs = self._scale.pick_ups
        with started(OURS.command(url, "serve", slots=10)) as child:
            time.sleep(_WARM_UP_SECONDS)
            OURS.run(url, "send", jobs=jobs, rate=_PICK_UPS_PER_SECOND)
            time.sleep(_SETTLE_SECONDS)
            delays: list[int] = ended(child)
        assert len(delays) >= jobs, f"{len(delays)} of {jobs}"
        return [delay / 1e6 for delay in delays]
