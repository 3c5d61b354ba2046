"""Lists of those who see only their own: led by an index, they hold the same."""

import re
import sqlite3
from contextlib import closing
from typing import Any

import msgspec
import pytest

from gantline.contract.query import JobFilter, Visibility
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.stores.postgres import query as postgres_query
from gantline.stores.sqlite import query as sqlite_query
from gantline.stores.sqlite.schema import migrate
from gantline.testing.conformance import Bench, Rule, all_rules
from tests.harness import PostgresHarness, SqliteHarness
from tests.servers.postgres import PostgresServer

RULES = [rule for rule in all_rules() if rule.topic == "visibility"]
MINE = Visibility(tenant_id="a", owner="me", subjects=frozenset({"s1", "s2"}))


@pytest.fixture(autouse=True)
def no_status_has_few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_query, "_FEW", -1)
    monkeypatch.setattr(postgres_query, "_FEW", -1)


@pytest.mark.parametrize("rule", RULES, ids=str)
async def test_sqlite(rule: Rule) -> None:
    await rule.check(SqliteHarness())


@pytest.mark.parametrize("rule", RULES, ids=str)
async def test_postgres(rule: Rule, postgres: PostgresServer) -> None:
    await rule.check(PostgresHarness(postgres))


def statements_of(connection: sqlite3.Connection, job_filter: JobFilter) -> list[str]:
    said: list[str] = []
    connection.set_trace_callback(said.append)
    sqlite_query.find(connection, job_filter, limit=10, after=None, now=0)
    connection.set_trace_callback(None)
    return said


@pytest.mark.parametrize("status", [None, *JobStatus], ids=str)
def test_sqlite_follows_its_indexes_in_order(status: JobStatus | None) -> None:
    statuses = frozenset({status} if status else ())
    job_filter = JobFilter(tenant_id="a", statuses=statuses, visible_to=MINE)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        scans = [text for text in statements_of(connection, job_filter) if "ORDER BY" in text]
        plans = [
            "; ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {scan}"))
            for scan in scans
        ]
    used = [
        re.findall(r"SEARCH job USING (?:COVERING )?INDEX (\w+) \((.+?)\)", plan) for plan in plans
    ]
    by_subject = [("gantline_job_by_subject", "tenant=? AND subject=?")]
    by_owner = [("gantline_job_by_owner", "tenant=? AND created_by=?")]
    # First to where each may go, then so far.
    assert used == 2 * [by_subject, by_subject, by_owner]
    assert not any("TEMP B-TREE" in plan for plan in plans)


async def test_what_changed_hands_while_it_was_looked_for_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scan saw my job; until its row was read, it went and another's took its id.

    PostgreSQL finds and reads in one statement, so there is no such moment.
    """

    def anothers(job: JobSnapshot | None) -> JobSnapshot | None:
        assert job is not None
        return msgspec.structs.replace(job, job=msgspec.structs.replace(job.job, created_by="you"))

    def read(*args: Any) -> list[JobSnapshot | None]:
        return [anothers(job) for job in get(*args)]

    get = sqlite_query.get
    bench = await Bench.on(SqliteHarness())
    await bench.submit(tenant_id="a", created_by="me")
    job_filter = JobFilter(tenant_id="a", visible_to=MINE)
    assert len((await bench.store.find(job_filter, limit=5)).items) == 1
    monkeypatch.setattr(sqlite_query, "get", read)
    assert (await bench.store.find(job_filter, limit=5)).items == ()
    await bench.close()
