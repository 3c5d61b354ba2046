"""All of `postgres`, on one server."""

import statistics

import pytest

from benchmarks.bench import Bench
from benchmarks.postgres import depth, draining, idling, pick_up, reads, snapshot, submitting
from benchmarks.postgres.server import Server
from benchmarks.postgres.stage import Stage
from benchmarks.postgres.systems import available_systems


def run(bench: Bench) -> None:
    try:
        server = Server()
    except pytest.skip.Exception as reason:
        bench.report.say(f"  left out: {reason}")
        return
    try:
        stage = Stage(bench, server, available_systems(bench.report))
        stage.make_tables()
        drain_rate = statistics.median(draining.run(stage))
        submitting.run(stage)
        pick_up.run(stage, drain_rate=drain_rate)
        idling.run(stage)
        depth.run(stage)
        snapshot.run(stage, drain_rate=drain_rate)
        reads.run(stage)
    finally:
        server.stop()
