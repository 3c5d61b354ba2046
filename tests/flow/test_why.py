"""Why a job waits that a limit holds back: which one, by which runs, until when, and what to do."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from gantline import Gantline, Limit, Throttled
from gantline.contract.classify import classify
from gantline.contract.flow import GateState
from gantline.contract.query import LaneRequest
from gantline.contract.snapshot import Run
from gantline.manager.manager import Ending
from gantline.manager.sessions import Session, register
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.why.explain import View, Why, explain

MINUTE = timedelta(minutes=1)


class Scene:
    """Types with limits, one worker with 50 slots, and a clock that a test moves."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.app = Gantline(self.store)

        @self.app.job("import", group=lambda of: of[0], limits=[Limit(running=2)])
        async def import_(of: list[str]) -> None: ...

        @self.app.job("report", limits=[Limit(running=1, per="type")])
        async def report(of: str) -> None: ...

        @self.app.job("mail", limits=[Limit(rate="2/m", gate="mail-api")])
        async def mail(of: str) -> None: ...

        self.types = (import_, report, mail)

    async def open(self) -> None:
        await self.app.open()
        flows = [flow for one in self.types for flow in one.flows or ()]
        await self.app.limits.declare(flows)
        now = self.clock.now()
        await register(
            self.store,
            Session(
                session_id="worker",
                host="host",
                pid=1,
                version="1",
                started_at=now,
                last_seen_at=now,
                queues={"default": 50},
                job_types=tuple(one.name for one in self.types),
            ),
        )

    async def submit(self, name: str, of: Any, **options: Any) -> UUID:
        job_type = self.app.find_type(name)
        assert job_type is not None
        handle = await job_type.submit(of, **options)
        return handle.job_id

    async def claim(self) -> list[Run]:
        requests = [LaneRequest("default", tuple(one.name for one in self.types), 50)]
        held = self.app.limits.applied_to(requests)
        return await self.app.manager.claim("worker", uuid4(), held, lease=MINUTE)

    async def why(self, job_id: UUID, view: View = View.INSTALLATION) -> Why:
        (job,) = await self.store.get([job_id], tenant_id=None)
        assert job is not None
        return await explain(self.store, job, view=view)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    await scene.open()
    yield scene
    await scene.app.close()


def codes(why: Why) -> list[str]:
    return [one.code for one in why.reasons]


async def test_a_full_group_is_named_with_the_jobs_that_fill_it(scene: Scene) -> None:
    await scene.submit("import", ["b", "1"])
    running = {str(await scene.submit("import", ["a", number])) for number in "12"}
    waits = await scene.submit("import", ["a", "3"])
    await scene.claim()
    why = await scene.why(waits)
    assert codes(why) == ["GROUP_FULL"]
    facts = why.reasons[0].facts
    assert set(facts.pop("jobs")) == running
    assert facts == {"jobType": "import", "group": "a", "limit": 2, "running": 2}
    said = why.reasons[0].text(why.at)
    assert said.startswith("2 jobs of the group 'a' run, and no more than 2 may at once: ")
    assert why.reasons[0].next_steps(waits) == (
        "Which groups wait: gantline limit groups import",
        "Allow more: gantline limit set import --running 3",
    )


async def test_a_full_type_is_named(scene: Scene) -> None:
    await scene.submit("report", "x")
    waits = await scene.submit("report", "y")
    await scene.claim()
    why = await scene.why(waits)
    assert codes(why) == ["TYPE_FULL"]
    assert why.reasons[0].text(why.at) == (
        "1 job of the type 'report' runs, and no more than 1 may at once."
    )
    assert "gantline limit set report --running-in-all 2" in why.reasons[0].next_steps(waits)[1]


async def test_a_gate_that_is_busy_says_when_it_has_room(scene: Scene) -> None:
    await scene.submit("mail", "a")
    waits = await scene.submit("mail", "b")
    await scene.claim()
    why = await scene.why(waits)
    assert codes(why) == ["GATE_CLOSED"]
    facts = why.reasons[0].facts
    assert (facts["gate"], facts["rate"], facts["throttled"]) == ("mail-api", "2/m", False)
    assert "The gate 'mail-api' lets 2/m through" in why.reasons[0].text(why.at)
    scene.clock.advance(30)
    assert codes(await scene.why(waits)) == ["DUE"]


async def test_a_gate_that_a_run_has_closed_says_until_when(scene: Scene) -> None:
    first = await scene.submit("mail", "a")
    (run,) = await scene.claim()
    waits = await scene.submit("mail", "b")
    await scene.app.manager.settle([Ending(run, classify(Throttled(after=600)))])
    for view in View:
        why = await scene.why(waits, view)
        assert codes(why)[0] == "GATE_CLOSED"
        assert "is closed until 2026-01-01 12:10:00 UTC (in 10 min)" in why.reasons[0].text(why.at)
    assert codes(await scene.why(first)) == ["THROTTLED"]
    assert "Another service asked it to wait, 1 time so far" in str(await scene.why(first))


async def test_a_tenant_learns_only_of_its_own_runs(scene: Scene) -> None:
    for _ in range(2):
        await scene.submit("import", ["a", "x"], tenant="mine")
    await scene.submit("report", "x", tenant="theirs")
    await scene.submit("mail", "x", tenant="theirs")
    await scene.claim()
    group = await scene.submit("import", ["a", "x"], tenant="mine")
    of_type = await scene.submit("report", "y", tenant="mine")
    gate = await scene.submit("mail", "y", tenant="mine")
    found = codes(await scene.why(group, View.TENANT))
    assert (found[0], found[-1]) == ("GROUP_FULL", "IN_LINE")
    for job_id in (of_type, gate):
        assert set(codes(await scene.why(job_id, View.TENANT))) <= {"JOBS_AHEAD", "IN_LINE"}
    for job_id in (group, of_type, gate):
        assert codes(await scene.why(job_id, View.JOB)) == ["IN_LINE"]


async def test_what_is_not_held_back_is_due(scene: Scene) -> None:
    for name, of in (("import", ["a", "x"]), ("report", "x"), ("mail", "x")):
        assert codes(await scene.why(await scene.submit(name, of))) in (["DUE"], ["JOBS_AHEAD"])
    assert await scene.store.gates(["mail-api"]) == [GateState("mail-api")]
