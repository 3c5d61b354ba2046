"""Troubles of the store's host: no space, no writing, and the loss of the server itself."""

import asyncio
import os
import signal
import sqlite3
import subprocess
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from gantline.proving.fleet import Fleet
from tests.chaos.trouble import DEADLINE, Switched, Trouble, uninterrupted
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

_BLOCK: Final = 4096
_REMOUNT_TRIES: Final = 200


@contextmanager
def file_system(folder: Path, *, megabytes: int) -> Iterator[Path]:
    """A small one of its own."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        # Lazily, since a process that was just killed may not be gone.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def second_way(folder: Path, to: Path) -> Iterator[Path]:
    """The same files at another path, which can be made read-only alone."""
    folder.mkdir()
    _mount("--bind", str(to), str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")


# -- no space -----------------------------------------------------------------------------------


class FullDisk(Switched):
    """Another file takes all the space, and is removed again."""

    name = "disk full"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._ballast = folder / "ballast"

    def begin(self, fleet: Fleet) -> None:
        with self._ballast.open("wb") as file:
            there = os.statvfs(file.fileno())
            with suppress(OSError):  # others write meanwhile, so the last of it may be gone
                os.posix_fallocate(file.fileno(), 0, there.f_bavail * there.f_frsize)
            with suppress(OSError):
                while True:
                    os.write(file.fileno(), bytes(_BLOCK))

    def end(self, fleet: Fleet) -> None:
        self._ballast.unlink(missing_ok=True)


class FullDiskOfSqlite(FullDisk):
    """The log of its writes is emptied before, or they would only reuse the space that it has."""

    def __init__(self, folder: Path, file: Path) -> None:
        super().__init__(folder)
        self._file = file

    def begin(self, fleet: Fleet) -> None:
        with closing(sqlite3.connect(self._file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        super().begin(fleet)


class FullDiskOfPostgres(FullDisk):
    """As an operator does, start the server again when there is space: it may have given up."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        super().__init__(folder)
        self._server = server

    def end(self, fleet: Fleet) -> None:
        super().end(fleet)
        if not self._server.is_running:
            self._server.start()


class FullMemoryOfRedis(Switched):
    """It refuses what would take more; jobs can be run and ended all the same."""

    name = "disk full"
    stops_all = False

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self._server = server

    def begin(self, fleet: Fleet) -> None:
        self._server.call("CONFIG", "SET", "maxmemory", "1mb")

    def end(self, fleet: Fleet) -> None:
        self._server.call("CONFIG", "SET", "maxmemory", "0")


# -- no writing ---------------------------------------------------------------------------------


class ReadOnlyFile(Switched):
    """The host comes up again with a file system that is read-only, as after an error of its disk.

    While anybody has a file open for writing there, Linux refuses to make it read-only.
    """

    name = "read-only"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def begin(self, fleet: Fleet) -> None:
        for _ in range(_REMOUNT_TRIES):
            for slot in fleet.slots:
                if slot.pid is not None:
                    slot.send(signal.SIGKILL, fault="kill")
            if self._remount("ro"):
                return
        raise AssertionError("it did not become read-only")

    def end(self, fleet: Fleet) -> None:
        assert self._remount("rw")

    def _remount(self, how: str) -> bool:
        command = ["mount", "-o", f"remount,bind,{how}", str(self._folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


class ReadOnlyPostgres(Switched):
    name = "read-only"

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self._server = server

    def begin(self, fleet: Fleet) -> None:
        self._server.configure(default_transaction_read_only="on")

    def end(self, fleet: Fleet) -> None:
        self._server.configure(default_transaction_read_only="off")


class ReadOnlyRedis(Switched):
    """It refuses to write while it has too few replicas."""

    name = "read-only"

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self._server = server

    def begin(self, fleet: Fleet) -> None:
        self._server.call("CONFIG", "SET", "min-replicas-to-write", "1")

    def end(self, fleet: Fleet) -> None:
        self._server.call("CONFIG", "SET", "min-replicas-to-write", "0")


# -- no server ----------------------------------------------------------------------------------


class Promotion(Trouble):
    """The primary dies, its replica takes over, and a new replica is made; again and again."""

    name = "replica promoted"
    _calm_seconds = 6.0

    async def make(self, fleet: Fleet) -> None:
        while True:
            await asyncio.sleep(self._calm_seconds)
            fleet.health.hinder_all(self.name)
            fleet.log.add(self.name, "all")
            try:
                await uninterrupted(self.fail_over)
            finally:
                fleet.health.free_all(self.name)
            await uninterrupted(self.replace)

    @abstractmethod
    def fail_over(self) -> None:
        """Kill the primary, and let the replica take writes."""

    @abstractmethod
    def replace(self) -> None:
        """Make a replica where the old primary was."""

    @abstractmethod
    def stop(self) -> None: ...


class PostgresPair(Promotion):
    """A commit is answered when the standby has it on disk too."""

    def __init__(self) -> None:
        super().__init__()
        self._primary = PostgresServer()
        self._standby = self._copy(port=None)

    @property
    def url(self) -> str:
        ports = (self._primary.port, self._standby.port)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://gantline@{hosts}/postgres?target_session_attrs=read-write&deadline={DEADLINE}"

    def _copy(self, *, port: int | None) -> PostgresServer:
        copy = PostgresServer(port=port, copy_of=self._primary)
        self._primary.configure(synchronous_standby_names="*")
        return copy

    def fail_over(self) -> None:
        self._primary.kill()
        # Until there is another, nobody waits for one.
        self._standby.configure(synchronous_standby_names="")
        self._standby.promote()
        self._primary, self._standby = self._standby, self._primary

    def replace(self) -> None:
        port = self._standby.port
        self._standby.stop()
        self._standby = self._copy(port=port)

    def stop(self) -> None:
        for server in (self._primary, self._standby):
            server.stop()


class RedisPair(Promotion):
    """A write is answered when the replica has it too (durability=replicated)."""

    def __init__(self) -> None:
        super().__init__()
        self._primary = RedisServer(repl_diskless_sync_delay="0")
        self._replica = self._copy(port=None)

    @property
    def url(self) -> str:
        ports = (self._primary.port, self._replica.port)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"redis://{hosts}/0?durability=replicated&deadline={DEADLINE}"

    def _copy(self, *, port: int | None) -> RedisServer:
        primary = f"127.0.0.1 {self._primary.port}"
        copy = RedisServer(port=port, replicaof=primary, repl_diskless_sync_delay="0")
        copy.wait_for("master_link_status:up")
        return copy

    def fail_over(self) -> None:
        self._primary.kill()
        self._replica.call("REPLICAOF", "NO", "ONE")
        self._primary, self._replica = self._replica, self._primary

    def replace(self) -> None:
        port = self._replica.port
        self._replica.stop()
        self._replica = self._copy(port=port)

    def stop(self) -> None:
        for server in (self._primary, self._replica):
            server.stop()
