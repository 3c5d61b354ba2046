"""Every rule of the suite, on every store of ours."""

import os
from collections.abc import Iterator
from typing import Final

import pytest

from gantline.testing.conformance import Rule, all_rules
from tests.harness import MemoryHarness, PostgresHarness, RedisHarness, SqliteHarness
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster

pytestmark = pytest.mark.matrix

DOOR_VARIABLE: Final = "GANTLINE_TEST_POSTGRES_DOOR"
REDIS_DOOR_VARIABLE: Final = "GANTLINE_TEST_REDIS_DOOR"


@pytest.fixture(scope="session")
def postgres_options() -> dict[str, str]:
    return {"prepare": "false"} if DOOR_VARIABLE in os.environ else {}


@pytest.fixture(scope="session")
def postgres_door(postgres: PostgresServer) -> Iterator[PostgresServer | PgBouncer]:
    """What connections go through. The matrix names `unprepared` or `pgbouncer`."""
    if os.environ.get(DOOR_VARIABLE) != "pgbouncer":
        yield postgres
        return
    bouncer = PgBouncer(postgres)
    yield bouncer
    bouncer.stop()


@pytest.mark.parametrize("rule", all_rules(), ids=str)
async def test_memory(rule: Rule) -> None:
    await rule.check(MemoryHarness())


@pytest.mark.parametrize("rule", all_rules(), ids=str)
async def test_sqlite(rule: Rule) -> None:
    await rule.check(SqliteHarness())


@pytest.mark.parametrize("rule", all_rules(), ids=str)
async def test_postgres(
    rule: Rule, postgres_door: PostgresServer | PgBouncer, postgres_options: dict[str, str]
) -> None:
    await rule.check(PostgresHarness(postgres_door, **postgres_options))


@pytest.fixture(scope="session")
def redis_door(request: pytest.FixtureRequest) -> Iterator[RedisServer | RedisCluster]:
    """A server alone; the matrix names `cluster`."""
    if os.environ.get(REDIS_DOOR_VARIABLE) != "cluster":
        yield request.getfixturevalue("redis")
        return
    cluster = RedisCluster()
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("rule", all_rules(), ids=str)
async def test_redis(rule: Rule, redis_door: RedisServer | RedisCluster) -> None:
    await rule.check(RedisHarness(redis_door))
