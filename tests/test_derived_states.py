"""Lists by derived states on SQLite: the same, whatever way the jobs are found."""

import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from gantline.contract.query import JobFilter
from gantline.contract.status import DerivedState
from gantline.stores.sqlite import query as sqlite_query
from gantline.stores.sqlite.schema import migrate
from gantline.testing.conformance import Rule, all_rules
from gantline.testing.factories import CREATED_AT
from tests.harness import SqliteHarness

RULES = [
    rule
    for rule in all_rules()
    if rule.topic == "reading" and ("derived" in rule.name or "due" in rule.name)
]
SCHEDULED = JobFilter(statuses=frozenset({DerivedState.SCHEDULED}))


@pytest.mark.parametrize("many", [-1, 0, 2, 3])
@pytest.mark.parametrize("rule", RULES, ids=str)
async def test_many_jobs_are_found_otherwise(
    monkeypatch: pytest.MonkeyPatch, rule: Rule, many: int
) -> None:
    """By the rows of the queue, sorted, or newest first."""
    monkeypatch.setattr(sqlite_query, "_MOST_SORTED", many)
    await rule.check(SqliteHarness())


@pytest.mark.parametrize(
    "job_filter", [SCHEDULED, JobFilter(due_before=CREATED_AT + timedelta(hours=1))]
)
def test_of_many_queued_jobs_only_those_of_the_instants_are_read(job_filter: JobFilter) -> None:
    """Some are not due among twenty-one thousand that are: each step of the plan is a search."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        connection.execute("INSERT INTO gantline_tally VALUES ('default', 1, 'Queued', 21000)")
        said: list[str] = []
        connection.set_trace_callback(said.append)
        sqlite_query.find(connection, job_filter, limit=10, after=None, now=0)
        connection.set_trace_callback(None)
        (scan,) = [text for text in said if "ORDER BY" in text and "LIMIT 11" in text]
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {scan}")]
    (queue,) = [step for step in plan if " ready " in step]
    assert "lane=? AND rank=? AND grp=? AND run_at" in queue
    assert not [step for step in plan if step.startswith("SCAN") and "turn" not in step]
