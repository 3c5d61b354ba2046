"""Turns and limits on a server with several who claim, insert and end at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from random import Random
from time import monotonic
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from gantline.contract.flow import Gate, TypeFlow
from gantline.contract.outcome import Success
from gantline.contract.snapshot import Run
from gantline.contract.transition import Transition
from gantline.stores.postgres import PostgresStore
from gantline.stores.postgres.location import parse_url
from gantline.testing.factories import JOB_TYPE, lane_requests, make_new, register_sessions

LEASE = timedelta(minutes=5)
HOUR = timedelta(hours=1)
CLAIMERS = 6
# In one snapshot: a turn that is due no later than the job, for every job that takes turns.
_WITHOUT_TURN = """
SELECT count(*) FROM gantline.ready
WHERE grp <> 0 AND rank < 4 AND NOT EXISTS (
    SELECT FROM gantline.turn
    WHERE turn.lane = ready.lane AND turn.rank = ready.rank AND turn.grp = ready.grp
      AND turn.at <= ready.run_at)
"""
_MOST_RUNNING = """
SELECT coalesce(max(running), 0),
       coalesce(sum(running) FILTER (WHERE lane.job_type = 'b'), 0)::bigint
FROM (SELECT lane, count(*) AS running FROM gantline.lease GROUP BY lane, grp) AS one
JOIN gantline.lane ON lane.id = one.lane
"""


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[PostgresStore]]:
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(CLAIMERS):
            store = PostgresStore(parse_url(url))
            await store.open()
            stack.push_async_callback(store.close)
            opened.append(store)
        await register_sessions(opened[0], "w")
        yield opened


async def ask(store: PostgresStore, statement: str) -> tuple[Any, ...]:
    return (await store.calls.run(lambda sql: sql.rows(statement)))[0]


async def claim(
    store: PostgresStore, limit: int, *kinds: str, flow: tuple[TypeFlow, ...] = ()
) -> list[Run]:
    requests = lane_requests(*(kinds or (JOB_TYPE,)), limit=limit, flow=flow)
    return await store.claim("w", uuid4(), requests, lease=LEASE)


def ended(run: Run, random: Random) -> Transition:
    """Most complete; some go back to the queue, at once or a moment later."""
    if run.snoozes == 0 and random.random() < 0.3:
        delay = timedelta(milliseconds=random.choice((0, 0, 20)))
        return Transition.snoozed(run, delay=delay)
    return Transition.completed(run, Success(), hold_key=LEASE)


async def test_no_limit_is_exceeded_and_no_job_is_without_a_turn_whoever_meets(
    stores: list[PostgresStore],
) -> None:
    # One type has no limit in all: by that, claims would keep each other from its groups.
    flow = (
        TypeFlow(job_type="a", running=2),
        TypeFlow(job_type="b", running=2, running_in_all=7),
    )
    left, is_over = 600, asyncio.Event()

    async def insert(store: PostgresStore, random: Random) -> None:
        for _ in range(100):
            jobs = [
                make_new(
                    group=f"g{random.randrange(6)}",
                    job_type=random.choice("ab"),
                    priority=random.randrange(4),
                    delay=timedelta(milliseconds=random.choice((0, 0, 30))),
                )
                for _ in range(3)
            ]
            await store.insert(jobs)

    async def work(store: PostgresStore, random: Random) -> None:
        nonlocal left
        while left > 0:
            runs = await claim(store, random.choice((1, 3, 20)), "a", "b", flow=flow)
            ends = [ended(run, random) for run in runs]
            await asyncio.gather(*(store.apply([end]) for end in ends))
            left -= sum(end.to.is_terminal for end in ends)

    async def watch(store: PostgresStore) -> None:
        while not is_over.is_set():
            assert await ask(store, _WITHOUT_TURN) == (0,)
            most, in_all = await ask(store, _MOST_RUNNING)
            assert most <= 2
            assert in_all <= 7

    async def prune(store: PostgresStore) -> None:
        while not is_over.is_set():
            await store.prune([], limit=10)

    watchers = asyncio.gather(watch(stores[0]), prune(stores[1]))
    async with asyncio.timeout(120):
        await asyncio.gather(
            *(insert(store, Random(index)) for index, store in enumerate(stores[:2])),
            *(work(store, Random(index)) for index, store in enumerate(stores)),
        )
    is_over.set()
    await watchers
    assert left == 0
    for _ in range(3):
        assert await claim(stores[0], 100, "a", "b") == []
    assert await ask(stores[0], "SELECT count(*) FROM gantline.turn") == (0,)
    assert await ask(stores[0], "SELECT count(*) FROM gantline.lease") == (0,)


async def test_a_gate_holds_over_all_who_claim_at_once(stores: list[PostgresStore]) -> None:
    flow = (TypeFlow(job_type=JOB_TYPE, gate=Gate("mail", per_second=1e-3, burst=9)),)
    await stores[0].insert([make_new(group=f"g{index % 4}") for index in range(60)])
    started = 0
    for _ in range(4):
        claims = await asyncio.gather(*(claim(store, 4, flow=flow) for store in stores))
        started += sum(map(len, claims))
    assert started == 9


@pytest.mark.parametrize("others", [1, 300])
async def test_what_is_committed_late_is_claimed_soon_whatever_waits(
    stores: list[PostgresStore], url: str, others: int
) -> None:
    """Its turn has an instant that others have passed. The group has a later job as well."""
    store = stores[0]
    await store.insert([make_new(group="late", delay=HOUR)])
    await store.insert([make_new(group=f"g{index % others}") for index in range(900)])
    async with await psycopg.AsyncConnection.connect(parse_url(url).conninfo) as connection:
        late = make_new(group="late")
        await store.insert_in(connection, [late])
        for _ in range(10):
            assert len(await claim(store, 4)) == 4
        await store.insert([make_new(group="late")])  # waits for nobody
        await connection.commit()
        committed_at = monotonic()
    while late.job.job_id not in {run.job.job_id for run in await claim(store, 2)}:
        assert monotonic() < committed_at + 5


@pytest.mark.parametrize("tenants", [1, 30])
async def test_those_who_add_group_after_group_hide_nobody(
    stores: list[PostgresStore], tenants: int
) -> None:
    store = stores[0]
    jobs = [make_new(tenant_id=f"t{index % tenants}", group=f"g{index}") for index in range(3_000)]
    await store.insert(jobs)
    for _ in range(3):
        assert len(await claim(store, 10)) == 10
    late = make_new(tenant_id="late")
    await store.insert([late])
    for _ in range(2 if tenants == 1 else 4):
        if late.job.job_id in {run.job.job_id for run in await claim(store, 10)}:
            return
    pytest.fail("it waits for all that were there before")


async def test_claims_of_thousands_of_groups_find_new_ones(stores: list[PostgresStore]) -> None:
    store, other = stores[:2]
    groups = [f"g{index}" for index in range(3_000)]
    for _ in range(2):
        await store.insert([make_new(group=group) for group in groups])
    first = await claim(store, 3_000)
    assert len(first) == 3_000
    await store.insert([make_new(job_type="few")])
    assert len(await claim(store, 2, "few")) == 1  # not full: so the next looks at all groups
    await other.insert([make_new(tenant_id="new", group=f"n{index}") for index in range(20)])
    runs = await claim(store, 3_000)
    assert len(runs) == 3_000
    assert sum(run.job.tenant_id == "new" for run in runs) == 20


async def test_another_process_goes_on_with_groups_that_one_has_begun(
    stores: list[PostgresStore],
) -> None:
    one, other = stores[:2]
    await one.insert([make_new(tenant_id=f"t{index % 100}") for index in range(300)])
    first = await claim(one, 100)
    assert len({run.job.tenant_id for run in first}) == 100
    rest: list[Run] = []
    while runs := await claim(other, 30):
        rest += runs
    assert len(rest) == 200


async def test_what_was_queued_before_there_were_groups_is_shown_as_plain(
    stores: list[PostgresStore],
) -> None:
    """Whatever its tenant: it is in no group, and nobody else's name may stand there."""
    store = stores[0]
    await store.insert([make_new(), make_new(tenant_id="secret", group="g")])
    await store.calls.run(lambda sql: sql.run("UPDATE gantline.ready SET grp = 0"))
    await store.calls.run(lambda sql: sql.run("DELETE FROM gantline.turn"))
    await store.calls.run(
        lambda sql: sql.run("DELETE FROM gantline.ready WHERE tenant = 'default'")
    )
    (plain,) = (await store.groups("default", JOB_TYPE, tenant_id=None, limit=9)).items
    assert (plain.tenant_id, plain.group, plain.waiting) == ("default", "", 1)


async def test_code_that_knows_no_groups_goes_on_beside_them(stores: list[PostgresStore]) -> None:
    """By the signatures of migration 6: what it submits has no group, and so is what it claims."""
    columns = """
        NULL, NULL, ARRAY[gen_random_uuid()], ARRAY['t'], ARRAY[1::bigint], ARRAY[''], ARRAY[''],
        ARRAY[''], ARRAY['x'::bytea], ARRAY[1], ARRAY[3], ARRAY['1'::bytea], ARRAY[1], ARRAY[2],
        ARRAY[1::bigint], ARRAY[NULL::bigint], ARRAY[0::bigint], ARRAY[''], ARRAY[NULL::uuid],
        ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[NULL::text],
        ARRAY[NULL::bytea], ARRAY[NULL::bigint], NULL, NULL, NULL"""
    await stores[0].insert([make_new(group="a")])
    await stores[0].calls.run(lambda sql: sql.rows(f"SELECT gantline.insert_jobs({columns})"))
    claimed = await stores[0].calls.run(
        lambda sql: sql.rows(
            "SELECT tenant FROM gantline.claim_jobs(NULL, 'w', gen_random_uuid(), 1000000, "
            "ARRAY[gen_random_uuid()], ARRAY[9], ARRAY[1], ARRAY[1::bigint], ARRAY[2], "
            "ARRAY[0::bigint], ARRAY['00000000-0000-0000-0000-000000000000'::uuid], NULL, NULL)"
        )
    )
    assert claimed == [("t",)]
    assert [run.job.group for run in await claim(stores[0], 9)] == ["a"]
