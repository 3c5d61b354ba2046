"""A claim reads no more rows beside a hundred thousand groups than beside a few."""

from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from gantline.contract.flow import Gate, TypeFlow
from gantline.stores.postgres import PostgresStore
from gantline.stores.postgres.location import parse_url
from gantline.stores.postgres.sql import Sql
from gantline.testing.factories import JOB_TYPE, lane_requests, make_new, register_sessions
from tests.postgres.test_plans import CountedCalls, Deep

pytestmark = [pytest.mark.wide, pytest.mark.timeout(300)]

LEASE = timedelta(minutes=5)
MANY = 100_000
# For 20 slots, in every table: new turns, pages of served ones, what is taken. What finds nothing
# is repeated as a full search; each of the two looks four times, at 64 new groups, those of 40
# further tenants, and a page.
MOST_ROWS = 6_000
_FILL = """
INSERT INTO gantline.lane (queue, job_type) VALUES ('default', 'test');
CREATE TEMP TABLE made AS
SELECT gen_random_uuid() AS id, n, 'tenant-' || n % %(tenants)s AS tenant, 'g' || n AS name,
       CASE WHEN '%(state)s' = 'later' THEN 4000000000000000 ELSE 1700000000000000 END + n AS run_at
FROM generate_series(1, %(groups)s) AS n;
INSERT INTO gantline.job (
    id, tenant, lane, subject, correlation, idempotency_key, fingerprint, attempt, max_attempts,
    payload, payload_version, priority, created_at, created_by, group_name)
SELECT id, tenant, 1, '', '', '', '', 1, 3, '{}', 1, 2, 1700000000000000, '', name FROM made;
INSERT INTO gantline.ready (
    lane, run_at, version, fence, created_at, attempt, crashes, snoozes, priority, keyed, job_id,
    tenant, grp)
SELECT 1, run_at, 1, 0, 1700000000000000, 0, 0, 0, 2, false, id, tenant,
       gantline.group_number(tenant, name)
FROM made;
INSERT INTO gantline.turn (lane, rank, tenant, grp, at, is_new)
SELECT 1, 2, gantline.group_number(tenant, ''), gantline.group_number(tenant, name), run_at,
       '%(state)s' IN ('new', 'later')
FROM made;
"""
FREE: tuple[TypeFlow, ...] = ()
FULL = (TypeFlow(job_type=JOB_TYPE, running=0),)
SHUT = (TypeFlow(job_type=JOB_TYPE, gate=Gate("mail", per_second=1e-9, burst=0)),)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(parse_url(url + "&deadline=120"), make_calls=CountedCalls)
    await store.open()
    await register_sessions(store, "w")
    yield store
    await store.close()


@pytest.mark.parametrize("tenants", [1, MANY], ids=["of one tenant", "of a tenant each"])
@pytest.mark.parametrize(
    ("state", "flow"),
    [("served", FREE), ("new", FREE), ("later", FREE), ("served", FULL), ("new", FULL),
     ("served", SHUT)],
    ids=["waiting", "new", "later", "full", "new and full", "at a gate"],
)  # fmt: skip
async def test_a_claim_reads_no_more_beside_many_groups(
    store: PostgresStore, state: str, flow: tuple[TypeFlow, ...], tenants: int
) -> None:
    filled = _FILL.replace("%(state)s", state).replace("%(groups)s", str(MANY))
    filled = filled.replace("%(tenants)s", str(tenants))

    async def fill(sql: Sql) -> None:
        for statement in filled.split(";\n"):
            await sql.script(statement)

    await store.calls.run(fill, atomic=True)
    deep = Deep(store)

    def claim() -> Awaitable[Any]:
        requests = lane_requests(JOB_TYPE, limit=20, flow=flow)
        return store.claim("w", uuid4(), requests, lease=LEASE)

    for _ in range(6):  # the plans of a function are made anew for its first calls
        read = await deep.read_by(claim())
        assert sum(read.values()) <= MOST_ROWS, read
    if state == "new" and not flow and tenants > 1:
        return  # a hundred thousand others are as new, and were first
    if not flow:
        near = make_new(group="near", tenant_id="near")
        await store.insert([near])
        assert near.job.job_id in {run.job.job_id for run in await claim()}
    late = make_new(group="one more", job_type="other", tenant_id="another")
    await store.insert([late])
    requests = lane_requests(JOB_TYPE, "other", limit=20, flow=flow)
    assert late.job.job_id in {
        run.job.job_id for run in await store.claim("w", uuid4(), requests, lease=LEASE)
    }
