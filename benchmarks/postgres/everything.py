"""`postgres` beside its peers, and `postgres_depth` with much behind it; on one server each."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.bench import Bench
from benchmarks.postgres import depth, draining, idling, pick_up, reads, snapshot, submitting
from benchmarks.postgres.server import Server
from benchmarks.postgres.stage import Stage
from benchmarks.postgres.systems import OURS, System, available_systems


def run_beside_peers(bench: Bench) -> None:
    with _stage(bench, available_systems(bench.report)) as stage:
        if stage is not None:
            drain_rate = statistics.median(draining.run(stage))
            submitting.run(stage)
            pick_up.run(stage, drain_rate=drain_rate)
            idling.run(stage)


def run_deep(bench: Bench) -> None:
    with _stage(bench, [OURS]) as stage:
        if stage is not None:
            drain_rate = statistics.median(depth.run(stage))
            snapshot.run(stage, drain_rate=drain_rate)
            reads.run(stage)


@contextmanager
def _stage(bench: Bench, systems: list[System]) -> Iterator[Stage | None]:
    """None where there is no server."""
    try:
        server = Server()
    except pytest.skip.Exception as reason:
        bench.report.say(f"  left out: {reason}")
        yield None
        return
    try:
        stage = Stage(bench, server, systems)
        stage.make_tables()
        yield stage
    finally:
        server.stop()
