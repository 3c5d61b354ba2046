"""Each store in turn: pruned with a retention of one minute, and beside it without any pruning."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import mean
from typing import Final, NamedTuple

import psycopg

from benchmarks.bench import Bench
from benchmarks.contest.children import Child, started
from benchmarks.contest.system import OURS
from benchmarks.postgres.server import Server
from benchmarks.report import GANTLINE, Goal
from tests.servers.missing import ServerMissing
from tests.servers.redis import RedisServer

_RETENTION_SECONDS: Final = 60
# From the third minute on as much becomes old as is new.
_STEADY_AFTER: Final = 3
# Without pruning a store grows by some gigabytes in this time.
_MOST_MINUTES_KEPT: Final = 4
_SIZE: Final = """
SELECT sum(pg_total_relation_size(pg_class.oid)) FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE relkind = 'r' AND nspname = 'gantline'
"""
_MEGABYTE: Final = 1e6


class Place(NamedTuple):
    """An empty store by its URL, and how large it is now."""

    url: str
    size_bytes: Callable[[], float]


Emptied = Callable[[Bench], AbstractContextManager[Place]]


class Minute(NamedTuple):
    rate: float
    size_bytes: float


def run(bench: Bench) -> None:
    for engine, emptied in (("sqlite", _sqlite), ("postgres", _postgres), ("redis", _redis)):
        try:
            _measure(bench, engine, emptied)
        except ServerMissing as missing:
            bench.report.leave_out(GANTLINE, what=engine, reason=str(missing))


def _measure(bench: Bench, engine: str, emptied: Emptied) -> None:
    minutes = max(bench.scale.steady_minutes, _STEADY_AFTER + 1)
    pruned: list[list[Minute]] = []
    kept: list[list[Minute]] = []
    for _ in range(bench.scale.steady_runs):
        for runs, retention in ((pruned, _RETENTION_SECONDS), (kept, 0)):
            what = f"{engine}, {'pruned' if retention else 'kept'}"
            most = minutes if retention else min(minutes, _MOST_MINUTES_KEPT)
            with emptied(bench) as place:
                runs.append(list(_watched(bench, what, place, most, retention)))
    rates = [_steady_rate(one) for one in pruned]
    without = [mean(minute.rate for minute in one) for one in kept]
    add, compare = bench.report.add, bench.report.compare
    add(engine=engine, system=GANTLINE, metric="steady drain", unit="jobs/s", values=rates)
    add(engine=engine, system=GANTLINE, metric="drain, all kept", unit="jobs/s", values=without)
    compare(
        engine=engine,
        metric="steady drain",
        values=rates,
        beside=without,
        beside_name="all kept",
        goal=Goal(least=0.9),
    )
    add(
        engine=engine,
        system=GANTLINE,
        metric="size after the third minute",
        unit="MB",
        values=[one[_STEADY_AFTER - 1].size_bytes / _MEGABYTE for one in pruned],
    )
    add(
        engine=engine,
        system=GANTLINE,
        metric="size at the end, to that after the third minute",
        unit="times",
        values=[one[-1].size_bytes / one[_STEADY_AFTER - 1].size_bytes for one in pruned],
        goal=Goal(most=1.1),
    )


def _steady_rate(minutes: Sequence[Minute]) -> float:
    return mean(minute.rate for minute in minutes[_STEADY_AFTER - 1 :])


def _watched(
    bench: Bench, what: str, place: Place, minutes: int, retention_seconds: int
) -> Iterator[Minute]:
    """Let a worker go on for so many minutes."""
    command = [sys.executable, "-m", "benchmarks.steady.child", place.url]
    with started([*command, str(minutes), str(retention_seconds)]) as child:
        before = 0
        for number in range(minutes):
            done = _next_count(child)
            minute = Minute((done - before) / 60, place.size_bytes())
            before = done
            bench.report.say(
                f"  {what}, minute {number + 1}: {minute.rate:,.0f} jobs/s, "
                f"{minute.size_bytes / _MEGABYTE:,.0f} MB"
            )
            yield minute


def _next_count(child: Child) -> int:
    assert child.process.stdout is not None
    line = child.process.stdout.readline()
    if not line:
        raise child.failure("it ended too early")
    return int(line)


@contextmanager
def _sqlite(bench: Bench) -> Iterator[Place]:
    with bench.empty_file() as path:
        yield Place(f"sqlite:///{path}", lambda: _size_of_files(path))


def _size_of_files(path: Path) -> float:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


@contextmanager
def _postgres(bench: Bench) -> Iterator[Place]:
    server = Server()
    try:
        url = server.make("steady")
        OURS.run(url, "make")
        with psycopg.connect(url, autocommit=True) as connection:
            yield Place(url, lambda: _size_of_tables(connection))
    finally:
        server.stop()


def _size_of_tables(connection: psycopg.Connection) -> float:
    row = connection.execute(_SIZE).fetchone()
    assert row is not None
    return float(row[0])


@contextmanager
def _redis(bench: Bench) -> Iterator[Place]:
    server = RedisServer()
    try:
        yield Place(server.url(), server.memory_bytes)
    finally:
        server.stop()
