"""A long drain while somebody holds a snapshot open, so that nothing dead can be vacuumed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from benchmarks.contest.children import drained_by
from benchmarks.contest.system import OURS
from benchmarks.postgres.seeding import Group, seed, settle_disk
from benchmarks.postgres.stage import Stage
from benchmarks.report import Goal

_GOAL: Final = Goal(least=0.9)
# Should it run dry all the same, the rate is that until then.
_MORE_THAN_ENOUGH: Final = 1.2
_PATIENCE_SECONDS: Final = 60


def run(stage: Stage, *, drain_rate: float) -> None:
    seconds = stage.scale.snapshot_seconds
    jobs = round(drain_rate * seconds * _MORE_THAN_ENOUGH)
    rates = {}
    for is_held in (False, True):
        stage.say(f"drain for {seconds:g} s, {'a' if is_held else 'no'} snapshot held")
        rates[is_held] = [_rate(stage, jobs, is_held=is_held)]
    metric = f"drain for {seconds:g} s"
    stage.add(metric, "jobs/s", rates[False])
    metric += " under a held snapshot"
    stage.add(metric, "jobs/s", rates[True])
    stage.compare(metric, rates[True], rates[False], beside_name="none held", goal=_GOAL)


def _rate(stage: Stage, jobs: int, *, is_held: bool) -> float:
    seconds = stage.scale.snapshot_seconds
    with stage.database(OURS, "snapshot") as url:
        seed(url, [Group(jobs=jobs)])
        settle_disk(url)
        command = OURS.command(url, "drain_some", seconds=seconds, slots=OURS.slots)
        with _snapshot(url, is_held=is_held):
            return drained_by(command, 1, longest_seconds=seconds + _PATIENCE_SECONDS).rate


@contextmanager
def _snapshot(url: str, *, is_held: bool) -> Iterator[None]:
    """A transaction that has read something and then idles."""
    if not is_held:
        yield
        return
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM gantline.lane")
        yield
        connection.rollback()
