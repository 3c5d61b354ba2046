"""Which trouble is made on which store, and what that needs."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple

import pytest

from tests.chaos.of_processes import (
    Deploys,
    NoDescriptors,
    NoMemory,
    StoppedInEveryOrder,
    TermStorm,
    WrongClocks,
    fake_clock,
)
from tests.chaos.of_the_network import BlackHole, HalfOpen, Latency
from tests.chaos.of_the_store import (
    FullDiskOfPostgres,
    FullDiskOfSqlite,
    FullMemoryOfRedis,
    PostgresPair,
    ReadOnlyFile,
    ReadOnlyPostgres,
    ReadOnlyRedis,
    RedisPair,
    file_system,
    second_way,
)
from tests.chaos.trouble import DEADLINE, Trouble
from tests.chaos.versions import unpack_older
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

Store = Literal["sqlite", "postgres", "redis"]
STORES: Final[tuple[Store, ...]] = ("sqlite", "postgres", "redis")
SERVERS: Final[tuple[Store, ...]] = ("postgres", "redis")
FAULTS: Final[dict[str, tuple[Store, ...]]] = {
    "disk full": STORES,
    "read-only": STORES,
    "descriptors exhausted": STORES,
    "latency": SERVERS,
    "black hole": SERVERS,
    "half-open": SERVERS,
    "clock skew": STORES,
    "out of memory": STORES,
    "replica promoted": SERVERS,
    "stopped in every order": STORES,
    "SIGTERM storm": STORES,
    "two versions": STORES,
}
"""Each with the stores that can have it: a file has no connections, and no replica."""
_FILE: Final = "gantline.db"


class Case(NamedTuple):
    trouble: Trouble
    url: str
    """Where the processes find the store."""
    own_url: str
    """Where whoever judges finds it."""


@contextmanager
def make_case(store: Store, fault: str, folder: Path) -> Iterator[Case]:
    """A store of its own, empty, and its trouble; both are gone at the end."""
    with ExitStack() as stack:
        match store:
            case "sqlite":
                yield _on_sqlite(stack, fault, folder)
            case "postgres":
                yield _on_postgres(stack, fault, folder)
            case "redis":
                yield _on_redis(stack, fault, folder)


def _on_sqlite(stack: ExitStack, fault: str, folder: Path) -> Case:
    home = folder
    match fault:
        case "disk full":
            home = stack.enter_context(file_system(folder / "disk", megabytes=96))
            trouble: Trouble = FullDiskOfSqlite(home, home / _FILE)
        case "read-only":
            disk = stack.enter_context(file_system(folder / "disk", megabytes=200))
            home = stack.enter_context(second_way(folder / "way", disk))
            trouble = ReadOnlyFile(home)
            return Case(trouble, _file(home), _file(disk))
        case _:
            trouble = _on_any(fault, folder, server=None)
    return Case(trouble, _file(home), _file(home))


def _file(folder: Path) -> str:
    return f"sqlite:///{folder / _FILE}"


def _on_postgres(stack: ExitStack, fault: str, folder: Path) -> Case:
    match fault:
        case "replica promoted":
            pair = PostgresPair()
            stack.callback(pair.stop)
            return Case(pair, pair.url, pair.url)
        case "disk full":
            # Not in the folder of the test, which the user of the server may not enter.
            home = Path(stack.enter_context(TemporaryDirectory(prefix="gantline-chaos-")))
            home.chmod(0o755)
            disk = stack.enter_context(file_system(home / "disk", megabytes=200))
            server = PostgresServer(
                within=disk, initdb=("--wal-segsize=1",), max_wal_size="16MB", min_wal_size="4MB"
            )
            trouble: Trouble = FullDiskOfPostgres(disk, server)
        case "read-only":
            server = PostgresServer()
            trouble = ReadOnlyPostgres(server)
        case _:
            server = PostgresServer()
            trouble = _on_any(fault, folder, server=server)
    stack.callback(server.stop)
    stack.callback(server.resume)
    return Case(trouble, server.url(deadline=DEADLINE), server.url())


def _on_redis(stack: ExitStack, fault: str, folder: Path) -> Case:
    if fault == "replica promoted":
        pair = RedisPair()
        stack.callback(pair.stop)
        return Case(pair, pair.url, pair.url)
    server = RedisServer()
    stack.callback(server.stop)
    match fault:
        case "disk full":
            trouble: Trouble = FullMemoryOfRedis(server)
        case "read-only":
            trouble = ReadOnlyRedis(server)
        case _:
            trouble = _on_any(fault, folder, server=server)
    return Case(trouble, server.url(deadline=DEADLINE), server.url())


def _on_any(fault: str, folder: Path, *, server: PostgresServer | RedisServer | None) -> Trouble:
    match fault:
        case "descriptors exhausted":
            return NoDescriptors()
        case "latency":
            return Latency()
        case "black hole":
            return BlackHole()
        case "half-open":
            return HalfOpen()
        case "clock skew":
            if (library := fake_clock()) is None:
                pytest.skip("libfaketime is not installed")
            return WrongClocks(folder / "clocks", library, one_host=server is None)
        case "out of memory":
            return NoMemory()
        case "stopped in every order":
            return StoppedInEveryOrder(server)
        case "SIGTERM storm":
            return TermStorm()
        case "two versions":
            return Deploys(unpack_older(folder / "older")[0])
        case _:
            raise AssertionError(fault)
