"""Turns, permits and gates: kept with the jobs, cheap whatever waits, cleared when it is gone."""

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from gantline.contract.errors import InvalidInput, StoreCorrupt
from gantline.contract.flow import Gate, TypeFlow
from gantline.contract.job import Job
from gantline.contract.outcome import Failure, Outcome, Released, Snoozed, Success
from gantline.contract.query import JobFilter
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES, JobSnapshot, Run
from gantline.contract.status import JobStatus
from gantline.contract.stored import Part, Stored
from gantline.contract.transition import Transition
from gantline.stores.redis.calls import Calls
from gantline.testing.conformance.bench import HOUR, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.suspects import submit_suspect
from gantline.testing.factories import JOB_TYPE, make_new, number
from tests.harness import RedisHarness
from tests.redis.flow_books import Books
from tests.servers.redis import RedisServer

MANY = 100_000
STEPS = 120


def at_once(running: int | None, job_type: str = JOB_TYPE) -> tuple[TypeFlow, ...]:
    return (TypeFlow(job_type=job_type, running=running),)


@pytest.fixture
async def bench(redis: RedisServer) -> AsyncIterator[Bench]:
    bench = await Bench.on(RedisHarness(redis))
    yield bench
    await bench.close()


@pytest.fixture
async def books(bench: Bench) -> AsyncIterator[Books]:
    assert isinstance(bench.harness, RedisHarness)
    books = Books(bench.harness)
    yield books
    await books.close()


# -- whatever happens, the books agree ------------------------------------------------------------


class Allowed:
    """What limits allow beside what runs."""

    def __init__(self, flow: Sequence[TypeFlow], running: Sequence[JobSnapshot]) -> None:
        self._flows = {one.job_type: one for one in flow}
        self._running = Counter(self._names(job.job) for job in running)
        self._in_all = Counter(job.job.job_type for job in running)

    def _names(self, job: Job) -> tuple[str, str, str]:
        return job.job_type, job.tenant_id, job.group

    def takes(self, job: Job) -> bool:
        """Whether one more may run, which then counts."""
        flow = self._flows.get(job.job_type, TypeFlow(job_type=job.job_type))
        of_group, in_all = self._running[self._names(job)], self._in_all[job.job_type]
        if (flow.running is not None and of_group >= flow.running) or (
            flow.running_in_all is not None and in_all >= flow.running_in_all
        ):
            return False
        self._running[self._names(job)] += 1
        self._in_all[job.job_type] += 1
        return True


class Life:
    """Jobs of a few groups, of two types and queues, to which anything may happen."""

    def __init__(self, bench: Bench, chance: random.Random) -> None:
        self._bench = bench
        self._chance = chance
        self._runs: list[Run] = []
        self._flow = (TypeFlow(job_type="x", running=1), TypeFlow(job_type="y", running=2))

    def _draw_flow(self) -> tuple[TypeFlow, ...]:
        chance = self._chance
        return tuple(
            TypeFlow(
                job_type=kind,
                running=chance.choice([None, 0, 1, 2]),
                running_in_all=chance.choice([None, None, 3]),
                gate=chance.choice([None, None, None, Gate("mail", per_second=2, burst=3)]),
            )
            for kind in chance.choice(["", "x", "xy"])
        )

    async def step(self) -> None:
        steps = (self._submit, self._claim, self._claim, self._end)
        rare = (self._crash, self._cancel, self._redrive, self._wait, self._move)
        await self._chance.choice(steps * 10 + rare)()

    async def _submit(self) -> None:
        chance = self._chance
        jobs = [
            make_new(
                chance.random(),
                group=chance.choice(["", "a", "b", "ü"]),
                tenant_id=chance.choice(["default", "default", "other"]),
                job_type=chance.choice("xy"),
                queue=chance.choice(["one", "one", "größe"]),
                priority=chance.randrange(4),
                delay=timedelta(seconds=chance.choice([0, 0, 0, 5, 50])),
                max_attempts=3,
            )
            for _ in range(chance.randint(1, 6))
        ]
        await self._bench.store.insert(jobs)

    async def _claim(self) -> None:
        chance = self._chance
        flow = self._flow if chance.random() < 0.8 else self._draw_flow()
        kinds = chance.choice(["x", "xy", "yx"])
        queue, limit = chance.choice(["one", "one", "größe"]), chance.choice([1, 7, 30])
        suspects = (2,) if chance.random() < 0.1 else ()
        allowed = Allowed(flow, await self._find(JobStatus.RUNNING))
        due = [
            job
            for job in await self._find(JobStatus.QUEUED)
            if job.job.queue == queue and job.job.job_type in kinds
            if job.crashes < SUSPECT_AFTER_CRASHES
            if job.run_at and job.run_at <= self._bench.clock.now()
        ]
        runs = await self._bench.claim(
            *kinds, queue=queue, limit=limit, flow=flow, suspects=suspects
        )
        self._runs += runs
        assert all(allowed.takes(run.job) for run in runs)
        if not suspects and not any(one.gate for one in flow):
            most = Allowed(flow, await self._find(JobStatus.RUNNING))
            left = [job for job in due if job.job.job_id not in {run.job.job_id for run in runs}]
            assert len(runs) == limit or not any(most.takes(job.job) for job in left)

    async def _find(self, *statuses: JobStatus) -> Sequence[JobSnapshot]:
        wanted = JobFilter(tenant_id=None, statuses=frozenset(statuses))
        return (await self._bench.store.find(wanted, limit=1000)).items

    async def _end(self) -> None:
        chance = self._chance
        chance.shuffle(self._runs)
        ended, self._runs = self._runs[:2], self._runs[2:]
        outcomes: Sequence[Outcome] = (
            Success(follow_ups=(make_new(group="a", job_type="x", queue="one"),)),
            Success(),
            Success(),
            Released(),
            PERMANENT,
            Failure(RETRYABLE.error),
            Snoozed(timedelta(seconds=3)),
        )
        for run in ended:
            if chance.random() < 0.1:
                change = Transition.throttled(run, delay=timedelta(seconds=2), closes="mail")
                await self._bench.store.apply([change])
            else:
                await self._bench.settle(run, chance.choice(outcomes))

    async def _crash(self) -> None:
        await self._bench.let_leases_expire()
        await self._bench.reap()
        self._runs.clear()

    async def _cancel(self) -> None:
        for job in await self._find(JobStatus.QUEUED):
            if self._chance.random() < 0.3:
                await self._bench.cancel(job.job.job_id)

    async def _redrive(self) -> None:
        for job in await self._find(JobStatus.CANCELLED, JobStatus.FAILED):
            if self._chance.random() < 0.5:
                await self._bench.redrive(job.job.job_id)

    async def _wait(self) -> None:
        self._bench.clock.advance(timedelta(seconds=self._chance.choice([1, 10])))

    async def _move(self) -> None:
        """To another store and back, as when nothing runs."""
        await self._crash()
        held: list[Stored] = []
        for part in Part:
            page = await self._bench.store.dump(part, limit=200)
            held += page.items
            while page.next:
                page = await self._bench.store.dump(part, after=page.next, limit=200)
                held += page.items
        await self._bench.store.clear()
        await self._bench.store.load(held)

    async def drain(self) -> None:
        """End all that runs, and start all that waits, whatever was full before."""
        for _ in range(20):
            self._bench.clock.advance(HOUR)
            for run in self._runs:
                await self._bench.settle(run, Success())
            self._runs = [
                run
                for queue in ("one", "größe")
                for suspects in ((), (2,))
                for run in await self._bench.claim("x", "y", queue=queue, suspects=suspects)
            ]
        assert await self._find(JobStatus.QUEUED, JobStatus.RUNNING) == ()


@pytest.mark.parametrize("seed", range(5))
async def test_after_any_steps_every_job_has_its_turn_and_every_run_its_permit(
    bench: Bench, books: Books, seed: int
) -> None:
    life = Life(bench, random.Random(seed))
    for _ in range(STEPS):
        await life.step()
        await books.check()
    await life.drain()
    await books.check()
    for pattern in (
        "turns*",
        "later*",
        "full*",
        "permits*",
        "grouped*",
        "groups*",
        "waiting*",
        "in-*",
    ):
        assert await books.keys(pattern) == []


async def test_the_jobs_of_a_group_go_by_time_due_and_id_over_types(bench: Bench) -> None:
    for value in (3, 1, 4, 2):
        await bench.submit(job_id=number(value), group="a", job_type="xy"[value % 2])
    bench.clock.advance(HOUR)
    await bench.submit(job_id=number(0), group="a", job_type="x")
    runs = await bench.claim("x", "y", limit=5)
    assert [run.job.job_id.int for run in runs] == [1, 2, 3, 4, 0]


async def test_when_the_last_of_a_group_leaves_the_queue_its_turn_goes(
    bench: Bench, books: Books
) -> None:
    """Whether it has one, waits for one or is full: so none hides the next, or costs claims."""
    flow = at_once(1)
    for group in "abc":
        await bench.submit_many(2, group=group)
    assert len(await bench.claim(flow=flow)) == 3
    for index in range(10):
        await bench.submit(group=f"turn-{index}")
    assert len(await bench.claim(limit=1, flow=flow)) == 1
    for index in range(3):
        await bench.submit(group=f"later-{index}", delay=HOUR)
    for pattern in ("turns:*:*:*", "later*", "full:*"):
        assert await books.keys(pattern) != []
    queued = JobFilter(tenant_id=None, statuses=frozenset({JobStatus.QUEUED}))
    for job in (await bench.store.find(queued, limit=100)).items:
        await bench.cancel(job.job.job_id)
        await books.check()
    for pattern in ("in-turns", "turns*", "later*", "full*"):
        assert await books.keys(pattern) == []


async def test_groups_of_which_all_was_cancelled_hide_no_other_tenant(bench: Bench) -> None:
    """However many: a claim that looked at a thousand in vain would seem to find none."""
    jobs = [make_new(value, group=f"gone-{value}") for value in range(2100)]
    await bench.store.insert(jobs)
    await bench.manager.cancel([new.job.job_id for new in jobs], tenant_id=None, actor="op")
    job_id = await bench.submit(tenant_id="other")
    assert [run.job.job_id for run in await bench.claim(limit=1)] == [job_id]


async def test_groups_of_which_only_later_jobs_are_left_hide_no_other_tenant(
    bench: Bench,
) -> None:
    now = [make_new(value, group=f"late-{value}") for value in range(1100)]
    later = [make_new(value, group=f"late-{value}", delay=HOUR) for value in range(1100)]
    await bench.store.insert(now + later)
    await bench.manager.cancel([new.job.job_id for new in now], tenant_id=None, actor="op")
    job_id = await bench.submit(tenant_id="other")
    assert [run.job.job_id for run in await bench.claim(limit=1)] == [job_id]


async def test_turns_of_which_all_was_cancelled_hide_none_after_them(bench: Bench) -> None:
    """More than a claim gives at a time."""
    for index in range(120):
        await bench.cancel(await bench.submit(group=f"gone-{index}"))
    bench.clock.advance(HOUR)
    job_id = await bench.submit(group="here")
    assert [run.job.job_id for run in await bench.claim(limit=2)] == [job_id]


async def test_suspects_of_a_type_whose_gate_is_closed_hide_no_others(bench: Bench) -> None:
    """However many: a claim looks at a thousand in vain."""
    gate = Gate("mail", per_second=0.001, burst=1)
    flow = (TypeFlow(job_type="gated", gate=gate),)
    for _ in range(1010):
        await submit_suspect(bench, job_type="gated")
    bench.clock.advance(HOUR)
    other = await submit_suspect(bench)
    runs = await bench.claim("gated", JOB_TYPE, limit=2, suspects=(2,), flow=flow)
    assert [run.job.job_type for run in runs] == ["gated", JOB_TYPE]
    assert runs[1].job.job_id == other


async def test_groups_of_which_all_has_ended_fill_no_page(bench: Bench) -> None:
    for group in ("a", "b"):
        await bench.submit(group=group)
    for run in await bench.claim():
        await bench.finish(run)
    page = await bench.store.groups("default", JOB_TYPE, tenant_id=None, limit=1)
    assert (page.items, page.next) == ((), "")


@pytest.mark.parametrize("tenant_id", [None, "default"])
@pytest.mark.parametrize("after", ["-1", "x", "1.5", "²", "9" * 20, "1:1:1", "1:", ":"])
async def test_a_position_that_no_page_gave_is_refused(
    bench: Bench, after: str, tenant_id: str | None
) -> None:
    with pytest.raises(InvalidInput):
        await bench.store.groups("default", JOB_TYPE, tenant_id=tenant_id, limit=1, after=after)
    far = "999999:1" if tenant_id is None else str(2**63 - 1)
    page = await bench.store.groups("default", JOB_TYPE, tenant_id=tenant_id, limit=1, after=far)
    assert (page.items, page.next) == ((), "")


async def read_pages(bench: Bench, tenant_id: str, limit: int) -> list[tuple[list[str], str]]:
    """What a tenant sees of its groups: names, and where to go on."""
    pages: list[tuple[list[str], str]] = []
    while not pages or pages[-1][1]:
        after = pages[-1][1] if pages else ""
        page = await bench.store.groups(
            "default", JOB_TYPE, tenant_id=tenant_id, limit=limit, after=after
        )
        pages.append(([one.group for one in page.items], page.next))
    return pages


async def test_neither_pages_nor_positions_say_anything_about_groups_of_others(
    bench: Bench,
) -> None:
    for group in ("a", "b", "c"):
        await bench.submit_many(2, group=group, tenant_id="t")
    before = [await read_pages(bench, "t", limit) for limit in (1, 2, 3, 100)]
    assert [len(pages) for pages in before] == [3, 2, 1, 1]
    for tenant in ("default", "other"):
        jobs = [make_new(tenant_id=tenant, group=f"{value % 1100}") for value in range(3300)]
        await bench.store.insert([*jobs, make_new(tenant_id=tenant)])
    assert [await read_pages(bench, "t", limit) for limit in (1, 2, 3, 100)] == before
    shown = [group for groups, _ in await read_pages(bench, "other", 200) for group in groups]
    assert len(shown) == len(set(shown)) == 1101


@pytest.mark.parametrize("reply", [None, 7, [], [1], [-1, 2], [-1, [1, 2]], [2], [b"x"]])
async def test_a_page_of_groups_that_cannot_be_read_is_an_error_of_ours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, reply: Any
) -> None:
    async def answer(*_: object) -> Any:
        return reply

    monkeypatch.setattr(Calls, "run", answer)
    with pytest.raises(StoreCorrupt):
        await bench.store.groups("default", JOB_TYPE, tenant_id=None, limit=1, after="5:5")
    monkeypatch.setattr(Calls, "run", answer)
    with pytest.raises(StoreCorrupt):
        await bench.store.gates(["mail"])


async def test_when_a_limit_is_raised_full_groups_are_found_to_be_so_once(
    bench: Bench, books: Books
) -> None:
    """They hide none that has room, and cost later claims nothing."""
    full, roomy = ([f"{name}-{index}" for index in range(350)] for name in ("full", "roomy"))
    await bench.store.insert([make_new(group=one) for one in (full + full + roomy)[:1000]])
    assert len(await bench.claim(limit=1000)) == 1000
    for group in (full, roomy[:300]):
        await bench.store.insert([make_new(group=one) for one in group])
        while await bench.claim(limit=100, flow=at_once(1)):
            pass
    assert len(await bench.claim(limit=300, flow=at_once(2))) == 300
    await books.check()
    assert await cost(bench, books, limit=1, flow=at_once(2)) < 100


# -- what a claim costs -----------------------------------------------------------------------


async def fill(bench: Bench, groups: int, **fields: Any) -> None:
    for first in range(0, groups, 2000):
        jobs = [
            make_new(value, group=f"group-{value}", tenant_id=f"tenant-{value % 7}", **fields)
            for value in range(first, min(groups, first + 2000))
        ]
        await bench.store.insert(jobs)


async def cost(bench: Bench, books: Books, *job_types: str, **fields: Any) -> int:
    """How many commands a claim takes, at the most of a few."""
    costs = []
    for _ in range(5):
        before = await books.commands()
        await bench.claim(*job_types, **fields)
        costs.append(await books.commands() - before)
    return max(costs)


@pytest.mark.wide
async def test_a_claim_costs_the_same_whatever_waits(redis: RedisServer) -> None:
    """Groups that wait, that are not due yet, and that are full: ten, or a hundred thousand."""
    costs: list[tuple[int, ...]] = []
    for groups in (2000, MANY):
        bench = await Bench.on(RedisHarness(redis))
        assert isinstance(bench.harness, RedisHarness)
        books = Books(bench.harness)
        await fill(bench, groups)
        await fill(bench, groups, job_type="later", delay=HOUR)
        await fill(bench, groups, job_type="full")
        await bench.submit_many(200, job_type="other", group="few")
        waiting = await cost(bench, books, limit=8)
        later = await cost(bench, books, "later", "other", limit=8)
        full = await cost(bench, books, "full", "other", limit=8, flow=at_once(0, "full"))
        for _ in range(groups // 500):
            await bench.claim("full", limit=100, flow=at_once(0, "full"))
        all_full = await cost(bench, books, "full", "other", limit=8, flow=at_once(0, "full"))
        costs.append((waiting, later, full, all_full))
        await books.close()
        await bench.close()
    few, many = costs
    assert all(one <= other + 8 for one, other in zip(many, few, strict=True)), costs
