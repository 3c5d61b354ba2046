"""The simulation: one seed is one run, processes end as by SIGKILL, and broken rules are seen."""

import asyncio
import itertools
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID

import msgspec
import pytest

from gantline.contract.query import LaneRequest
from gantline.contract.snapshot import Run
from gantline.contract.store import JobStore
from gantline.flow.limit import Limit
from gantline.runtime import monotonic
from gantline.testing.faults import intercepted
from gantline.testing.simulation import world as world_module
from gantline.testing.simulation.application import Plan
from gantline.testing.simulation.drawing import draw_script
from gantline.testing.simulation.network import Chances
from gantline.testing.simulation.run import Report, simulate
from gantline.testing.simulation.script import Script, StoreKind, Submit, Trouble
from gantline.testing.simulation.shrink import shrink
from gantline.testing.simulation.world import Process, World

pytestmark = pytest.mark.matrix

STORES: tuple[StoreKind, ...] = ("memory", "sqlite")


def small(store: StoreKind = "memory", *steps: Submit | Trouble, **changes: Any) -> Script:
    usual: dict[str, Any] = {
        "seed": 7,
        "store": store,
        "workers": 1,
        "slots": 2,
        "lease": 5.0,
        "chances": Chances(fault=0, hint_lost=0, hint_doubled=0),
        "steps": steps or (Submit(at=0.0, job_type="plain", plan=Plan(), count=3),),
    }
    return Script(**usual | changes)


@pytest.mark.parametrize("store", STORES)
def test_one_seed_is_one_run(store: StoreKind) -> None:
    script = draw_script(5, store, steps=20)
    first, second = simulate(script), simulate(script)
    assert first.digest == second.digest
    assert first.calls == second.calls
    assert first.notes == second.notes


def test_another_seed_is_another_run() -> None:
    scripts = [draw_script(seed, "memory", steps=10) for seed in (1, 2)]
    assert len({simulate(script).digest for script in scripts}) == 2


@pytest.mark.parametrize("store", STORES)
def test_streams_keep_the_workers_of_a_seed_busy(store: StoreKind) -> None:
    plain = draw_script(5, store, steps=20)
    busy = draw_script(5, store, steps=20, streams=10)
    assert busy.steps[10:] == plain.steps
    one, other = simulate(plain), simulate(busy)
    assert other.violations == ()
    assert other.runs > 3 * one.runs
    shares = [report.idle_calls / sum(report.calls.values()) for report in (one, other)]
    assert shares[1] < 0.8 * shares[0]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", range(1, 5))
def test_seeds_break_no_rule(store: StoreKind, seed: int) -> None:
    report = simulate(draw_script(seed, store, steps=40))
    assert report.violations == ()
    assert report.faults


@pytest.mark.parametrize("store", STORES)
def test_a_killed_worker_s_job_is_run_again(store: StoreKind) -> None:
    submit = Submit(at=0.0, job_type="plain", plan=Plan(seconds=10.0))
    report = simulate(small(store, submit, Trouble(at=5.0, what="crash")))
    assert report.violations == ()
    assert sum(note.endswith("worker-0 is gone") for note in report.notes) == 2  # and in the end
    assert report.runs == 1  # the one that was killed never came to its end


def test_virtual_time_costs_nothing() -> None:
    submit = Submit(at=0.0, job_type="plain", plan=Plan(), delay=3600.0)
    report = simulate(small("memory", submit, lease=30.0))
    assert report.virtual_seconds > 1800  # it is waited for so long, and reported
    assert "is Queued for ever" in report.violations[0]


def test_an_error_that_nobody_sees_is_a_violation() -> None:
    world = World(1)

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    world.run(main)
    assert len(world.errors) == 1
    assert "ZeroDivisionError" in world.errors[0]


def test_a_run_in_which_time_does_not_go_on_is_ended() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="time does not go on"):
        World(1).run(main)


def test_a_run_that_never_ends_is_ended() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(100)

    with pytest.raises(RuntimeError, match="does not come to an end"):
        World(1).run(main)


def test_a_long_run_may_take_any_number_of_turns() -> None:
    world = World(1)

    async def main() -> None:
        for _ in range(2_000):
            await asyncio.sleep(0)
            await asyncio.sleep(0.01)

    with patch.object(world_module, "_MOST_TURNS_A_SECOND", 3_000):
        world.run(main)
    assert world.turns > 3_000


def test_a_process_that_crashes_is_not_cleaned_up() -> None:
    world, cleaned = World(1), []

    async def live() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            cleaned.append(world.now)

    async def main() -> None:
        process = world.start("one")
        process.run(live)
        await asyncio.sleep(1)
        world.crash(process)
        await asyncio.sleep(100)
        assert not cleaned

    world.run(main)


def test_a_frozen_process_goes_on_where_it_was() -> None:
    world, seen = World(1), []

    async def live() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(round(world.now - 1000))

    async def main() -> None:
        process = world.start("one")
        process.run(live)
        process.frozen_until = world.now + 50
        await asyncio.sleep(100)

    world.run(main)
    assert seen == [51, 52, 53]  # it had not begun before


def forgetting(store: JobStore, process: Process) -> JobStore:
    """Acknowledges every third insert without storing it."""
    inserts = 0

    async def around(verb: str, call: Any) -> Any:
        nonlocal inserts
        inserts += verb == "insert"
        if verb != "insert" or inserts % 3:
            return await call()
        answer = await call()
        jobs = list(store._jobs)  # type: ignore[attr-defined]  # the memory store's own
        for job_id in jobs[-len(answer) :]:
            del store._jobs[job_id]  # type: ignore[attr-defined]  # likewise
        return answer

    return intercepted(store, around)


@pytest.mark.parametrize(("rate", "count"), [("2/s", 60), ("5/s", 100), ("20/s", 300)])
def test_one_worker_uses_a_gate_to_its_rate(rate: str, count: int) -> None:
    started: list[float] = []

    def noting(store: JobStore, process: Process) -> JobStore:
        async def around(verb: str, call: Any) -> Any:
            answer = await call()
            if verb == "claim":
                started.extend(monotonic() for _ in answer)
                await asyncio.sleep(0.005)  # its answer needs as long as some networks do
            return answer

        return intercepted(store, around)

    submit = Submit(at=0.0, job_type="plain", plan=Plan(), count=count)
    limits = (("plain", (Limit(rate=rate),)),)
    report = simulate(small("memory", submit, slots=20, limits=limits), wrap=noting)
    assert report.violations == ()
    per_second = float(rate.removesuffix("/s"))
    assert (count - 1) / (started[-1] - started[0]) >= 0.97 * per_second
    gaps = [after - before for before, after in pairwise(started)]
    assert max(gaps) <= 1.5 / per_second + 0.05


def broken(script: Script) -> Report:
    return simulate(script, wrap=forgetting)


@pytest.mark.wide
def test_a_store_that_forgets_is_caught_and_the_script_is_shortened() -> None:
    steps = [Submit(at=float(at), job_type="plain", plan=Plan()) for at in range(8)]
    script = small("memory", *steps, Trouble(at=3.5, what="freeze", seconds=1.0))
    assert simulate(script).violations == ()
    assert broken(script).violations
    shortest = shrink(script, broken)
    assert len(shortest.steps) == 3
    assert broken(shortest).violations


class WithoutLimits:
    """Starts whatever is due, whatever limits a claim brings."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        unlimited = [msgspec.structs.replace(one, flow=()) for one in requests]
        return await self._store.claim(session, claim_id, unlimited, lease=lease)


@pytest.mark.parametrize(
    ("rule", "limit"),
    [
        ("limit", Limit(running=1)),
        ("limit", Limit(running=1, per="type")),
        ("gate", Limit(rate="1/m", burst=1)),
    ],
)
def test_a_limit_that_a_store_does_not_hold_to_is_caught(rule: str, limit: Limit) -> None:
    submit = Submit(at=0.0, job_type="plain", plan=Plan(seconds=1.0), count=3, group="a")
    script = small("memory", submit, limits=(("plain", (limit,)),))
    report = simulate(script)
    assert report.violations == ()
    assert report.runs == 3
    unlimited = simulate(script, wrap=lambda store, _: cast("JobStore", WithoutLimits(store)))
    assert [one.partition(":")[0] for one in unlimited.violations[:1]] == [rule]
