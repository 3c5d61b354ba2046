"""What each part of the benchmark is given: a contest with a database for each system."""

from contextlib import AbstractContextManager
from typing import Final

from benchmarks.bench import Bench
from benchmarks.contest import stage
from benchmarks.contest.system import System
from benchmarks.postgres.server import Server

ENGINE: Final = "postgres"


class Stage(stage.Stage):
    """One run of `postgres`."""

    def __init__(self, bench: Bench, server: Server, systems: list[System]) -> None:
        super().__init__(bench, systems, engine=ENGINE)
        self.server = server

    def make_tables(self) -> None:
        """Let every system make its tables once; what it is measured on is a copy."""
        for system in self.systems:
            self.say(f"tables of {system.name}")
            system.run(self.server.make(_empty(system)), "make")

    def database(self, system: System, name: str) -> AbstractContextManager[str]:
        """A database with a system's tables by its URL, which is dropped afterwards."""
        return self.server.copied(_empty(system), f"{system.environment}_{name}")

    def emptied(self, system: System) -> AbstractContextManager[str]:
        return self.database(system, "emptied")


def _empty(system: System) -> str:
    return f"{system.environment}_empty"
