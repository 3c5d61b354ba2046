"""Workers of the battery passport are killed at every step: nothing is lost, doubled or changed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import psycopg
import pytest

from tests.examples.killed_passports import MOMENTS
from tests.examples.passports import JOBS_OF_A_SAMPLE
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]

PLACES = ("sqlite", "postgres", "redis and sqlite", "redis and postgres")


class Place(NamedTuple):
    store: str
    outbox: str


@pytest.fixture
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Place]:
    """Empty databases of a kind, as often as asked for."""

    def sqlite() -> str:
        return f"sqlite:///{tmp_path}/{uuid4().hex}.db"

    def postgres() -> str:
        server: PostgresServer = request.getfixturevalue("postgres")
        return new_database(server)

    def make(kind: str) -> Place:
        queue, _, tables = kind.partition(" and ")
        home = postgres() if "postgres" in (queue, tables) else sqlite()
        if queue != "redis":
            return Place(home, "")
        redis: RedisServer = request.getfixturevalue("redis")
        return Place(redis.url(prefix=f"p{uuid4().hex}"), home)

    return make


def new_database(server: PostgresServer) -> str:
    """The application's tables are in no schema of Windlass, so a schema would not do."""
    name = f"p{uuid4().hex}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.url(database=name)


def killed(place: Place, out: Path, moment: str = "") -> Any:
    """What is there in the end, when workers were killed at that moment of every step."""
    subprocess.run(
        [sys.executable, "-m", "tests.examples.killed_passports", *place, str(out), moment],
        timeout=100,
        check=True,
    )
    return msgspec.json.decode(out.read_bytes())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What comes out where nobody is killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return killed(Place(f"sqlite:///{folder}/passports.db", ""), folder / "out")


@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        ("sqlite", "written"),
        ("redis and sqlite", "ended"),
        *(
            pytest.param(kind, moment, marks=pytest.mark.chaos)
            for kind in PLACES
            for moment in MOMENTS
        ),
    ],
)
def test_killed_at_every_step_the_same_comes_out_byte_for_byte(
    undisturbed: Any, make_place: Callable[[str], Place], tmp_path: Path, kind: str, moment: str
) -> None:
    disturbed = killed(make_place(kind), tmp_path / "disturbed", moment)
    assert disturbed["rows"] == undisturbed["rows"]
    assert disturbed["jobs"] == undisturbed["jobs"] == JOBS_OF_A_SAMPLE
    assert disturbed["statuses"] == {"Completed": 10}
    assert undisturbed["crashes"] == {}
    # On SQL who dies after the commit has done the job; only neighbours of his run again.
    did_run_again = set(JOBS_OF_A_SAMPLE) if moment != "ended" or "redis" in kind else set()
    assert did_run_again <= set(disturbed["crashes"])
