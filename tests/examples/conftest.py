"""Places in which the battery passport is kept: the queue in SQL, or on Redis beside SQL."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psycopg
import pytest

from examples.battery_passport.signing import KEY_VARIABLE
from tests.examples.passports import SIGNING_KEY
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

PLACES = ("sqlite", "postgres", "redis and sqlite", "redis and postgres")


class Place(NamedTuple):
    """URLs; the outbox is empty where the queue is in SQL itself."""

    store: str
    outbox: str


@pytest.fixture
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Place]:
    """Empty databases of one of these kinds."""

    def make(kind: str) -> Place:
        queue, _, tables = kind.partition(" and ")
        if (tables or queue) == "postgres":
            home = new_database(request.getfixturevalue("postgres"))
        else:
            home = f"sqlite:///{tmp_path}/passports.db"
        if queue != "redis":
            return Place(home, "")
        redis: RedisServer = request.getfixturevalue("redis")
        return Place(redis.url(prefix=f"p{uuid4().hex}"), home)

    return make


def new_database(server: PostgresServer) -> str:
    """The application's tables are in no schema of Gantline, so a schema would not do."""
    name = f"p{uuid4().hex}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.url(database=name)


@pytest.fixture(autouse=True)
def signing_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, SIGNING_KEY)
