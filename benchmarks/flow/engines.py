"""The stores that flow control is measured on, each with an empty one for every figure."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import ClassVar

from benchmarks.bench import Bench
from benchmarks.postgres.server import Server
from tests.servers.redis import RedisServer


class Engine(ABC):
    name: ClassVar[str]

    @abstractmethod
    def emptied(self) -> AbstractContextManager[str]:
        """An empty store by its URL, which is removed afterwards."""

    def cpu_seconds(self) -> float:
        """What the server has taken so far; nothing where the store is a file."""
        return 0.0

    def stop(self) -> None:  # noqa: B027  # a file needs no end
        """Stop what was started."""


class Sqlite(Engine):
    name = "sqlite"

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    @contextmanager
    def emptied(self) -> Iterator[str]:
        with self._bench.empty_file() as path:
            yield f"sqlite:///{path}?sync=full"


class Postgres(Engine):
    name = "postgres"

    def __init__(self, bench: Bench) -> None:
        self._server = Server()
        self._numbers = count(1)

    @contextmanager
    def emptied(self) -> Iterator[str]:
        with self._server.copied("template0", f"flow_{next(self._numbers)}") as url:
            yield url

    def cpu_seconds(self) -> float:
        return self._server.cpu_seconds()

    def stop(self) -> None:
        self._server.stop()


class Redis(Engine):
    """Without persistence, as peers measure."""

    name = "redis"

    def __init__(self, bench: Bench) -> None:
        self._server = RedisServer()

    @contextmanager
    def emptied(self) -> Iterator[str]:
        self._server.call("FLUSHALL")
        yield self._server.url()

    def cpu_seconds(self) -> float:
        return self._server.cpu_seconds()

    def stop(self) -> None:
        self._server.stop()
