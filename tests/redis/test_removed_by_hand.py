"""Rows that somebody removed by hand: what is left of a job breaks nothing, and is cleared."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from gantline.contract.flow import TypeFlow
from gantline.contract.outcome import LEASE_EXPIRED, Success
from gantline.contract.query import JobFilter, PruneRule
from gantline.contract.results import Applied, Duplicate, NotFound
from gantline.contract.snapshot import Run
from gantline.contract.status import JobStatus
from gantline.contract.stored import Part, Stored, StoredJob, StoredKey
from gantline.contract.submission import KeyKind
from gantline.contract.transition import Transition
from gantline.manager.decide import decide_redrive
from gantline.stores.redis.calls import Calls
from gantline.stores.redis.rows import encode_span
from gantline.testing.conformance.bench import HOUR, LEASE, Bench
from gantline.testing.factories import JOB_TYPE, make_new
from tests.harness import RedisHarness
from tests.servers.redis import RedisServer

ROWS = {"envelope": ["jobs"], "state": ["states"], "both": ["jobs", "states"]}
ENDED = [status for status in JobStatus if status.is_terminal]


@pytest.fixture
async def bench(redis: RedisServer) -> AsyncIterator[Bench]:
    bench = await Bench.on(RedisHarness(redis))
    yield bench
    await bench.close()


@pytest.fixture(params=ROWS)
def rows(request: pytest.FixtureRequest) -> list[str]:
    return ROWS[request.param]


async def call(bench: Bench, name: str, key: str, *rest: bytes) -> object:
    assert isinstance(bench.harness, RedisHarness)
    location = bench.harness.location
    calls = Calls(location)
    answer = await calls.ask(name, b"%b:%b" % (location.tag, key.encode()), *rest)
    await calls.close()
    return answer


async def remove_by_hand(bench: Bench, rows: list[str], job_id: UUID) -> None:
    for key in rows:
        assert await call(bench, "HDEL", key, job_id.bytes) == 1


async def check_that_readers_pass_over(bench: Bench, gone: UUID) -> None:
    store, everything = bench.store, JobFilter(tenant_id=None)
    assert await store.get([gone], tenant_id=None) == [None]
    assert gone not in {job.job.job_id for job in (await store.find(everything, limit=50)).items}
    jobs = [one.job.job_id for one in await dumped(bench, Part.JOBS) if isinstance(one, StoredJob)]
    assert jobs
    assert gone not in jobs


async def dumped(bench: Bench, part: Part) -> list[Stored]:
    items: list[Stored] = []
    after = ""
    while True:
        page = await bench.store.dump(part, after=after, limit=1)
        items += page.items
        if not (after := page.next):
            return items


async def test_the_external_id_of_a_job_that_is_gone_is_nobodys(
    bench: Bench, rows: list[str]
) -> None:
    given = uuid4()
    gone, other = [await bench.submit(external_id=one) for one in (given, uuid4())]
    await remove_by_hand(bench, rows, gone)
    keys = [one.job_id for one in await dumped(bench, Part.KEYS) if isinstance(one, StoredKey)]
    assert keys == [other]
    newer = await bench.submit("another", external_id=given)
    again = make_new("another", external_id=given)
    assert await bench.store.insert([again]) == [Duplicate(newer, by=KeyKind.ID)]


async def test_a_claim_passes_over_a_queued_job_whose_row_is_gone(
    bench: Bench, rows: list[str]
) -> None:
    gone, *others = [await bench.submit(idempotency_key=key) for key in ("a", "b", "c")]
    await remove_by_hand(bench, rows, gone)
    await check_that_readers_pass_over(bench, gone)
    keys = [one.job_id for one in await dumped(bench, Part.KEYS) if isinstance(one, StoredKey)]
    assert set(keys) == set(others)
    runs = await bench.claim()
    assert {run.job.job_id for run in runs} == set(others)
    assert await bench.recount() == dict.fromkeys(JobStatus, 0) | {JobStatus.RUNNING: 2}
    for run in runs:
        await bench.finish(run)


async def test_a_claim_in_which_all_rows_are_gone_is_empty(bench: Bench, rows: list[str]) -> None:
    for gone in await bench.submit_many(2):
        await remove_by_hand(bench, rows, gone)
    assert await bench.claim() == []
    assert sum((await bench.recount()).values()) == 0
    for key in ("jobs", "states", "claims"):
        assert await call(bench, "EXISTS", key) == 0


async def test_what_is_gone_does_not_expire_and_hides_nothing(
    bench: Bench, rows: list[str]
) -> None:
    at = bench.clock.now() + HOUR
    gone, other = [await bench.submit(expires_at=at, job_id=UUID(int=one)) for one in (1, 2)]
    await remove_by_hand(bench, rows, gone)
    bench.clock.advance(HOUR)
    assert await bench.store.past_expiry(limit=1) == []
    assert await bench.store.past_expiry(limit=1) == [other]


async def test_while_the_state_is_left_no_list_keeps_a_job_that_is_gone(bench: Bench) -> None:
    gone = await bench.submit()
    await remove_by_hand(bench, ["jobs"], gone)
    assert await call(bench, "EXISTS", "list:1:2:Q") == 1
    await bench.claim()
    assert await call(bench, "EXISTS", "list:1:2:Q") == 0


async def test_a_sweep_removes_the_lease_of_a_job_whose_row_is_gone(
    bench: Bench, rows: list[str]
) -> None:
    gone, other = [run.job.job_id for run in await claim_two(bench)]
    await remove_by_hand(bench, rows, gone)
    await check_that_readers_pass_over(bench, gone)
    await bench.let_leases_expire()
    assert [run.job.job_id for run in await bench.store.expired(limit=1)] == [other]
    assert (await bench.recount())[JobStatus.RUNNING] == 1
    assert (await bench.reap()).requeued == 1
    assert await bench.store.expired(limit=10) == []
    assert await call(bench, "EXISTS", "lease-groups") == 0


async def claim_two(bench: Bench) -> list[Run]:
    await bench.submit_many(2)
    return sorted(await bench.claim(), key=lambda run: run.job.job_id)


async def test_the_run_of_a_job_whose_row_is_gone_ends_without_harm(
    bench: Bench, rows: list[str]
) -> None:
    gone, other = await claim_two(bench)
    await remove_by_hand(bench, rows, gone.job.job_id)
    await bench.settle(gone, Success())
    await bench.finish(other)
    await bench.let_leases_expire()
    assert await bench.store.expired(limit=10) == []
    bench.clock.advance(HOUR)
    rules = [PruneRule(status, bench.clock.now()) for status in ENDED]
    assert (await bench.store.prune(rules, limit=10)).jobs >= 1
    assert sum((await bench.recount()).values()) == 0


async def test_the_lease_of_a_job_that_is_gone_is_not_taken_for_that_of_its_new_run(
    bench: Bench,
) -> None:
    job_id = (await bench.start(session="old")).job.job_id
    await remove_by_hand(bench, ["jobs", "states"], job_id)
    await bench.submit(job_id=job_id)
    (run,) = await bench.claim(session="new")
    await bench.store.expire_session("old")
    assert await bench.store.expired(limit=10) == []
    assert (await bench.recount())[JobStatus.RUNNING] == 1
    await bench.finish(run)


async def test_a_queued_job_that_was_removed_and_submitted_again_runs_once(bench: Bench) -> None:
    job_id = await bench.submit(priority=3)
    await remove_by_hand(bench, ["jobs", "states"], job_id)
    await bench.submit(job_id=job_id, priority=0)
    (run,) = await bench.claim(limit=1)
    assert await bench.claim() == []
    await bench.finish(run)
    assert await bench.recount() == dict.fromkeys(JobStatus, 0) | {JobStatus.COMPLETED: 1}


async def test_a_run_whose_lease_was_removed_can_still_end(bench: Bench) -> None:
    done, crashed = await claim_two(bench)
    assert await call(bench, "DEL", f"leases:{encode_span(LEASE)}:{done.session}") == 1
    assert await bench.status(crashed.job.job_id) is JobStatus.RUNNING
    await bench.finish(done)
    change = Transition.crashed(crashed, LEASE_EXPIRED, delay=HOUR)
    assert await bench.store.apply([change]) == [Applied(crashed.version + 1)]


async def test_a_job_without_its_envelope_is_not_redriven(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.FAILED, idempotency_key="k")
    change = decide_redrive(await bench.snapshot(job_id), actor="op")
    await remove_by_hand(bench, ["jobs"], job_id)
    assert await bench.store.apply([change]) == [NotFound()]


async def test_a_repeated_claim_leaves_out_a_job_whose_row_is_gone(
    bench: Bench, rows: list[str]
) -> None:
    claim_id = uuid4()
    await bench.submit_many(2)
    gone, other = await bench.claim(claim_id=claim_id)
    await remove_by_hand(bench, rows, gone.job.job_id)
    assert [run.ref for run in await bench.claim(claim_id=claim_id)] == [other.ref]


async def test_no_group_of_dead_letters_is_left_when_its_last_job_is_gone(bench: Bench) -> None:
    gone, _ = await bench.bring_to(JobStatus.FAILED)
    await remove_by_hand(bench, ["jobs", "states"], gone)
    bench.clock.advance(HOUR)
    await bench.store.prune([PruneRule(JobStatus.FAILED, bench.clock.now())], limit=10)
    assert await call(bench, "EXISTS", "dead-groups") == 0


@pytest.mark.parametrize("status", ENDED)
async def test_pruning_removes_what_is_left_of_an_ended_job(
    bench: Bench, rows: list[str], status: JobStatus
) -> None:
    gone, _ = await bench.bring_to(status, idempotency_key="k", subject_id="s")
    await bench.bring_to(status, subject_id="s")
    await remove_by_hand(bench, rows, gone)
    await check_that_readers_pass_over(bench, gone)
    bench.clock.advance(HOUR)
    rules = [PruneRule(status, bench.clock.now())]
    await bench.store.prune(rules, limit=10, keep_events_after=1000)
    assert sum((await bench.recount()).values()) == 0
    assert await bench.store.dead_counts(tenant_id=None) == []
    assert await call(bench, "EXISTS", "jobs") == 0


ONE = (TypeFlow(job_type=JOB_TYPE, running=1),)


async def test_what_is_gone_of_a_group_hides_none_of_it(bench: Bench, rows: list[str]) -> None:
    gone, *others = await bench.submit_many(3, group="a")
    await remove_by_hand(bench, rows, gone)
    assert {run.job.job_id for run in await bench.claim()} == set(others)
    for run in await bench.store.expired(limit=10):
        await bench.finish(run)
    page = await bench.store.groups("default", JOB_TYPE, tenant_id=None, limit=10)
    assert [(one.waiting, one.running) for one in page.items] == [(0, 2)]
    assert await call(bench, "EXISTS", "grouped:1:2") == 0


async def test_a_permit_of_a_job_that_is_gone_is_taken_back_at_once_or_with_its_lease(
    bench: Bench, rows: list[str]
) -> None:
    await bench.submit_many(2, group="a")
    (run,) = await bench.claim(limit=1, flow=ONE)
    await remove_by_hand(bench, rows, run.job.job_id)
    taken = await bench.claim(flow=ONE)
    if not taken:
        await bench.let_leases_expire()
        await bench.store.expired(limit=10)
        taken = await bench.claim(flow=ONE)
    assert len(taken) == 1
    await bench.finish(taken[0])
    await bench.let_leases_expire()
    assert await bench.store.expired(limit=10) == []
    assert await keys(bench, "permits") == await keys(bench, "groups") == []


async def test_a_group_that_was_full_does_not_wait_for_a_run_that_is_gone(bench: Bench) -> None:
    await bench.submit_many(2, group="a")
    (run,) = await bench.claim(flow=ONE)
    assert await bench.claim(flow=ONE) == []
    await remove_by_hand(bench, ["jobs", "states"], run.job.job_id)
    leases = f"leases:{encode_span(LEASE)}:{run.session}"
    assert await call(bench, "DEL", leases) == 1
    claims = [await bench.claim(flow=ONE) for _ in range(3)]
    assert [len(runs) for runs in claims].count(1) == 1


async def test_permits_that_were_removed_do_no_harm_to_the_ends_of_runs(bench: Bench) -> None:
    await bench.submit_many(3, group="a")
    (run,) = await bench.claim(flow=ONE)
    (permits,) = await keys(bench, "permits")
    assert await call(bench, "DEL", permits) == 1
    await bench.finish(run)
    assert len(await bench.claim(flow=ONE)) == 1
    assert await bench.claim(flow=ONE) == []


async def test_a_job_comes_back_whose_turn_was_removed_with_the_next_of_its_group(
    bench: Bench,
) -> None:
    await bench.submit(group="a")
    for name in ("later", "turns", "in-turns"):
        for key in await keys(bench, name):
            await call(bench, "DEL", key)
    assert await bench.claim() == []
    await bench.submit(group="a")
    assert len(await bench.claim()) == 2


async def keys(bench: Bench, name: str) -> list[str]:
    assert isinstance(bench.harness, RedisHarness)
    calls = Calls(bench.harness.location)
    tag = bench.harness.location.tag.decode()
    found = await calls.ask("KEYS", f"*{tag[1:-1]}?:{name}*")
    await calls.close()
    return [key.decode().removeprefix(f"{tag}:") for key in found]
