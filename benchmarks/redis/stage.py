"""What each part of the benchmark is given: a contest on one Redis, emptied for each figure."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.bench import Bench
from benchmarks.contest import stage
from benchmarks.contest.system import System
from tests.servers.redis import RedisServer

ENGINE: Final = "redis"


class Stage(stage.Stage):
    """One kind of persistence."""

    def __init__(
        self, bench: Bench, server: RedisServer, systems: list[System], *, where: str
    ) -> None:
        super().__init__(bench, systems, engine=ENGINE, where=where)
        self.server = server

    @contextmanager
    def emptied(self, system: System) -> Iterator[str]:
        self.server.call("FLUSHALL")
        yield self.server.url()
