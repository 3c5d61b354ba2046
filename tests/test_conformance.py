"""Every rule of the suite, on every store of ours."""

import pytest

from tests.harness import MemoryHarness, PostgresHarness, SqliteHarness
from tests.servers.postgres import PostgresServer
from windlass.testing.conformance import Rule, all_rules

pytestmark = pytest.mark.matrix


@pytest.mark.parametrize("rule", all_rules(), ids=str)
async def test_memory(rule: Rule) -> None:
    await rule.check(MemoryHarness())


@pytest.mark.parametrize("rule", all_rules(), ids=str)
async def test_sqlite(rule: Rule) -> None:
    await rule.check(SqliteHarness())


@pytest.mark.parametrize("rule", all_rules(), ids=str)
async def test_postgres(rule: Rule, postgres: PostgresServer) -> None:
    await rule.check(PostgresHarness(postgres))
