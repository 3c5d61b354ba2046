"""`postgres` beside its peers, and `postgres_depth` with much behind it; on one server each."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench
from benchmarks.contest import pick_up
from benchmarks.contest.system import OURS, System, available
from benchmarks.postgres import depth, draining, idling, reads, snapshot, submitting
from benchmarks.postgres.server import Server
from benchmarks.postgres.stage import Stage
from benchmarks.postgres.systems import PEERS
from benchmarks.report import Goal


def run_beside_peers(bench: Bench) -> None:
    with _stage(bench, available(PEERS, bench.report)) as stage:
        drain_rate = statistics.median(draining.run(stage))
        submitting.run(stage)
        pick_up.run_idle(stage, goal=Goal(most=2))
        pick_up.run_half_busy(stage, drain_rate=drain_rate, goal=Goal(most=10))
        idling.run(stage)


def run_deep(bench: Bench) -> None:
    with _stage(bench, [OURS]) as stage:
        drain_rate = statistics.median(depth.run(stage))
        snapshot.run(stage, drain_rate=drain_rate)
        reads.run(stage)


@contextmanager
def _stage(bench: Bench, systems: list[System]) -> Iterator[Stage]:
    server = Server()
    try:
        stage = Stage(bench, server, systems)
        stage.make_tables()
        yield stage
    finally:
        server.stop()
