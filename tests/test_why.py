"""Why a job waits: each situation is brought about, and the answer is compared with the truth."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, get_args
from uuid import UUID, uuid4

import msgspec
import pytest

from gantline import Context, Gantline, Permanent, Retry, Snooze, WorkerSettings
from gantline.contract.query import LaneRequest
from gantline.contract.records import RecordWrite
from gantline.contract.store import JobStore
from gantline.manager.orphans import OrphanSweeper
from gantline.manager.reaper import Reaper
from gantline.manager.sessions import Session, live_sessions, register, unregister
from gantline.manager.switches import CLOSED, SWITCHES, Closed
from gantline.testing.conformance import StoreHarness
from gantline.testing.factories import make_new, register_sessions
from gantline.why.explain import View, Why, explain
from gantline.why.reasons import MOST_AHEAD, WaitReason
from gantline.worker.worker import Worker
from tests.harness import MemoryHarness, SqliteHarness

_HOUR = timedelta(hours=1)
_LEASE = timedelta(seconds=60)


class Scene:
    """An application whose handlers wait for the test, and a store that can be asked why."""

    def __init__(self, harness: StoreHarness, store: JobStore) -> None:
        self.harness, self.clock, self.store = harness, harness.clock, store
        self.app = self.application(store)
        self.may_end = asyncio.Event()
        self.has_started = asyncio.Event()

        @self.app.job("test", queues=("rare",))
        async def handle(what: str, ctx: Context) -> None:
            match what:
                case "fail":
                    raise Permanent("BROKEN", "It is broken.")
                case "retry":
                    raise Retry(after=90, code="MAIL_DOWN", message="The mail server is down.")
                case "snooze":
                    raise Snooze(600)
                case "wait":
                    await ctx.progress(40, "half")
                    self.has_started.set()
                    await self.may_end.wait()

        @self.app.job("alone", concurrency=1, aliases=("lonely",))
        async def alone(what: str) -> None:
            self.has_started.set()
            await self.may_end.wait()

        self.handle, self.alone = handle, alone

    def application(self, store: JobStore) -> Gantline:
        app = Gantline(store)
        app.move_to(store, clock=self.clock)
        return app

    @asynccontextmanager
    async def worker(self, app: Gantline | None = None, **queues: int) -> AsyncIterator[Worker]:
        settings = WorkerSettings(
            queues=queues or {"default": 4}, lease=_LEASE, drain=timedelta(0), maintain_every=None
        )
        async with (app or self.app).working(settings) as worker:
            running = asyncio.create_task(worker.run())
            async with asyncio.timeout(60):
                while not worker._is_open:  # noqa: ASYNC110  # in the worker
                    await asyncio.sleep(0)
                try:
                    yield worker
                finally:
                    self.may_end.set()
                    worker.stop()
                    await running

    async def session(self, name: str = "worker-1", **fields: Any) -> None:
        """A worker that lives, as far as others know: it does nothing."""
        await register(self.store, self.made_session(name, **fields))

    def made_session(self, name: str, **fields: Any) -> Session:
        now = self.clock.now()
        known: dict[str, Any] = {
            "session_id": name,
            "host": "host",
            "pid": 1,
            "version": "1",
            "started_at": now,
            "last_seen_at": now,
            "queues": {"default": 2},
            "job_types": ("test",),
            "no_handler_grace_seconds": 900.0,
        }
        return Session(**known | fields)

    async def submit(self, what: str = "", **options: Any) -> UUID:
        return (await self.handle.submit(what, **options)).job_id

    async def claim(self, session: str = "worker-1", *, suspects: tuple[int, ...] = ()) -> None:
        asked = [LaneRequest("default", ("test",), 10, suspects=suspects)]
        await self.store.claim(session, uuid4(), asked, lease=_LEASE)

    async def crash(self, job_id: UUID, times: int) -> None:
        """Have a job in so many crashes, always beside another."""
        other = await self.submit("other")
        await register_sessions(self.store, "crashed")
        for _ in range(times):
            self.clock.advance(timedelta(seconds=3))
            for suspects in ((), (10,)):
                await self.claim("crashed", suspects=suspects)
            await self.store.expire_session("crashed")
            await Reaper(self.store, jitter=lambda: 0.0).run_once(["crashed"])
        await self.app.manager.cancel([other], tenant_id=None, actor="test")
        await unregister(self.store, "crashed")

    async def why(self, job_id: UUID, view: View = View.INSTALLATION) -> Why:
        (job,) = await self.store.get([job_id], tenant_id=None)
        assert job is not None
        return await explain(self.store, job, view=view)

    async def codes(self, job_id: UUID, view: View = View.INSTALLATION) -> list[str]:
        return [one.code for one in (await self.why(job_id, view)).reasons]

    async def first(self, job_id: UUID, code: str) -> Mapping[str, Any]:
        """The facts of the first reason, which must have this code."""
        why = await self.why(job_id)
        assert why.reasons[0].code == code, str(why)
        return why.reasons[0].facts

    async def until(self, job_id: UUID, code: str) -> None:
        """Wait for the worker: until the first reason is another."""
        async with asyncio.timeout(30):
            while (await self.codes(job_id))[0] != code:  # noqa: ASYNC110  # in the worker
                await asyncio.sleep(0)

    def at(self, **ahead: float) -> str:
        """An instant from now, as facts have it."""
        instant = self.clock.now() + timedelta(**ahead)
        return str(msgspec.to_builtins(instant))


@pytest.fixture(params=[MemoryHarness, SqliteHarness], ids=["memory", "sqlite"])
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    harness = request.param()
    scene = Scene(harness, await harness.open())
    async with scene.app:
        yield scene
    await harness.close()


# -- it is not its time yet -----------------------------------------------------------------------


async def test_a_scheduled_job_waits_for_its_time_and_what_comes_then_is_said_too(
    scene: Scene,
) -> None:
    job_id = await scene.submit(delay=_HOUR)
    facts = await scene.first(job_id, "SCHEDULED")
    assert facts == {"dueAt": scene.at(hours=1)}
    assert await scene.codes(job_id) == ["SCHEDULED", "NO_WORKERS"]
    why = await scene.why(job_id)
    assert why.reasons[0].text(why.at).endswith("UTC (in 60 min).")
    scene.clock.advance(_HOUR)
    assert await scene.codes(job_id) == ["NO_WORKERS"]


async def test_a_retry_says_which_attempt_failed_with_what_and_when_the_next_is(
    scene: Scene,
) -> None:
    async with scene.worker():
        job_id = await scene.submit("retry")
        await scene.until(job_id, "RETRYING")
    assert await scene.first(job_id, "RETRYING") == {
        "dueAt": scene.at(seconds=90),
        "attempt": 1,
        "maxAttempts": 3,
        "errorCode": "MAIL_DOWN",
        "errorMessage": "The mail server is down.",
    }


async def test_a_snoozed_job_waits_as_long_as_its_handler_asked_for(scene: Scene) -> None:
    async with scene.worker():
        job_id = await scene.submit("snooze")
        await scene.until(job_id, "SNOOZED")
    assert await scene.first(job_id, "SNOOZED") == {"dueAt": scene.at(minutes=10), "snoozes": 1}


# -- an operator has stopped it -------------------------------------------------------------------


async def test_what_an_operator_switched_comes_first_with_the_command_that_undoes_it(
    scene: Scene,
) -> None:
    job_id = await scene.submit()
    await scene.session()
    switches = scene.app.switches
    await switches.disable_type("test")
    await switches.pause_type("test")
    await switches.pause_queue("default")
    codes = await scene.codes(job_id)
    assert codes == ["QUEUE_PAUSED", "TYPE_PAUSED", "TYPE_DISABLED"]
    steps = [one.next_steps(job_id)[0] for one in (await scene.why(job_id)).reasons]
    assert "gantline queue resume default" in steps[0]
    assert "gantline type resume test" in steps[1]
    assert "gantline type enable test" in steps[2]
    await switches.pause_queue("default", paused=False)
    await switches.pause_type("test", paused=False)
    await switches.disable_type("test", disabled=False)
    assert await scene.codes(job_id) == ["DUE"]


async def test_of_a_closed_store_nothing_is_claimed_whatever_else_holds(scene: Scene) -> None:
    job_id = await scene.submit(delay=_HOUR)
    closed = Closed(
        copied_from="here", copied_to="there", copy="1", by="ada", since=scene.clock.now()
    )
    write = RecordWrite(SWITCHES, CLOSED, msgspec.json.encode(closed))
    await scene.store.write_records([write])
    assert await scene.codes(job_id) == ["STORE_CLOSED", "SCHEDULED", "NO_WORKERS"]
    facts = await scene.first(job_id, "STORE_CLOSED")
    assert (facts["copiedTo"], facts["by"], facts["hasMoved"]) == ("there", "ada", False)


# -- nobody is there to run it --------------------------------------------------------------------


async def test_workers_that_serve_other_queues_are_told_from_none_at_all(scene: Scene) -> None:
    job_id = await scene.submit(queue="rare")
    assert await scene.first(job_id, "NO_WORKERS") == {}
    async with scene.worker():
        assert await scene.first(job_id, "QUEUE_NOT_SERVED") == {"queue": "rare", "workers": 1}
    async with scene.worker(rare=1):
        await scene.until(job_id, "ENDED")


async def test_a_type_that_nobody_declared_is_said_with_the_time_at_which_it_is_given_up(
    scene: Scene,
) -> None:
    job_id = await scene.submit()
    other = scene.application(await scene.harness.open())

    @other.job("other")
    async def handle() -> None:
        """Another program's."""

    async with other, scene.worker(other):
        facts = await scene.first(job_id, "TYPE_NOT_HANDLED")
        assert (facts["serving"], facts["elsewhere"], facts["poisonedAt"]) == (1, 0, None)
    await scene.session(job_types=("other",), no_handler_grace_seconds=300.0)
    sweeper = OrphanSweeper(scene.store, grace=timedelta(minutes=5))
    await sweeper.run_once()
    given_up = scene.at(minutes=5)
    assert (await scene.first(job_id, "TYPE_NOT_HANDLED"))["poisonedAt"] == given_up
    scene.clock.advance(timedelta(minutes=5))
    await sweeper.run_once()
    facts = await scene.first(job_id, "ENDED")
    assert (facts["status"], facts["reason"], facts["at"]) == ("Poisoned", "NoHandler", given_up)


async def test_a_type_that_is_declared_in_other_queues_only_is_not_given_up(scene: Scene) -> None:
    job_id = await scene.submit()
    await scene.session("a", job_types=("other",))
    await scene.session("b", queues={"rare": 1})
    await OrphanSweeper(scene.store, grace=timedelta(0)).run_once()
    facts = await scene.first(job_id, "TYPE_NOT_HANDLED")
    assert (facts["serving"], facts["elsewhere"], facts["poisonedAt"]) == (1, 1, None)


async def test_workers_that_stop_claim_nothing_more(scene: Scene) -> None:
    job_id = await scene.submit()
    await scene.session(draining=True)
    assert await scene.first(job_id, "WORKERS_DRAINING") == {"workers": 1}


async def test_a_worker_says_of_itself_why_it_is_not_ready(scene: Scene) -> None:
    job_id = await scene.submit()
    await scene.session(trouble="What has ended cannot be written.")
    facts = await scene.first(job_id, "WORKERS_NOT_READY")
    assert facts["workers"] == ("worker-1",)
    await scene.session("worker-2")
    assert await scene.codes(job_id) == ["DUE", "WORKERS_NOT_READY"]


# -- it waits in line -----------------------------------------------------------------------------


async def test_full_slots_are_counted_as_the_worker_counts_them(scene: Scene) -> None:
    async with scene.worker(default=2):
        running = [await scene.submit("wait") for _ in range(2)]
        for job_id in running:
            await scene.until(job_id, "RUNNING")
        first, second = await scene.submit("x"), await scene.submit("x")
        facts = await scene.first(second, "NO_FREE_SLOT")
        assert facts == {"workers": 1, "slots": 2, "running": 2, "isAlone": False}
        assert await scene.codes(first) == ["NO_FREE_SLOT"]
        assert await scene.codes(second) == ["NO_FREE_SLOT", "JOBS_AHEAD"]
        await scene.session("worker-2")
        assert await scene.codes(first) == ["DUE"]
        assert (await scene.first(first, "DUE"))["workers"] == ("worker-2",)
        await unregister(scene.store, "worker-2")
        scene.may_end.set()
        await scene.until(second, "ENDED")


async def test_a_limit_of_a_type_is_a_full_slot_too(scene: Scene) -> None:
    async with scene.worker():
        running = (await scene.alone.submit("")).job_id
        await scene.until(running, "RUNNING")
        waits = (await scene.alone.submit("")).job_id
        facts = await scene.first(waits, "NO_FREE_SLOT")
        assert facts == {"workers": 1, "slots": 1, "running": 1, "isAlone": False}
        (session,) = await live_sessions(scene.store)
        assert session.concurrency == ((("alone", "lonely"), 1),)
        assert session.slots == 4


async def test_jobs_ahead_are_those_that_its_workers_take_first(scene: Scene) -> None:
    for kind, priority in (("test", 0), ("b", 2), ("b", 3), ("c", 0)):
        await scene.store.insert([make_new(job_type=kind, priority=priority)])
    scene.clock.advance(_HOUR)
    await scene.session(job_types=("test", "b"))
    job_id = await scene.submit()
    facts = await scene.first(job_id, "JOBS_AHEAD")
    assert (facts["jobs"], facts["isMore"], facts["byPriority"]) == (2, False, {"0": 1, "2": 1})
    await scene.app.switches.pause_type("b")
    assert (await scene.first(job_id, "JOBS_AHEAD"))["byPriority"] == {"0": 1}


async def test_beyond_a_bound_there_are_more(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantline.why.explain.MOST_AHEAD", 3)
    assert MOST_AHEAD == 10_000
    for _ in range(5):
        await scene.submit()
    scene.clock.advance(_HOUR)
    await scene.session()
    why = await scene.why(await scene.submit())
    said = "More than 3 due jobs are ahead of it: 3 of priority 2; its own is 2."
    assert why.reasons[0].text(why.at) == said


async def test_where_nothing_hinders_it_the_workers_that_should_take_it_are_named(
    scene: Scene,
) -> None:
    job_id, since = await scene.submit(), scene.at()
    await scene.session("new", last_seen_at=scene.clock.now())
    await scene.session("old", last_seen_at=scene.clock.now() - timedelta(seconds=30))
    assert await scene.first(job_id, "DUE") == {"since": since, "workers": ("old", "new")}
    why = await scene.why(job_id)
    assert "That is long" not in why.reasons[0].text(why.at)
    scene.clock.advance(timedelta(seconds=11))
    why = await scene.why(job_id)
    assert "That is long" in why.reasons[0].text(why.at)
    assert "/readyz and the log of old, new" in why.reasons[0].next_steps(job_id)[0]


async def test_a_suspect_waits_behind_suspects_that_run(scene: Scene) -> None:
    job_id = await scene.submit()
    await scene.crash(job_id, times=2)
    assert await scene.first(job_id, "CRASHED") == {"dueAt": scene.at(seconds=2), "crashes": 2}
    scene.clock.advance(timedelta(seconds=3))
    await scene.session()
    assert await scene.first(job_id, "SUSPECT") == {"crashes": 2, "running": 0}


async def test_beside_a_suspect_that_runs_alone_no_slot_is_free(scene: Scene) -> None:
    suspect = await scene.submit()
    await scene.crash(suspect, times=3)  # with two slots, those in three crashes run alone
    scene.clock.advance(timedelta(seconds=3))
    await scene.session()
    await scene.claim(suspects=(10,))
    job_id = await scene.submit()
    facts = await scene.first(job_id, "NO_FREE_SLOT")
    assert facts == {"workers": 1, "slots": 2, "running": 1, "isAlone": True}


# -- it does not wait -----------------------------------------------------------------------------


async def test_a_run_says_where_it_runs_how_far_it_is_and_that_it_was_asked_to_stop(
    scene: Scene,
) -> None:
    async with scene.worker() as worker:
        job_id = await scene.submit("wait")
        await scene.has_started.wait()
        assert await scene.first(job_id, "RUNNING") == {
            "session": worker.session_id,
            "since": scene.at(),
            "leaseUntil": scene.at(seconds=60),
            "percent": 40.0,
            "phase": "half",
        }
    job_id = await scene.submit()
    await scene.session()
    await scene.claim()
    await scene.app.manager.cancel([job_id], tenant_id=None, actor="ada")
    assert await scene.codes(job_id) == ["CANCEL_REQUESTED", "RUNNING"]
    facts = await scene.first(job_id, "CANCEL_REQUESTED")
    assert facts == {"at": scene.at(), "actor": "ada"}


async def test_a_worker_that_is_gone_is_told_from_a_lease_that_has_ended(scene: Scene) -> None:
    job_id = await scene.submit()
    await scene.session()
    await scene.claim()
    until = scene.at(seconds=60)
    await unregister(scene.store, "worker-1")
    facts = await scene.first(job_id, "WORKER_GONE")
    assert facts == {"session": "worker-1", "leaseUntil": until}
    scene.clock.advance(timedelta(seconds=61))
    facts = await scene.first(job_id, "LEASE_EXPIRED")
    assert facts == {"until": until, "workers": 0, "isMaintained": False}
    await scene.session("worker-2", no_handler_grace_seconds=None)
    assert not (await scene.first(job_id, "LEASE_EXPIRED"))["isMaintained"]
    await scene.session("worker-3")
    assert (await scene.first(job_id, "LEASE_EXPIRED"))["isMaintained"]
    await Reaper(scene.store).run_once()
    assert await scene.codes(job_id) == ["DUE"]


async def test_an_end_says_why_and_how_to_queue_the_job_again(scene: Scene) -> None:
    async with scene.worker():
        done, failed = await scene.submit(), await scene.submit("fail")
        await scene.until(done, "ENDED")
        await scene.until(failed, "ENDED")
    assert (await scene.first(done, "ENDED"))["status"] == "Completed"
    assert (await scene.why(done)).reasons[0].next_steps(done) == ()
    assert await scene.first(failed, "ENDED") == {
        "status": "Failed",
        "at": scene.at(),
        "reason": "PermanentError",
        "errorCode": "BROKEN",
        "errorMessage": "It is broken.",
        "actor": "",
    }
    (step,) = (await scene.why(failed)).reasons[0].next_steps(failed)
    assert step.endswith(f"gantline job redrive {failed}")
    cancelled = await scene.submit()
    await scene.app.manager.cancel([cancelled], tenant_id=None, actor="ada")
    facts = await scene.first(cancelled, "ENDED")
    assert (facts["status"], facts["actor"]) == ("Cancelled", "ada")


async def test_a_handle_says_why(scene: Scene) -> None:
    why = await (await scene.handle.submit("x", delay=_HOUR)).why()
    assert [one.code for one in why.reasons] == ["SCHEDULED", "NO_WORKERS"]
    assert str(why).startswith("SCHEDULED: It is scheduled, and due ")


# -- who may know what ----------------------------------------------------------------------------


async def test_who_may_not_see_the_workers_learns_nothing_of_what_others_do(scene: Scene) -> None:
    """With the traffic of another tenant, the answer is the same as without it."""
    await scene.session()
    await scene.submit(tenant="mine", priority=1)
    job_id = await scene.submit(tenant="mine")
    quiet = {view: str(await scene.why(job_id, view)) for view in (View.TENANT, View.JOB)}
    for _ in range(3):
        await scene.submit(tenant="theirs", priority=0)
    await scene.claim()  # all slots are taken now, by jobs of both
    busy = await scene.submit(tenant="mine")
    for _ in range(3):
        await scene.submit(tenant="theirs", priority=0)
    assert "NO_FREE_SLOT" in await scene.codes(busy)
    assert await scene.codes(busy, View.JOB) == ["IN_LINE"]
    assert await scene.codes(busy, View.TENANT) == ["IN_LINE"]
    await scene.submit(tenant="mine", priority=1)
    assert str(await scene.why(busy, View.JOB)) == quiet[View.JOB]
    assert str(await scene.why(busy, View.TENANT)) == quiet[View.TENANT]
    assert quiet[View.TENANT].startswith("JOBS_AHEAD: 1 due job of your tenant is ahead of it: ")


async def test_numbers_and_names_of_workers_are_only_for_who_may_see_them(scene: Scene) -> None:
    job_id = await scene.submit()
    await scene.session("host-of-others-1", queues={"rare": 1})
    hidden = {one.code: one.facts for one in (await scene.why(job_id, View.JOB)).reasons}
    assert hidden == {"QUEUE_NOT_SERVED": {"queue": "default", "workers": None}}
    await scene.session("host-of-others-2")
    await scene.claim("host-of-others-2")
    assert "host" not in str(await scene.why(job_id, View.JOB))
    (running,) = (await scene.why(job_id, View.TENANT)).reasons
    assert running.facts["session"] == "host-of-others-2"


def test_codes_are_unique_and_every_reason_has_its_sentence() -> None:
    kinds = get_args(WaitReason)
    codes = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(codes)) == len(codes) == 27
    for kind in kinds:
        assert "text" in vars(kind), kind
