"""Rules for limits: no claim that brings one starts more runs than it allows, and none less.

Every claim here brings the limit, unless a rule says otherwise: a store may count only such runs.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec

from gantline.contract.flow import Gate, TypeFlow
from gantline.contract.outcome import Outcome, Released, Snoozed, Stopped, Success
from gantline.contract.query import LaneRequest
from gantline.contract.results import Applied, Stale
from gantline.contract.snapshot import Run
from gantline.contract.stored import Part, StoredJob
from gantline.contract.transition import Transition
from gantline.testing.conformance.bench import HOUR, LEASE, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.races import together
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.conformance.suspects import submit_suspect
from gantline.testing.conformance.turns import by_group
from gantline.testing.factories import JOB_TYPE, lane_requests, make_new
from gantline.testing.faults import Crash, CrashPoint

NEEDS: Final = "limits"
_ROUNDS: Final = 10


def at_once(
    running: int | None = None, *, in_all: int | None = None, job_type: str = JOB_TYPE
) -> tuple[TypeFlow, ...]:
    """The limits of one type."""
    return (TypeFlow(job_type=job_type, running=running, running_in_all=in_all),)


ONE: Final = at_once(1)
TWO: Final = at_once(2)


async def taken(bench: Bench, *job_types: str, flow: tuple[TypeFlow, ...]) -> list[Run]:
    """Claim until nothing comes: of what others have at this moment, a claim may leave some."""
    runs: list[Run] = []
    while more := await bench.claim(*job_types, flow=flow):
        runs += more
    return runs


# -- never more, never less ---------------------------------------------------------------------


@rule
async def of_each_group_no_more_run_than_its_limit(bench: Bench) -> None:
    for group in ("a", "b", ""):
        await bench.submit_many(5, group=group)
    runs = await bench.claim(flow=TWO)
    assert by_group(runs) == {"a": 2, "b": 2, "": 2}
    assert await bench.claim(flow=TWO) == []
    await bench.finish(next(run for run in runs if run.job.group == "a"))
    assert by_group(await bench.claim(flow=TWO)) == {"a": 1}
    assert await bench.claim(flow=TWO) == []


@rule
async def the_limit_of_plain_jobs_is_of_each_tenant(bench: Bench) -> None:
    for tenant in ("default", "one", "other"):
        await bench.submit_many(3, tenant_id=tenant)
    runs = await bench.claim(flow=TWO)
    assert Counter(run.job.tenant_id for run in runs) == {"default": 2, "one": 2, "other": 2}
    assert await bench.claim(flow=TWO) == []


@rule
async def runs_of_groups_take_no_place_of_jobs_without_one(bench: Bench) -> None:
    await bench.submit_many(3, group="a")
    assert len(await bench.claim(flow=TWO)) == 2
    await bench.submit_many(3)
    assert by_group(await bench.claim(flow=TWO)) == {"": 2}
    assert await bench.claim(flow=TWO) == []


@rule
async def of_a_type_no_more_run_than_its_limit(bench: Bench) -> None:
    for index in range(5):
        await bench.submit_many(3, group=f"group-{index}")
    await bench.submit_many(3)
    flow = at_once(in_all=4)
    runs = await bench.claim(flow=flow)
    assert len(runs) == 4
    assert len(by_group(runs)) == 4
    assert await bench.claim(flow=flow) == []
    await bench.finish(runs[0])
    await bench.finish(runs[1])
    assert len(await bench.claim(flow=flow)) == 2


@rule
async def both_limits_of_a_type_hold(bench: Bench) -> None:
    for group in ("a", "b", "c"):
        await bench.submit_many(5, group=group)
    flow = at_once(2, in_all=5)
    runs = await bench.claim(flow=flow)
    assert sorted(by_group(runs).values()) == [1, 2, 2]
    (less,) = (group for group, count in by_group(runs).items() if count == 1)
    await bench.finish(next(run for run in runs if run.job.group == less))
    assert len(await bench.claim(flow=flow)) == 1


@rule
async def a_limit_holds_over_the_priorities(bench: Bench) -> None:
    for priority in (3, 2, 1, 0):
        await bench.submit_many(2, group="a", priority=priority)
    flow = at_once(3)
    assert [run.priority for run in await bench.claim(flow=flow)] == [0, 0, 1]
    await bench.submit(group="a", priority=0)
    assert await bench.claim(flow=flow) == []


@rule_for(("group", "type"))
async def a_limit_holds_over_the_queues(bench: Bench, per: str) -> None:
    flow = TWO if per == "group" else at_once(in_all=2)
    for queue in ("one", "other"):
        await bench.submit_many(3, group="a", queue=queue)
    requests: list[LaneRequest] = [
        *lane_requests(queue="one", flow=flow),
        *lane_requests(queue="other", flow=flow),
    ]
    await bench.register("worker-1")
    runs = await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)
    assert len(runs) == 2
    for queue in ("one", "other"):
        assert await bench.claim(queue=queue, flow=flow) == []
    await bench.finish(runs[0])
    assert len(await bench.claim(queue="other", flow=flow)) == 1
    assert await bench.claim(queue="one", flow=flow) == []


@rule
async def a_limit_is_of_its_type_alone(bench: Bench) -> None:
    for kind in ("limited", "test", "also"):
        await bench.submit_many(4, job_type=kind, group="a")
    flow = (*at_once(2, job_type="limited"), *at_once(1, job_type="also"))
    runs = await bench.claim("limited", "test", "also", flow=flow)
    assert Counter(run.job.job_type for run in runs) == {"limited": 2, "test": 4, "also": 1}


@rule
async def a_claim_is_full_if_enough_are_allowed(bench: Bench) -> None:
    await bench.submit_many(100, group="full", priority=0)
    for index in range(5):
        await bench.submit_many(4, group=f"group-{index}")
    flow = at_once(3)
    assert len(await bench.claim(limit=11, flow=flow)) == 11
    assert len(await bench.claim(limit=5, flow=flow)) == 5
    assert len(await bench.claim(limit=5, flow=flow)) == 2
    assert await bench.claim(limit=5, flow=flow) == []


@rule
async def groups_at_their_limit_delay_no_other(bench: Bench) -> None:
    for index in range(30):
        await bench.submit_many(3, group=f"full-{index}", priority=0)
    assert len(await taken(bench, flow=ONE)) == 30
    bench.clock.advance(LEASE / 2)
    free = [await bench.submit(group="free", priority=3), await bench.submit(job_type="other")]
    runs = await bench.claim("test", "other", limit=2, flow=ONE)
    assert {run.job.job_id for run in runs} == set(free)


@rule
async def a_type_at_its_limit_delays_no_other(bench: Bench) -> None:
    await bench.submit_many(300, job_type="full", priority=0)
    flow = at_once(in_all=1, job_type="full")
    assert len(await bench.claim("full", flow=flow)) == 1
    bench.clock.advance(LEASE / 2)
    late = await bench.submit(priority=3)
    runs = await bench.claim("full", "test", limit=3, flow=flow)
    assert [run.job.job_id for run in runs] == [late]


@rule_for(("gate", "type", "group"))
async def however_many_types_have_no_room_they_delay_no_other(bench: Bench, why: str) -> None:
    """What waits of them is older and more urgent, and has no group."""
    types = [f"full-{index}" for index in range(20)]
    most = {
        "gate": TypeFlow(job_type="", gate=Gate("shut", per_second=1e-6)),
        "type": TypeFlow(job_type="", running_in_all=1),
        "group": TypeFlow(job_type="", running=1),
    }[why]
    flow = tuple(msgspec.structs.replace(most, job_type=kind) for kind in types)
    for kind in types:
        await bench.submit_many(5, job_type=kind, priority=0)
    started = await taken(bench, *types, flow=flow)
    assert len(started) == (1 if why == "gate" else 20)
    bench.clock.advance(LEASE / 2)
    for _ in range(3):
        late = await bench.submit(priority=3)
        runs = await bench.claim(*types, JOB_TYPE, limit=3, flow=flow)
        assert [run.job.job_id for run in runs] == [late]
    grouped = await bench.submit(group="a")
    late = await bench.submit(priority=3)
    runs = await bench.claim(*types, JOB_TYPE, limit=3, flow=flow)
    assert [run.job.job_id for run in runs] == [grouped, late]


@rule_for(("gate", "type"))
async def however_many_groups_of_a_type_have_no_room_they_delay_no_other(
    bench: Bench, why: str
) -> None:
    most = TypeFlow(job_type="full", running_in_all=1)
    if why == "gate":
        most = TypeFlow(job_type="full", gate=Gate("shut", per_second=1e-6))
    for _ in range(2):
        jobs = [make_new(index, tenant_id=f"t-{index}", job_type="full") for index in range(1_000)]
        await bench.store.insert(jobs)
    for _ in range(10):
        assert len(await bench.claim("full", limit=100)) == 100
    assert len(await bench.claim("full", JOB_TYPE, limit=10, flow=(most,))) <= 1
    await bench.submit_many(100, tenant_id="other")
    for _ in range(8):
        runs = await bench.claim("full", JOB_TYPE, limit=10, flow=(most,))
        assert [run.job.tenant_id for run in runs] == ["other"] * 10


@rule
async def turns_hold_within_the_limit_of_a_type(bench: Bench) -> None:
    await bench.submit_many(50, group="many")
    for index in range(3):
        await bench.submit_many(3, group=f"few-{index}")
    shares: Counter[str] = Counter()
    for _ in range(8):
        (run,) = await bench.claim(flow=at_once(in_all=1))
        shares += by_group([run])
        await bench.finish(run)
    assert len(shares) == 4, shares
    assert shares["many"] <= 4, shares


@rule
async def a_limit_of_none_starts_none(bench: Bench) -> None:
    await bench.submit_many(2, group="a")
    assert await bench.claim(flow=at_once(0)) == []
    assert await bench.claim(flow=at_once(in_all=0)) == []
    assert len(await bench.claim(flow=at_once())) == 2


@rule
async def the_limit_that_a_claim_brings_is_the_one_that_holds(bench: Bench) -> None:
    await bench.submit_many(9, group="a")
    first = await bench.claim(flow=TWO)
    assert await bench.claim(flow=ONE) == []
    assert len(await bench.claim(flow=at_once(5))) == 3
    await bench.finish(first[0])
    assert await bench.claim(flow=TWO) == []
    assert len(await bench.claim(flow=at_once(5))) == 1


@rule
async def a_claim_that_brings_no_limit_holds_to_none(bench: Bench) -> None:
    await bench.submit_many(5, group="a")
    assert len(await bench.claim(flow=ONE)) == 1
    assert await bench.claim(flow=ONE) == []
    assert len(await bench.claim()) == 4


@rule
async def a_limit_does_not_raise_what_a_claim_may_take(bench: Bench) -> None:
    for group in "abc":
        await bench.submit_many(5, group=group)
    assert len(await bench.claim(limit=2, flow=at_once(5))) == 2
    assert len(await bench.claim(at_most={"test": 1}, flow=at_once(5))) == 1


@rule
async def suspects_count_and_are_held_back_like_others(bench: Bench) -> None:
    await bench.submit_many(2, group="a")
    for group in ("a", "b", "b"):
        await submit_suspect(bench, group=group)
    (run,) = await bench.claim(flow=ONE)
    (suspect,) = await bench.claim(suspects=(10,), flow=ONE)
    assert (run.job.group, suspect.job.group) == ("a", "b")
    assert await bench.claim(suspects=(10,), flow=ONE) == []
    await bench.finish(run)
    (suspect,) = await bench.claim(suspects=(10,), flow=ONE)
    assert suspect.job.group == "a"
    assert await bench.claim(flow=ONE) == []


@rule
async def suspects_of_a_full_group_hide_none_of_fewer_crashes(bench: Bench) -> None:
    await bench.submit(group="a")
    await submit_suspect(bench, crashes=5, group="a")
    other = await submit_suspect(bench, crashes=2, group="b")
    await bench.claim(flow=ONE)
    assert [run.job.job_id for run in await bench.claim(suspects=(5,), flow=ONE)] == [other]


@rule
async def a_repeated_claim_starts_no_more(bench: Bench) -> None:
    await bench.submit_many(5, group="a")
    claim_id = uuid4()
    first = await bench.claim(flow=TWO, claim_id=claim_id)
    again = await bench.claim(flow=TWO, claim_id=claim_id)
    assert {run.ref for run in again} == {run.ref for run in first}
    assert len(again) == 2
    assert await bench.claim(flow=TWO) == []


# -- a run counts until it ends -----------------------------------------------------------------


@rule
async def a_run_counts_until_it_is_ended_however_long_it_takes(bench: Bench) -> None:
    await bench.submit_many(4, group="a")
    (run,) = await bench.claim(flow=ONE)
    for _ in range(50):
        bench.clock.advance(LEASE / 2)
        await bench.store.renew(run.session, [run.ref], lease=LEASE)
    assert await bench.claim(flow=ONE) == []
    await bench.let_leases_expire()
    assert await bench.claim(flow=ONE) == []
    bench.clock.advance(48 * HOUR)
    assert await bench.claim(flow=ONE) == []
    await bench.finish(run)
    assert len(await bench.claim(flow=ONE)) == 1


@rule
async def an_expired_run_counts_until_it_is_taken_over(bench: Bench) -> None:
    await bench.submit_many(5, group="a")
    assert len(await bench.claim(flow=TWO)) == 2
    await bench.let_leases_expire()
    assert await bench.claim(flow=TWO, session="worker-2") == []
    await bench.reap()
    assert len(await bench.claim(flow=TWO, session="worker-2")) == 2
    assert await bench.claim(flow=TWO, session="worker-2") == []
    bench.clock.advance(HOUR)
    assert await bench.claim(flow=TWO, session="worker-2") == []


End = Callable[[Bench, Run, Run], Awaitable[None]]


def _with(outcome: Outcome) -> End:
    async def end(bench: Bench, run: Run, _: Run) -> None:
        await bench.finish(run, outcome)

    end.__name__ = type(outcome).__name__
    return end


async def _retried(bench: Bench, run: Run, _: Run) -> None:
    await bench.finish(run, RETRYABLE)


async def _cancelled(bench: Bench, run: Run, _: Run) -> None:
    await bench.cancel(run.job.job_id)
    assert await bench.claim(flow=TWO) == []
    await bench.finish(run, Stopped())


async def _crashed(bench: Bench, run: Run, other: Run) -> None:
    bench.clock.advance(LEASE / 2)
    await bench.store.renew(other.session, [other.ref], lease=LEASE)
    bench.clock.advance(LEASE / 2)
    assert await bench.claim(flow=TWO) == []
    assert (await bench.reap()).requeued == 1


async def _taken_away(bench: Bench, run: Run, _: Run) -> None:
    away = Transition.taken_away(await bench.snapshot(run.job.job_id), actor="op")
    assert await bench.store.apply([away]) == [Applied(run.version + 1)]


async def _redriven(bench: Bench, run: Run, _: Run) -> None:
    await bench.finish(run, PERMANENT)
    await bench.redrive(run.job.job_id)


@rule_for(
    (
        _with(Success()),
        _with(PERMANENT),
        _with(Snoozed(HOUR)),
        _with(Released()),
        _retried,
        _cancelled,
        _crashed,
        _taken_away,
        _redriven,
    )
)
async def an_end_of_any_kind_makes_room_for_one(bench: Bench, end: End) -> None:
    await bench.submit_many(9, group="a")
    runs = await bench.claim(flow=TWO)
    assert len(runs) == 2
    assert await bench.claim(flow=TWO) == []
    await end(bench, *runs)
    assert len(await bench.claim(flow=TWO)) == 1
    assert await bench.claim(flow=TWO) == []


@rule
async def an_end_that_is_repeated_makes_room_once(bench: Bench) -> None:
    await bench.submit_many(9, group="a")
    run = (await bench.claim(flow=TWO))[0]
    end = Transition.completed(run, Success(), hold_key=HOUR)
    for _ in range(3):
        assert await bench.store.apply([end]) == [Applied(run.version + 1)]
    assert await bench.store.apply([end, end]) == [Applied(run.version + 1)] * 2
    assert len(await bench.claim(flow=TWO)) == 1
    assert await bench.claim(flow=TWO) == []


@rule
async def an_end_that_is_refused_makes_no_room(bench: Bench) -> None:
    await bench.submit_many(3, group="a")
    (zombie,) = await bench.claim(flow=ONE)
    await bench.reap_expired()
    (heir,) = await bench.claim(flow=ONE, session="worker-2")
    late = Transition.completed(zombie, Success(), hold_key=HOUR)
    assert await bench.store.apply([late]) == [Stale()]
    assert await bench.claim(flow=ONE) == []
    bench.clock.advance(LEASE / 2)
    await bench.store.renew("worker-2", [heir.ref], lease=LEASE)
    await bench.finish(heir)
    (run,) = await bench.claim(flow=ONE)
    assert await bench.store.apply([late]) == [Stale()]
    assert await bench.claim(flow=ONE) == []
    await bench.finish(run)


@rule
async def of_many_ends_at_once_each_makes_room(bench: Bench) -> None:
    for group in ("a", "b"):
        await bench.submit_many(8, group=group)
    flow = at_once(4)
    runs = await bench.claim(flow=flow)
    ends = [Transition.completed(run, Success(), hold_key=HOUR) for run in runs]
    assert len(await bench.store.apply(ends)) == 8
    assert by_group(await bench.claim(flow=flow)) == {"a": 4, "b": 4}


@rule
async def what_is_taken_in_counts_when_it_runs(bench: Bench) -> None:
    for group in ("a", "a", "b"):
        await bench.submit(group=group)
    held = (await bench.store.dump(Part.JOBS, limit=100)).items
    await bench.store.clear()
    other = Bench(bench.harness, bench.store)
    await other.store.load([item for item in held if isinstance(item, StoredJob)])
    assert by_group(await other.claim(flow=ONE)) == {"a": 1, "b": 1}
    assert await other.claim(flow=ONE) == []


@rule
async def nothing_counts_after_a_clear(bench: Bench) -> None:
    await bench.submit_many(3, group="a")
    await bench.claim(flow=ONE)
    await bench.store.clear()
    other = Bench(bench.harness, bench.store)
    await other.submit_many(3, group="a")
    assert len(await other.claim(flow=ONE)) == 1
    assert await other.claim(flow=ONE) == []


# -- several at once, and what dies in between ----------------------------------------------------


@rule_for(("group", "type"))
async def claims_at_once_never_start_more(bench: Bench, per: str) -> None:
    """Over priorities and queues, in which they meet no common job."""
    flow = TWO if per == "group" else at_once(in_all=2)
    handles = [bench, await bench.another(), await bench.another()]
    for _ in range(_ROUNDS):
        for index in range(8):
            await bench.submit(group="a", queue="ab"[index % 2], priority=index // 2)
        claims = await together(
            *(
                handle.claim(queue=queue, flow=flow, session=f"worker-{index}-{queue}")
                for index, handle in enumerate(handles)
                for queue in "ab"
            )
        )
        runs: list[Run] = [run for claimed in claims for run in claimed]
        assert len(runs) <= 2
        for queue in "ab":
            runs += await bench.claim(queue=queue, flow=flow)
        assert len(runs) == 2
        while runs:
            for run in runs:
                await bench.finish(run)
            runs = [*await bench.claim(queue="a"), *await bench.claim(queue="b")]


@rule
async def a_place_that_is_freed_while_others_claim_and_submit_is_filled(bench: Bench) -> None:
    other, third = await bench.another(), await bench.another()
    await bench.submit_many(2, group="a")
    (run,) = await bench.claim(flow=ONE)
    for index in range(_ROUNDS):
        _, claimed, _ = await together(
            bench.finish(run),
            other.claim(flow=ONE, session="worker-2"),
            third.submit(index, group="a"),
        )
        runs = [*claimed, *await bench.claim(flow=ONE)]
        assert len(runs) == 1
        (run,) = runs


@rule
async def ends_and_claims_of_many_keep_to_the_limit_and_leave_no_place_empty(bench: Bench) -> None:
    handles = [bench, await bench.another(), await bench.another()]
    flow = at_once(2, in_all=5)
    for index in range(60):
        await bench.submit(group=f"group-{index % 4}", priority=index % 3)
    left = Counter({f"group-{index}": 15 for index in range(4)})
    running: list[Run] = []
    for _ in range(60):
        claims = [
            handle.claim(limit=3, flow=flow, session=f"worker-{index}")
            for index, handle in enumerate(handles)
        ]
        ending, running = running[:3], running[3:]
        answers = await together(*claims, *(bench.finish(run) for run in ending))
        left -= by_group(ending)
        running += [run for claimed in answers[: len(handles)] for run in claimed]
        running += await taken(bench, flow=flow)
        assert max(by_group(running).values(), default=0) <= 2
        assert len(running) == min(5, sum(min(2, count) for count in left.values()))
    assert left.total() == 0


class Point(NamedTuple):
    at: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} call {self.at}"


@rule_for(Point(at, after) for at in range(1, 5) for after in (False, True))
async def after_a_crash_at_any_point_as_many_may_start_as_before(
    bench: Bench, point: Point
) -> None:
    await bench.submit_many(20, group="a")
    await bench.register("worker-1")
    crash = CrashPoint(at=point.at, after=point.after)
    dying = bench.over(crash.wrap(bench.store))
    dying._registered.add("worker-1")
    with suppress(Crash):
        runs = await dying.claim(flow=TWO)
        await dying.finish(runs[0], RETRYABLE)
        runs += await dying.claim(flow=TWO)
        await dying.finish(runs[1])
    assert crash.reached
    assert len(await bench.claim(flow=TWO)) <= 2
    await bench.reap_expired()
    assert len(await bench.claim(flow=TWO, session="worker-2")) == 2
    assert await bench.claim(flow=TWO, session="worker-2") == []


@rule
async def all_that_ends_leaves_nothing_behind(bench: Bench) -> None:
    """Nothing waits, nothing runs; and the limit is as free as at the beginning."""
    for round_number in range(3):
        for index in range(12):
            await bench.submit(
                group=f"group-{index % 3}",
                priority=index % 4,
                job_type="ab"[index % 2],
                delay=timedelta(seconds=index % 5),
            )
        flow = (*at_once(1, job_type="a"), *at_once(in_all=2, job_type="b"))
        ended = 0
        for _ in range(60):
            bench.clock.advance(timedelta(seconds=1))
            runs = await bench.claim("a", "b", flow=flow)
            for index, run in enumerate(runs):
                snoozes = run.attempt == 1 and run.snoozes == 0 and index % 2 == 0
                await bench.finish(run, Snoozed(timedelta(seconds=2)) if snoozes else None)
                ended += not snoozes
        assert ended == 12
        for kind in "ab":
            page = await bench.store.groups("default", kind, tenant_id=None, limit=10)
            assert (page.items, page.next) == ((), "")
        assert (await bench.recount())["Completed"] == 12 * (round_number + 1)


@rule
async def after_a_limit_is_raised_a_claim_starts_all_that_it_then_allows(bench: Bench) -> None:
    """Of the groups that were full, most still are."""
    for index in range(60):
        await bench.submit(group=f"group-{index}")
        if index < 45:
            await bench.submit(group=f"group-{index}")
    assert len(await taken(bench, flow=TWO)) == 45 + 60
    for index in range(60):
        await bench.submit(group=f"group-{index}")
    assert await bench.claim(flow=ONE) == []
    assert len(await bench.claim(limit=15, flow=TWO)) == 15
    assert await bench.claim(limit=15, flow=TWO) == []
