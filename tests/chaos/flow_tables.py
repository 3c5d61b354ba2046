"""What each store has of runs and turns, read beside it: its tables or keys, in one look each."""

import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, LiteralString

import psycopg
from redis import Redis

from gantline.contract.flow import group_number
from gantline.contract.job import DEFAULT_TENANT
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


class Tables(ABC):
    """The store under the proof, and its server where it has one of its own."""

    url: str
    restarts: bool = True

    @abstractmethod
    def running(self) -> Mapping[str, int]:
        """How many leases there are of each key."""

    @abstractmethod
    def left(self) -> Mapping[str, int]:
        """What should be gone where nothing waits and nothing runs: how much of each is there."""

    def restart(self, *, hard: bool) -> None:  # noqa: B027  # a file has no server
        """Let the server end, as by its operator or as by a crash, and start it again."""

    def stop(self) -> None:  # noqa: B027  # a file needs no end
        """Remove what was started."""


class SqliteTables(Tables):
    """A file has no server."""

    restarts = False

    def __init__(self, folder: Path) -> None:
        self._file = folder / "flow.db"
        self.url = f"sqlite:///{self._file}"

    def running(self) -> Mapping[str, int]:
        return dict(
            self._rows(
                "SELECT group_name, count(*) FROM gantline_lease "
                "JOIN gantline_job ON gantline_job.id = gantline_lease.job_id GROUP BY group_name"
            )
        )

    def left(self) -> Mapping[str, int]:
        return dict(
            self._rows(
                "SELECT 'leases', count(*) FROM gantline_lease "
                "UNION ALL SELECT 'ready', count(*) FROM gantline_ready "
                "UNION ALL SELECT 'turns', count(*) FROM gantline_turn WHERE grp <> 0"
            )
        )

    def _rows(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=10)) as there:
            return there.execute(statement).fetchall()


class PostgresTables(Tables):
    def __init__(self) -> None:
        self._server = PostgresServer()
        self.url = self._server.url()

    def running(self) -> Mapping[str, int]:
        return dict(
            self._rows(
                "SELECT group_name, count(*) FROM gantline.lease "
                "JOIN gantline.job ON job.id = lease.job_id GROUP BY group_name"
            )
        )

    def left(self) -> Mapping[str, int]:
        return dict(
            self._rows(
                "SELECT 'leases', count(*) FROM gantline.lease "
                "UNION ALL SELECT 'ready', count(*) FROM gantline.ready "
                "UNION ALL SELECT 'turns', count(*) FROM gantline.turn"
            )
        )

    def _rows(self, statement: LiteralString) -> list[Any]:
        with psycopg.connect(self._server.url(), autocommit=True, connect_timeout=5) as there:
            return there.execute(statement).fetchall()

    def restart(self, *, hard: bool) -> None:
        self._server.restart("immediate" if hard else "fast")

    def stop(self) -> None:
        self._server.stop()


# A member is the job's id (16 bytes), the numbers of lane and tenant (4 each) and of its group (8).
_LEASES: Final = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '{*}:leases:*')) do
    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
        found[#found + 1] = member:sub(25, 32)
    end
end
return found
"""
_PERMITS: Final = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '{*}:permits:*')) do
    found[#found + 1] = redis.call('SCARD', key)
end
return found
"""
_OF_TURNS: Final = ("ready", "turns", "later", "full", "permits", "leases")


class RedisTables(Tables):
    """Synced with each write, so that nothing accepted is lost with a crash of the server."""

    def __init__(self, keys: list[str]) -> None:
        self._server = RedisServer(appendonly="yes", appendfsync="always")
        self.url = self._server.url()
        self._keys = {
            group_number(DEFAULT_TENANT, key).to_bytes(8, "big"): key for key in ("", *keys)
        }

    def running(self) -> Mapping[str, int]:
        with self._connected() as there:
            leases: Any = there.eval(_LEASES, 0)
            permits: Any = there.eval(_PERMITS, 0)
        counted = Counter(self._keys.get(number, number.hex()) for number in leases)
        # A permit that outlives its run would show here alone; whose it is does not matter.
        return counted | {f"permits {index}": count for index, count in enumerate(permits)}

    def left(self) -> Mapping[str, int]:
        with self._connected() as there:
            names: Any = there.keys("{*}:*")
        kinds = (name.decode().partition("}:")[2].partition(":")[0] for name in names)
        return {kind: count for kind, count in Counter(kinds).items() if kind in _OF_TURNS}

    def _connected(self) -> "Redis":
        return Redis(port=self._server.port, socket_timeout=10)

    def restart(self, *, hard: bool) -> None:
        if not hard:
            self._server.halt()
            self._server.start()
        else:
            self._server.crash()

    def stop(self) -> None:
        self._server.stop()
