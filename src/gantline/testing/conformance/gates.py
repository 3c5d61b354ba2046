"""Rules for gates: how many runs start in any time, and what a closed gate holds back."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

import msgspec

from gantline.contract.flow import Gate, GateState, TypeFlow
from gantline.contract.outcome import Released
from gantline.contract.query import LaneRequest
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, Conflict, Stale
from gantline.contract.snapshot import Run
from gantline.contract.status import Event, JobStatus, Reason
from gantline.contract.transition import Transition
from gantline.testing.conformance.bench import HOUR, LEASE, Bench
from gantline.testing.conformance.limits import at_once, taken
from gantline.testing.conformance.races import together
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.conformance.suspects import submit_suspect
from gantline.testing.conformance.turns import by_group
from gantline.testing.factories import JOB_TYPE, lane_requests

NEEDS: Final = "limits"
MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)
MAIL: Final = Gate("mail", per_second=10, burst=5)


def through(
    gate: Gate = MAIL, *, job_type: str = JOB_TYPE, running: int | None = None
) -> tuple[TypeFlow, ...]:
    """The gate of one type."""
    return (TypeFlow(job_type=job_type, running=running, gate=gate),)


async def throttle(bench: Bench, run: Run, delay: timedelta, closes: str = "mail") -> None:
    throttled = Transition.throttled(run, delay=delay, closes=closes)
    assert await bench.store.apply([throttled]) == [Applied(run.version + 1)]


async def state_of(bench: Bench, name: str = "mail") -> GateState:
    (state,) = await bench.store.gates([name])
    assert state.name == name
    return state


def is_open(state: GateState, now: datetime) -> bool:
    return all(at is None or at <= now for at in (state.closed_until, state.next_at))


# -- by its rate --------------------------------------------------------------------------------


@rule
async def a_gate_lets_through_its_burst_and_then_its_rate(bench: Bench) -> None:
    await bench.submit_many(40)
    assert len(await bench.claim(flow=through())) == 5
    assert await bench.claim(flow=through()) == []
    bench.clock.advance(timedelta(milliseconds=99))
    assert await bench.claim(flow=through()) == []
    bench.clock.advance(timedelta(milliseconds=2))
    assert len(await bench.claim(flow=through())) == 1
    assert await bench.claim(flow=through()) == []
    bench.clock.advance(timedelta(milliseconds=300))
    assert len(await bench.claim(flow=through())) == 3


@rule
async def what_a_gate_did_not_let_through_is_saved_up_to_its_burst(bench: Bench) -> None:
    await bench.submit_many(40)
    await bench.claim(flow=through())
    bench.clock.advance(HOUR)
    assert len(await bench.claim(limit=3, flow=through())) == 3
    assert len(await bench.claim(flow=through())) == 2
    assert await bench.claim(flow=through()) == []


@rule
async def what_is_not_started_is_not_counted(bench: Bench) -> None:
    """A claim that finds fewer than the gate has room for leaves the room to the next."""
    assert await bench.claim(flow=through()) == []
    await bench.submit_many(2)
    await bench.submit_many(2, delay=HOUR)
    assert len(await bench.claim(flow=through())) == 2
    await bench.submit_many(9)
    assert len(await bench.claim(flow=through())) == 3


@rule
async def a_rate_may_be_less_than_one_a_second(bench: Bench) -> None:
    gate = Gate("slow", per_second=0.1)
    await bench.submit_many(4)
    assert len(await bench.claim(flow=through(gate))) == 1
    bench.clock.advance(timedelta(seconds=9.9))
    assert await bench.claim(flow=through(gate)) == []
    bench.clock.advance(timedelta(seconds=0.2))
    assert len(await bench.claim(flow=through(gate))) == 1
    bench.clock.advance(HOUR)
    assert len(await bench.claim(flow=through(gate))) == 1


@rule
async def types_that_name_a_gate_share_it(bench: Bench) -> None:
    for kind in ("a", "b", "c"):
        await bench.submit_many(10, job_type=kind)
    flow = (*through(job_type="a"), *through(job_type="b"))
    runs = await bench.claim("a", "b", "c", flow=flow)
    kinds = Counter(run.job.job_type for run in runs)
    assert kinds["c"] == 10
    assert kinds["a"] + kinds["b"] == 5
    for kind in ("a", "b"):
        assert await bench.claim(kind, flow=through(job_type=kind)) == []


@rule
async def a_gate_is_shared_over_the_queues_and_priorities(bench: Bench) -> None:
    for queue in ("one", "other"):
        for priority in range(4):
            await bench.submit(queue=queue, priority=priority)
    requests: list[LaneRequest] = [
        *lane_requests(queue="one", flow=through()),
        *lane_requests(queue="other", flow=through()),
    ]
    await bench.register("worker-1")
    runs = await bench.store.claim("worker-1", uuid4(), requests, lease=LEASE)
    assert [run.priority for run in runs] == [0, 1, 2, 3, 0]
    bench.clock.advance(timedelta(milliseconds=101))
    assert len(await bench.claim(queue="other", flow=through())) == 1
    assert await bench.claim(queue="one", flow=through()) == []


@rule
async def two_gates_do_not_know_each_other(bench: Bench) -> None:
    for kind in ("a", "b"):
        await bench.submit_many(9, job_type=kind)
    flow = (*through(job_type="a"), *through(Gate("other", per_second=1, burst=2), job_type="b"))
    runs = await bench.claim("a", "b", flow=flow)
    assert Counter(run.job.job_type for run in runs) == {"a": 5, "b": 2}


@rule
async def groups_take_turns_at_a_gate(bench: Bench) -> None:
    await bench.submit_many(30, group="many")
    bench.clock.advance(HOUR)
    await bench.submit(group="one")
    runs = await bench.claim(flow=through(Gate("mail", per_second=1, burst=2)))
    assert by_group(runs) == {"many": 1, "one": 1}


@rule
async def the_most_urgent_go_through_a_gate_first(bench: Bench) -> None:
    for priority in (3, 2, 2, 0):
        await bench.submit(priority=priority, group=f"group-{priority}")
    gate = Gate("mail", per_second=1, burst=2)
    assert [run.priority for run in await bench.claim(flow=through(gate))] == [0, 2]


@rule
async def a_gate_that_lets_nothing_through_delays_no_other_type(bench: Bench) -> None:
    await bench.submit_many(100, job_type="gated", priority=0)
    flow = through(job_type="gated")
    assert len(await bench.claim("gated", flow=flow)) == 5
    bench.clock.advance(timedelta(milliseconds=1))
    await bench.submit_many(4, priority=3)
    runs = await bench.claim("gated", "test", limit=4, flow=flow)
    assert [run.job.job_type for run in runs] == ["test"] * 4


@rule
async def a_claim_that_brings_no_gate_neither_holds_to_it_nor_uses_it(bench: Bench) -> None:
    await bench.submit_many(20)
    assert len(await bench.claim(limit=9)) == 9
    assert len(await bench.claim(flow=through())) == 5
    assert await bench.claim(flow=through()) == []
    assert len(await bench.claim()) == 6


@rule
async def suspects_go_through_gates_too(bench: Bench) -> None:
    for _ in range(4):
        await submit_suspect(bench)
    flow = through(Gate("mail", per_second=1, burst=2))
    assert len(await bench.claim(suspects=(9,), flow=flow)) == 2
    assert await bench.claim(suspects=(9,), flow=flow) == []


@rule
async def what_a_gate_keeps_back_has_no_place_of_a_limit(bench: Bench) -> None:
    for group in ("a", "b"):
        await bench.submit_many(3, group=group)
    flow = through(Gate("mail", per_second=1), running=1)
    (run,) = await bench.claim(flow=flow)
    other = await bench.another()
    assert await other.claim(flow=flow, session="worker-2") == []
    page = await other.store.groups("default", JOB_TYPE, tenant_id=None, limit=10)
    assert sum(state.running for state in page.items) == 1
    bench.clock.advance(1.5)
    (next_run,) = await other.claim(flow=flow, session="worker-2")
    assert {run.job.group, next_run.job.group} == {"a", "b"}
    bench.clock.advance(1.5)
    assert await bench.claim(flow=flow) == []
    assert len(await bench.claim(flow=at_once(3))) == 4


@rule
async def what_a_limit_keeps_back_has_no_place_at_a_gate(bench: Bench) -> None:
    await bench.submit_many(9, group="a")
    assert len(await bench.claim(flow=through(running=2))) == 2
    for _ in range(3):
        assert await bench.claim(flow=through(running=2)) == []
    await bench.submit_many(9, group="b")
    assert len(await bench.claim(flow=through(running=9))) == 3


@rule
async def a_repeated_claim_uses_no_more_of_a_gate(bench: Bench) -> None:
    await bench.submit_many(20)
    claim_id = uuid4()
    first = await bench.claim(limit=3, claim_id=claim_id, flow=through())
    again = await bench.claim(limit=3, claim_id=claim_id, flow=through())
    assert {run.ref for run in first} == {run.ref for run in again}
    assert len(await bench.claim(flow=through())) == 2


@rule_for((False, True))
async def in_no_time_a_gate_lets_through_more_than_its_rate_and_burst(
    bench: Bench, are_together: bool
) -> None:
    """And in the long run hardly less. With claims by several, one after the other or at once."""
    handles = [bench, await bench.another(), await bench.another()]
    gate = Gate("mail", per_second=50, burst=10)
    await bench.submit_many(200)
    for handle in handles:
        await handle.register("worker-1")
    starts: list[tuple[float, int]] = []
    step, steps = 0.03, 60
    for index in range(steps):
        claims = [handle.claim(limit=7, flow=through(gate)) for handle in handles]
        if are_together:
            answers = await together(*claims)
        else:
            answers = [await one for one in claims]
        answers.append(await bench.claim(flow=through(gate)))
        starts.append((index * step, sum(map(len, answers))))
        bench.clock.advance(step)
    for first, (begin, _) in enumerate(starts):
        total = 0
        for end, count in starts[first:]:
            total += count
            assert total <= 50 * (end - begin) + 10 + 1e-6, (begin, end, total)
    assert sum(count for _, count in starts) >= 0.97 * (50 * step * (steps - 1) + 10)


# -- closed -------------------------------------------------------------------------------------


@rule
async def a_throttled_run_closes_its_gate_for_all_types_that_name_it(bench: Bench) -> None:
    for kind in ("a", "b", "c"):
        await bench.submit_many(3, job_type=kind)
    flow = (*through(job_type="a"), *through(job_type="b"))
    (run,) = await bench.claim("a", "b", limit=1, flow=flow)
    await throttle(bench, run, MINUTE)
    runs = await bench.claim("a", "b", "c", flow=flow)
    assert [one.job.job_type for one in runs] == ["c"] * 3
    bench.clock.advance(MINUTE - timedelta(milliseconds=1))
    assert await bench.claim("a", "b", flow=flow) == []
    bench.clock.advance(timedelta(milliseconds=1))
    assert len(await bench.claim("a", "b", flow=flow)) == 5


@rule
async def a_throttled_run_goes_back_without_an_attempt(bench: Bench) -> None:
    run = await bench.start(group="a")
    await throttle(bench, run, MINUTE)
    job = await bench.snapshot(run.job.job_id)
    assert (job.status, job.attempt, job.snoozes) == (JobStatus.QUEUED, 0, 1)
    assert job.run_at == bench.clock.now() + MINUTE
    (row,) = await bench.store.history(run.job.job_id, tenant_id=None)
    assert (row.event, row.reason) == (Event.SNOOZED, Reason.THROTTLED)
    bench.clock.advance(MINUTE)
    (again,) = await bench.claim(flow=through())
    assert (again.job.job_id, again.attempt, again.snoozes) == (run.job.job_id, 1, 1)


@rule
async def a_gate_stays_closed_until_the_latest_of_those_who_closed_it(bench: Bench) -> None:
    await bench.submit_many(4)
    first, second, third = await bench.claim(limit=3, flow=through())
    await throttle(bench, first, MINUTE)
    until = bench.clock.now() + MINUTE
    await throttle(bench, second, SECOND)
    assert (await state_of(bench)).closed_until == until
    bench.clock.advance(MINUTE / 2)
    assert await bench.claim(flow=through()) == []
    await throttle(bench, third, MINUTE)
    assert (await state_of(bench)).closed_until == bench.clock.now() + MINUTE
    bench.clock.advance(MINUTE / 2)
    assert await bench.claim(flow=through()) == []
    bench.clock.advance(MINUTE / 2)
    assert len(await bench.claim(flow=through())) == 4


@rule
async def of_several_that_close_a_gate_in_one_call_the_latest_counts(bench: Bench) -> None:
    await bench.submit_many(4)
    runs = await bench.claim(limit=3, flow=through())
    delays = (SECOND, MINUTE, 2 * SECOND)
    await bench.store.apply(
        [
            Transition.throttled(run, delay=delay, closes="mail")
            for run, delay in zip(runs, delays, strict=True)
        ]
    )
    assert (await state_of(bench)).closed_until == bench.clock.now() + MINUTE


@rule
async def a_closed_gate_saves_up_no_more_than_its_burst(bench: Bench) -> None:
    await bench.submit_many(30)
    (run,) = await bench.claim(limit=1, flow=through())
    await throttle(bench, run, HOUR)
    bench.clock.advance(HOUR)
    assert len(await bench.claim(flow=through())) == 5
    assert await bench.claim(flow=through()) == []


@rule
async def an_end_that_is_refused_closes_no_gate(bench: Bench) -> None:
    zombie = await bench.start()
    await bench.reap_expired()
    throttled = Transition.throttled(zombie, delay=HOUR, closes="mail")
    assert await bench.store.apply([throttled]) == [Stale()]
    assert is_open(await state_of(bench), bench.clock.now())
    bench.clock.advance(HOUR)
    (run,) = await bench.claim(flow=through())
    await bench.store.write_records([RecordWrite("space", "key", b"theirs")])
    carried = (RecordWrite("space", "key", b"ours", expected=7),)
    throttled = Transition.throttled(run, delay=HOUR, closes="mail")
    throttled = msgspec.structs.replace(throttled, records=carried)
    assert await bench.store.apply([throttled]) == [Conflict(by="space/key")]
    assert (await state_of(bench)).closed_until is None


@rule
async def a_throttled_end_that_is_repeated_closes_its_gate_once(bench: Bench) -> None:
    run = await bench.start()
    throttled = Transition.throttled(run, delay=MINUTE, closes="mail")
    for _ in range(3):
        assert await bench.store.apply([throttled]) == [Applied(run.version + 1)]
        bench.clock.advance(MINUTE / 3)
    assert len(await bench.claim(flow=through())) == 1


@rule
async def other_ends_close_no_gate(bench: Bench) -> None:
    await bench.submit_many(4)
    for run in await bench.claim(limit=2, flow=through()):
        await bench.finish(run, Released())
    assert (await state_of(bench)).closed_until is None
    assert len(await bench.claim(flow=through())) == 3


@rule
async def a_gate_that_nobody_names_can_be_closed(bench: Bench) -> None:
    run = await bench.start()
    await throttle(bench, run, MINUTE, closes="ünnamed gate")
    assert (await state_of(bench, "ünnamed gate")).closed_until == bench.clock.now() + MINUTE
    assert is_open(await state_of(bench), bench.clock.now())


# -- what is kept and shown ---------------------------------------------------------------------


@rule
async def a_gate_is_the_same_to_every_process(bench: Bench) -> None:
    other = await bench.another()
    await bench.submit_many(20)
    assert len(await bench.claim(limit=3, flow=through())) == 3
    runs = await other.claim(flow=through(), session="worker-2")
    assert len(runs) == 2
    assert await bench.claim(flow=through()) == []
    await throttle(other, runs[0], MINUTE)
    late = await bench.another()
    late.clock.advance(SECOND)
    assert await late.claim(flow=through()) == []
    assert await state_of(late) == await state_of(bench)


@rule
async def gates_are_shown_in_the_order_asked_for(bench: Bench) -> None:
    await bench.submit_many(9)
    (run,) = await bench.claim(limit=1, flow=through(Gate("a", per_second=1)))
    await throttle(bench, run, MINUTE, closes="b")
    now = bench.clock.now()
    names = ["unknown", "b", "a", "unknown"]
    states = await bench.store.gates(names)
    assert [state.name for state in states] == names
    assert states[1].closed_until == now + MINUTE
    assert states[2].closed_until is None
    assert states[2].next_at == now + SECOND
    assert all(is_open(states[index], now) for index in (0, 3))
    assert await bench.store.gates([]) == []


@rule
async def nothing_is_left_of_a_gate_after_a_clear(bench: Bench) -> None:
    await bench.submit_many(5)
    for run in await bench.claim(limit=5, flow=through()):
        await throttle(bench, run, HOUR)
    await bench.store.clear()
    other = Bench(bench.harness, bench.store)
    await other.submit_many(9)
    assert len(await taken(other, flow=through())) == 5
