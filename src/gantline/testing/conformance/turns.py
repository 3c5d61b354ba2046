"""Rules for turns: within a priority tenants take turns, and of each tenant its groups."""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from gantline.contract.errors import InvalidInput
from gantline.contract.flow import GroupState
from gantline.contract.outcome import Outcome, Released, Snoozed, Success
from gantline.contract.query import LaneRequest
from gantline.contract.results import Applied
from gantline.contract.snapshot import Run
from gantline.contract.stored import Part, Stored
from gantline.contract.submission import NewJob
from gantline.contract.transition import Transition
from gantline.testing.conformance.bench import HOUR, LEASE, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.conformance.suspects import submit_suspect
from gantline.testing.factories import JOB_TYPE, lane_requests, make_new, number

NEEDS: Final = "turns"


def by_group(runs: list[Run]) -> Counter[str]:
    return Counter(run.job.group for run in runs)


def by_tenant(runs: list[Run]) -> Counter[str]:
    return Counter(run.job.tenant_id for run in runs)


async def drain(bench: Bench, *job_types: str, limit: int = 100, **fields: Any) -> list[Run]:
    """Claim until nothing comes."""
    taken: list[Run] = []
    while runs := await bench.claim(*job_types, limit=limit, **fields):
        taken += runs
    return taken


async def all_groups(bench: Bench, *, limit: int = 100, **fields: Any) -> list[GroupState]:
    """Every page of `groups`, in one order."""
    found: list[GroupState] = []
    after = ""
    while True:
        page = await bench.store.groups(
            "default", JOB_TYPE, **{"tenant_id": None} | fields, limit=limit, after=after
        )
        found += page.items
        after = page.next
        if not after:
            return sorted(found, key=lambda state: (state.tenant_id, state.group))


@rule_for(("nonsense", "-1", "1:2:3", "9" * 30, "[1]", "\u0661", ":"))
async def a_position_that_no_page_of_groups_gave_is_refused(bench: Bench, after: str) -> None:
    await bench.submit(group="a")
    try:
        await bench.store.groups("default", JOB_TYPE, tenant_id=None, limit=5, after=after)
    except InvalidInput:
        return
    raise AssertionError("it was not refused")


# -- whose turn it is ---------------------------------------------------------------------------


@rule
async def the_next_claim_has_the_one_of_a_group_beside_the_many_of_another(bench: Bench) -> None:
    await bench.submit_many(100, group="many")
    bench.clock.advance(HOUR)
    await bench.submit(group="one")
    assert by_group(await bench.claim(limit=2)) == {"many": 1, "one": 1}
    assert by_group(await bench.claim(limit=2)) == {"many": 2}


@rule
async def jobs_without_a_group_take_turns_with_groups_as_one(bench: Bench) -> None:
    await bench.submit_many(100)
    bench.clock.advance(HOUR)
    await bench.submit(group="one")
    await bench.submit_many(5, tenant_id="other")
    runs = await bench.claim(limit=4)
    assert Counter((run.job.tenant_id, run.job.group) for run in runs) in (
        {("default", ""): 1, ("default", "one"): 1, ("other", ""): 2},
        {("default", ""): 2, ("default", "one"): 1, ("other", ""): 1},
    )


@rule
async def a_new_group_is_in_the_next_claim_whatever_waits(bench: Bench) -> None:
    for index in range(30):
        await bench.submit_many(9, group=f"old-{index}")
    for _ in range(10):
        await bench.claim(limit=20)
    bench.clock.advance(HOUR)
    late = await bench.submit(group="new")
    assert late in {run.job.job_id for run in await bench.claim(limit=4)}


@rule
async def a_new_group_is_in_one_of_the_next_two_claims_of_one(bench: Bench) -> None:
    for index in range(10):
        await bench.submit_many(3, group=f"old-{index}")
    await bench.claim(limit=10)
    late = await bench.submit(group="new")
    runs = [*await bench.claim(limit=1), *await bench.claim(limit=1)]
    assert late in {run.job.job_id for run in runs}


@rule_for((2, 3, 10, 50))
async def a_claim_gives_each_of_few_groups_about_the_same(bench: Bench, limit: int) -> None:
    groups = ("a", "b", "")[: min(3, limit)]
    for group in groups:
        await bench.submit_many(80, group=group)
    for _ in range(3):
        shares = by_group(await bench.claim(limit=limit))
        assert shares.total() == limit
        assert set(shares) == set(groups)
        assert max(shares.values()) - min(shares.values()) <= max(1, limit // 10)


@rule
async def a_claim_has_jobs_of_as_many_groups_as_it_can_up_to_eight(bench: Bench) -> None:
    for index in range(20):
        await bench.submit_many(20, group=f"group-{index}")
    for limit in (1, 3, 8, 30):
        assert len(by_group(await bench.claim(limit=limit))) >= min(limit, 8)


@rule_for((1, 7, 10))
async def over_many_claims_each_group_gets_about_the_same(bench: Bench, limit: int) -> None:
    for index in range(10):
        await bench.submit_many(40, group=f"group-{index}")
    shares: Counter[str] = Counter()
    while shares.total() < 100:
        runs = await bench.claim(limit=limit)
        assert len(runs) == limit
        shares += by_group(runs)
    assert len(shares) == 10
    assert max(shares.values()) <= 15
    assert min(shares.values()) >= 5


@rule_for((1, 4, 10))
async def a_tenant_of_many_groups_gets_as_much_as_one_of_one(bench: Bench, limit: int) -> None:
    for index in range(10):
        await bench.submit_many(10, tenant_id="many", group=f"group-{index}")
    await bench.submit_many(100, tenant_id="one", group="all")
    runs: list[Run] = []
    while len(runs) < 60:
        runs += await bench.claim(limit=limit)
    shares = by_tenant(runs)
    assert abs(shares["many"] - shares["one"]) <= 12, shares
    of_many = [run for run in runs if run.job.tenant_id == "many"]
    assert len(by_group(of_many)) == 10


@rule
async def three_tenants_share_alike_whatever_groups_they_have(bench: Bench) -> None:
    await bench.submit_many(60)
    for index in range(6):
        await bench.submit_many(10, tenant_id="some", group=f"group-{index}")
    await bench.submit_many(60, tenant_id="plain")
    runs = [run for _ in range(10) for run in await bench.claim(limit=6)]
    shares = by_tenant(runs)
    assert shares.total() == 60
    assert min(shares.values()) >= 12, shares
    assert len(shares) == 3


@rule_for(("group", "tenant_id"))
async def new_ones_alone_never_keep_others_waiting(bench: Bench, field: str) -> None:
    """More come in each round than a claim can take."""
    await bench.submit_many(100, **{field: "old"})
    await bench.claim(limit=4)
    taken = 0
    for number_of_round in range(10):
        for index in range(8):
            await bench.submit(**{field: f"new-{number_of_round}-{index}"})
        runs = await bench.claim(limit=4)
        assert len(runs) == 4
        taken += sum(getattr(run.job, field) == "old" for run in runs)
    assert taken >= 8


@rule
async def new_groups_alone_never_keep_others_waiting_for_claims_of_one(bench: Bench) -> None:
    await bench.submit_many(100, group="old")
    await bench.claim(limit=1)
    taken = 0
    for index in range(20):
        await bench.submit(group=f"new-{index}")
        taken += by_group(await bench.claim(limit=1))["old"]
    assert taken >= 5


@rule
async def a_name_of_a_group_is_of_its_tenant(bench: Bench) -> None:
    await bench.submit_many(20, tenant_id="one", group="same")
    await bench.submit_many(20, tenant_id="other", group="same")
    assert by_tenant(await bench.claim(limit=10)) == {"one": 5, "other": 5}


@rule_for((1, 10))
async def a_new_tenant_is_served_soon_beside_the_many_new_groups_of_another(
    bench: Bench, limit: int
) -> None:
    jobs = [make_new(index, tenant_id="many", group=f"group-{index}") for index in range(300)]
    await bench.store.insert(jobs)
    for _ in range(3):
        assert len(await bench.claim(limit=limit)) == limit
    bench.clock.advance(HOUR)
    late = await bench.submit(tenant_id="other")
    runs = [*await bench.claim(limit=limit), *await bench.claim(limit=limit)]
    assert late in {run.job.job_id for run in runs}


@rule
async def groups_take_turns_over_the_types_of_a_queue(bench: Bench) -> None:
    await bench.submit_many(50, group="many", job_type="a")
    await bench.submit_many(50, group="many", job_type="b")
    bench.clock.advance(HOUR)
    await bench.submit(group="one", job_type="a")
    await bench.submit(group="two", job_type="b")
    runs = await bench.claim("a", "b", limit=8)
    assert len(runs) == 8
    assert {"one", "two"} < set(by_group(runs))


# -- a claim is full ----------------------------------------------------------------------------


@rule
async def a_claim_is_full_where_other_groups_have_few(bench: Bench) -> None:
    for index in range(5):
        await bench.submit(group=f"few-{index}")
    await bench.submit_many(40, group="many")
    assert [len(await bench.claim(limit=15)) for _ in range(4)] == [15, 15, 15, 0]


@rule_for((1, 7, 30))
async def a_claim_is_full_where_each_group_has_one_job(bench: Bench, limit: int) -> None:
    count = min(60, 10 * limit)
    jobs = [make_new(index, group=f"group-{index}") for index in range(count)]
    await bench.store.insert(jobs)
    claims = [len(await bench.claim(limit=limit)) for _ in range(count // limit)]
    assert claims == [limit] * (count // limit)
    assert len(await bench.claim(limit=limit)) == count % limit
    assert await bench.claim(limit=limit) == []


@rule
async def a_claim_is_full_over_types_and_priorities(bench: Bench) -> None:
    for index in range(48):
        await bench.submit(
            group=f"group-{index % 5}", job_type="ab"[index % 2], priority=index // 2 % 4
        )
    claims = [await bench.claim("a", "b", limit=10) for _ in range(6)]
    assert [len(runs) for runs in claims] == [10, 10, 10, 10, 8, 0]
    priorities = [run.priority for runs in claims for run in runs]
    assert priorities == sorted(priorities)


@rule
async def a_claim_is_full_where_a_tenant_s_groups_have_one_job_each(bench: Bench) -> None:
    jobs = [make_new(index, tenant_id="t", group=f"group-{index}") for index in range(40)]
    await bench.store.insert(jobs)
    await bench.submit(tenant_id="other")
    assert [len(await bench.claim(limit=20)) for _ in range(4)] == [20, 20, 1, 0]


# -- order --------------------------------------------------------------------------------------


@rule
async def within_a_group_the_order_is_time_due_then_id(bench: Bench) -> None:
    groups = {"a": [7, 3, 9], "b": [8, 2, 5]}
    for values in zip(*groups.values(), strict=True):
        for group, value in zip(groups, values, strict=True):
            await bench.submit(job_id=number(value), group=group)
    bench.clock.advance(HOUR)
    for group, value in (("a", 1), ("b", 4)):
        await bench.submit(job_id=number(value), group=group)
    runs = await drain(bench, limit=3)
    order = {
        group: [run.job.job_id.int for run in runs if run.job.group == group] for group in groups
    }
    assert order == {"a": [3, 7, 9, 1], "b": [2, 5, 8, 4]}


@rule
async def a_higher_priority_goes_first_over_all_turns(bench: Bench) -> None:
    await bench.submit_many(3, group="urgent", priority=0)
    await bench.submit_many(10, group="waits", priority=2)
    await bench.submit_many(2, group="urgent", priority=2)
    runs = await bench.claim(limit=5)
    assert [run.priority for run in runs] == [0, 0, 0, 2, 2]
    urgent = await bench.submit(group="waits", priority=1)
    (run,) = await bench.claim(limit=1)
    assert run.job.job_id == urgent


@rule
async def groups_take_turns_in_each_priority_alone(bench: Bench) -> None:
    for priority in (0, 3):
        for group in ("a", "b"):
            await bench.submit_many(4, group=group, priority=priority)
    runs = await bench.claim(limit=12)
    assert by_group(runs[:8]) == {"a": 4, "b": 4}
    assert by_group(runs[8:]) == {"a": 2, "b": 2}


@rule
async def what_is_not_due_delays_no_other(bench: Bench) -> None:
    for index in range(30):
        await bench.submit(group=f"later-{index}", delay=HOUR, priority=0)
    await bench.submit(group="a", delay=HOUR)
    now = [await bench.submit(group="a"), await bench.submit(group="b", priority=3)]
    assert [run.job.job_id for run in await bench.claim()] == now
    assert await bench.claim() == []
    bench.clock.advance(HOUR - timedelta(microseconds=1))
    assert await bench.claim() == []
    bench.clock.advance(timedelta(microseconds=1))
    assert len(await drain(bench)) == 31


@rule
async def what_is_due_sooner_than_the_rest_of_its_group_is_found(bench: Bench) -> None:
    await bench.submit(group="a", delay=2 * HOUR)
    assert await bench.claim() == []
    sooner = await bench.submit(group="a", delay=HOUR)
    assert await bench.claim() == []
    bench.clock.advance(HOUR)
    assert [run.job.job_id for run in await bench.claim()] == [sooner]
    now = await bench.submit(group="a")
    assert [run.job.job_id for run in await bench.claim()] == [now]
    bench.clock.advance(HOUR)
    assert len(await bench.claim()) == 1


@rule
async def of_jobs_of_a_group_that_come_together_each_is_found_when_it_is_due(bench: Bench) -> None:
    delays = (2 * HOUR, HOUR, 3 * HOUR)
    jobs = [make_new(number, group="a", delay=delay) for number, delay in enumerate(delays)]
    await bench.store.insert(jobs)
    for index in (1, 0, 2):
        bench.clock.advance(HOUR)
        assert [run.job.job_id for run in await bench.claim()] == [jobs[index].job.job_id]


@rule
async def types_that_are_not_asked_for_delay_no_other(bench: Bench) -> None:
    for index in range(20):
        await bench.submit_many(3, group=f"paused-{index}", job_type="paused", priority=0)
    await bench.submit_many(3, group="paused-0")
    await bench.submit_many(3, group="other")
    assert by_group(await bench.claim(limit=6)) == {"paused-0": 3, "other": 3}
    assert await bench.claim() == []
    assert len(await drain(bench, "paused", limit=7)) == 60


@rule
async def a_type_that_may_start_few_delays_no_other(bench: Bench) -> None:
    for index in range(10):
        await bench.submit_many(5, group=f"group-{index}", job_type="few")
    await bench.submit_many(5, group="group-0")
    runs = await bench.claim("few", "test", limit=6, at_most={"few": 1})
    assert Counter(run.job.job_type for run in runs) == {"few": 1, "test": 5}


@rule
async def no_more_of_a_type_start_than_it_may_however_many_groups_it_has(bench: Bench) -> None:
    jobs = [make_new(index, group=f"group-{index}", job_type="few") for index in range(100)]
    await bench.store.insert(jobs)
    for limit in (5, 100):
        assert len(await bench.claim("few", limit=limit, at_most={"few": 1})) == 1


@rule
async def only_the_queue_that_is_named_gives_its_groups(bench: Bench) -> None:
    await bench.submit_many(3, group="a", queue="other")
    await bench.submit_many(3, group="a")
    assert [run.job.queue for run in await drain(bench)] == ["default"] * 3
    requests: list[LaneRequest] = [*lane_requests(queue="other", limit=2), *lane_requests()]
    runs = await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)
    assert [run.job.queue for run in runs] == ["other"] * 2


@rule
async def a_repeated_claim_gives_the_same_runs_of_groups(bench: Bench) -> None:
    for group in "abc":
        await bench.submit_many(3, group=group)
    claim_id = uuid4()
    first = await bench.claim(limit=4, claim_id=claim_id)
    again = await bench.claim(limit=4, claim_id=claim_id)
    assert {run.ref for run in again} == {run.ref for run in first}
    assert len(await drain(bench)) == 5


# -- nothing is lost: a group stays, and is found, whatever happens to its jobs -------------------


async def _ended(bench: Bench, run: Run, outcome: Outcome) -> None:
    await bench.finish(run, outcome)


async def _retried(bench: Bench, run: Run) -> None:
    await _ended(bench, run, RETRYABLE)


async def _snoozed(bench: Bench, run: Run) -> None:
    await _ended(bench, run, Snoozed(HOUR))


async def _released(bench: Bench, run: Run) -> None:
    await _ended(bench, run, Released())


async def _throttled(bench: Bench, run: Run) -> None:
    throttled = Transition.throttled(run, delay=HOUR, closes="gate")
    assert await bench.store.apply([throttled]) == [Applied(run.version + 1)]


async def _crashed(bench: Bench, run: Run) -> None:
    await bench.reap_expired()


async def _taken_away(bench: Bench, run: Run) -> None:
    taken = Transition.taken_away(await bench.snapshot(run.job.job_id), actor="op")
    assert await bench.store.apply([taken]) == [Applied(run.version + 1)]


async def _redriven(bench: Bench, run: Run) -> None:
    await _ended(bench, run, PERMANENT)
    await bench.redrive(run.job.job_id)


async def _moved(bench: Bench, run: Run) -> None:
    await _ended(bench, run, Snoozed(HOUR))
    await bench.store.sequence(limit=1000)
    held: list[Stored] = []
    for part in Part:
        held += (await bench.store.dump(part, limit=1000)).items
    await bench.store.clear()
    await bench.store.load(held)


WAYS_BACK: Final[tuple[Callable[[Bench, Run], Awaitable[None]], ...]] = (
    _retried,
    _snoozed,
    _released,
    _throttled,
    _crashed,
    _taken_away,
    _redriven,
    _moved,
)


@rule_for(WAYS_BACK)
async def a_job_that_goes_back_to_the_queue_keeps_its_group(
    bench: Bench, way: Callable[[Bench, Run], Awaitable[None]]
) -> None:
    job_id = await bench.submit(group="a", tenant_id="t")
    (run,) = await bench.claim()
    assert (run.job.tenant_id, run.job.group) == ("t", "a")
    await way(bench, run)
    assert (await bench.snapshot(job_id)).job.group == "a"
    assert await _waiting(bench, "a") == 1
    bench.clock.advance(2 * HOUR)
    await bench.submit_many(20, group="many", tenant_id="t")
    runs = await bench.claim(limit=4)
    assert job_id in {run.job.job_id for run in runs}
    assert {run.job.group for run in runs} == {"a", "many"}
    await bench.finish(next(run for run in runs if run.job.job_id == job_id))
    assert await _waiting(bench, "a") == 0
    assert len(await drain(bench)) == 17


async def _waiting(bench: Bench, group: str, *, at_most: int = 100) -> int:
    return await bench.store.waiting(
        "default", JOB_TYPE, tenant_id="t", group=group, at_most=at_most
    )


@rule
async def a_follow_up_has_its_own_group_and_is_found(bench: Bench) -> None:
    run = await bench.start(group="a", tenant_id="t")
    follow_ups: tuple[NewJob, ...] = tuple(
        make_new(group=group, tenant_id="t") for group in ("a", "b")
    )
    await bench.finish(run, Success(follow_ups=follow_ups))
    assert [await _waiting(bench, group) for group in ("a", "b", "")] == [1, 1, 0]
    assert by_group(await bench.claim()) == {"a": 1, "b": 1}


@rule
async def a_group_that_was_used_up_is_found_again(bench: Bench) -> None:
    for _ in range(4):
        await bench.submit_many(2, group="a")
        assert len(await bench.claim()) == 2
        assert await bench.claim() == []


@rule
async def what_was_cancelled_of_a_group_is_not_claimed_and_hides_nothing(bench: Bench) -> None:
    ids = await bench.submit_many(4, group="a")
    other = await bench.submit_many(2, group="b")
    for job_id in (*ids[:3], other[1]):
        await bench.cancel(job_id)
    assert {run.job.job_id for run in await bench.claim()} == {ids[3], other[0]}
    await bench.redrive(ids[0])
    assert [run.job.job_id for run in await bench.claim()] == [ids[0]]


@rule
async def another_process_finds_what_one_has_added_to_a_group(bench: Bench) -> None:
    other = await bench.another()
    await bench.submit_many(2, group="a")
    assert len(await other.claim(limit=1, session="worker-2")) == 1
    assert len(await bench.claim()) == 1
    await other.submit(group="a")
    await other.submit(group="b")
    assert len(await drain(bench)) == 2


@rule
async def suspects_of_groups_keep_their_order_without_turns(bench: Bench) -> None:
    for value, group in ((1, "a"), (2, "a"), (3, "a"), (4, "b")):
        await submit_suspect(bench, job_id=number(value), group=group)
    assert await bench.claim() == []
    runs = await bench.claim(suspects=(3,))
    assert [run.job.job_id.int for run in runs] == [1, 2, 3]
    assert [run.job.job_id.int for run in await bench.claim(suspects=(3,))] == [4]


# -- what is shown ------------------------------------------------------------------------------


@rule
async def groups_are_shown_with_what_waits_and_runs_of_each(bench: Bench) -> None:
    begun = bench.clock.now()
    await bench.submit_many(3, group="a")
    await bench.submit_many(2, tenant_id="t", group="a")
    await bench.submit(tenant_id="t")
    await bench.submit(group="later", delay=HOUR)
    await bench.submit(group="a", job_type="other")
    await bench.submit(group="a", queue="other")
    await bench.submit_many(2)
    bench.clock.advance(LEASE / 2)
    runs = [run for run in await drain(bench) if run.job.tenant_id == "default"]
    for run in runs:
        if run.job.group == "a":
            await bench.finish(run, Released())
    await bench.submit(tenant_id="t", group="a", priority=0)
    a, b = bench.clock.now(), begun + HOUR
    shown = [
        ("default", "", 0, 2, None),
        ("default", "a", 3, 0, a),
        ("default", "later", 1, 0, None),
        ("t", "", 0, 1, None),
        ("t", "a", 1, 2, a),
    ]
    for limit in (1, 2, 100):
        found = await all_groups(bench, limit=limit)
        assert [
            (one.tenant_id, one.group, one.waiting, one.running, one.oldest_due_at) for one in found
        ] == shown
    of_one = await all_groups(bench, tenant_id="t", limit=1)
    assert [(one.tenant_id, one.group) for one in of_one] == [("t", ""), ("t", "a")]
    bench.clock.advance(HOUR)
    later = next(one for one in await all_groups(bench) if one.group == "later")
    assert later.oldest_due_at == b


@rule
async def groups_of_which_all_has_ended_are_not_shown(bench: Bench) -> None:
    for group in ("a", "b", ""):
        await bench.submit_many(2, group=group)
    cancelled = await bench.submit(group="c")
    await bench.cancel(cancelled)
    for run in await drain(bench):
        await bench.finish(run)
    assert await drain(bench) == []
    assert await all_groups(bench) == []


@rule
async def what_waits_of_a_group_is_counted_up_to_a_bound(bench: Bench) -> None:
    await bench.submit_many(5, group="a", tenant_id="t")
    await bench.submit_many(2, group="a", tenant_id="t", delay=HOUR)
    await bench.submit(group="b", tenant_id="t")
    await bench.submit(group="a", tenant_id="other")
    await bench.submit(group="a", tenant_id="t", queue="other")
    await bench.submit(tenant_id="t")
    assert [await _waiting(bench, "a", at_most=most) for most in (0, 3, 7, 100)] == [0, 3, 7, 7]
    assert await _waiting(bench, "") == 1
    assert await _waiting(bench, "unknown") == 0
    await bench.claim(limit=100)
    assert await _waiting(bench, "a") == 2


@rule
async def ahead_are_of_each_other_group_as_many_as_of_its_own(bench: Bench) -> None:
    async def ahead(job_id: UUID, tenant_id: str | None = None) -> dict[int, int] | None:
        return await bench.store.ahead(job_id, (JOB_TYPE,), tenant_id=tenant_id, limit=100)

    await bench.submit_many(2, group="many", priority=0)
    await bench.submit_many(20, group="many")
    few = await bench.submit_many(3, group="few")
    bench.clock.advance(HOUR)
    mine = await bench.submit_many(5, group="mine")
    assert await ahead(few[0]) == {0: 2}
    assert await ahead(few[2]) == {0: 2, 2: 2 + 2 + 2}
    assert await ahead(mine[1]) == {0: 2, 2: 1 + 1 + 1}
    assert await ahead(mine[4]) == {0: 2, 2: 4 + 4 + 3}
    assert await ahead(mine[4], tenant_id="other") is None
