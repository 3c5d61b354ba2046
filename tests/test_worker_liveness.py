"""No handler can stop a worker: not by never returning, not by what it raises or is limited to."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gantline import (
    Backoff,
    Context,
    Gantline,
    Handle,
    JobStatus,
    Permanent,
    Retry,
    WorkerSettings,
)
from gantline.contract.errors import StoreUnavailable
from gantline.contract.results import ApplyResult, Renewal
from gantline.contract.snapshot import RunRef
from gantline.contract.status import DEAD, Event
from gantline.contract.transition import Transition
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.faults import Call, intercepted
from gantline.worker.handler import RunIn
from gantline.worker.lease_keeper import EXIT_STUCK
from gantline.worker.worker import Worker

_SOON = timedelta(milliseconds=50)


class Line:
    """The way to the store. It can be cut, and be whole again."""

    def __init__(self, *verbs: str) -> None:
        self._verbs = verbs
        self.is_cut = False
        self.cuts = 0

    async def around(self, verb: str, call: Call) -> Any:
        if self.is_cut and (not self._verbs or verb in self._verbs):
            self.cuts += 1
            raise StoreUnavailable("the line is cut")
        return await call()


@asynccontextmanager
async def working(jobs: Gantline, **changes: Any) -> AsyncIterator[Worker]:
    plain = WorkerSettings(
        queues={"default": 4},
        lease=timedelta(seconds=1),
        poll=_SOON,
        drain=timedelta(0),
        deadline_grace=_SOON,
    )
    settings = msgspec.structs.replace(plain, **changes)
    async with asyncio.timeout(60), jobs, jobs.running(settings) as worker:
        yield worker


async def until_completed(handle: Handle[Any]) -> None:
    assert (await handle.wait(timeout=30)).status is JobStatus.COMPLETED


async def test_a_thread_that_raises_stop_iteration_has_failed() -> None:
    """A future refuses that exception, and who waits for it would wait for ever."""
    jobs = Gantline("memory://")

    @jobs.job("next")
    def take_next() -> int:
        return next(number for number in list[int]())

    async with working(jobs):
        handle = await take_next.submit(None, max_attempts=1)
        job = await handle.wait(timeout=30)
    assert job.status is JobStatus.POISONED
    assert job.last is not None
    assert job.last.error is not None
    assert "StopIteration" in job.last.error.detail


async def test_a_handler_that_never_returns_is_ended_without_it() -> None:
    jobs = Gantline("memory://")
    may_return = threading.Event()

    @jobs.job("stuck", timeout=_SOON)
    def stuck() -> None:
        may_return.wait()

    @jobs.job("plain")
    async def plain() -> None: ...

    async with working(jobs, queues={"default": 2}) as worker:
        handle = await stuck.submit(None, max_attempts=1)
        job = await handle.wait(timeout=30)
        assert job.status is JobStatus.POISONED
        assert job.last is not None
        assert job.last.error is not None
        assert job.last.error.code == "TIMEOUT"
        assert worker.slots["default"] == (2, 1), "its thread still has the slot"
        await until_completed(await plain.submit(None))
        assert worker.trouble() is None
        may_return.set()
        while worker.slots["default"] != (2, 2):  # noqa: ASYNC110  # in the worker
            await asyncio.sleep(0.01)


async def test_a_worker_whose_slots_are_all_stuck_is_unready_and_ends_for_its_supervisor() -> None:
    exits: list[int] = []
    jobs = Gantline("memory://")
    may_return = threading.Event()

    @jobs.job("stuck", timeout=_SOON)
    def stuck() -> None:
        may_return.wait()

    settings = WorkerSettings(
        queues={"default": 2},
        lease=timedelta(seconds=1),
        drain=timedelta(0),
        deadline_grace=_SOON,
    )
    async with asyncio.timeout(60), jobs, jobs.working(settings) as worker:
        worker._exit = exits.append
        running = asyncio.create_task(worker.run())
        for handle in [await stuck.submit(None, max_attempts=1) for _ in range(2)]:
            await handle.wait(timeout=30)
        assert (
            worker.trouble()
            == "All slots of a queue or a type are held by handlers that do not return."
        )
        waiting = await stuck.submit(None)
        await running
        assert exits == [EXIT_STUCK]
        job = await waiting.status()
        assert (job.status, job.attempt, job.crashes) == (JobStatus.QUEUED, 0, 0)
    may_return.set()


@pytest.mark.parametrize("concurrency", [1, 2, 5])
async def test_no_more_of_a_type_is_claimed_than_may_run(concurrency: int) -> None:
    """What waits for its turn in the worker has a lease that runs, and no handler."""
    jobs = Gantline("memory://")
    running, most, runs = 0, 0, Counter[int]()

    @jobs.job("limited", concurrency=concurrency, aliases=("formerly",), timeout=_SOON)
    async def limited(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        runs[number] += 1
        await asyncio.sleep(0)
        running -= 1

    @jobs.job("plain", queue="other")
    async def plain(number: int) -> None: ...

    async with working(jobs, queues={"default": 20, "other": 3}) as worker:
        handles = await limited.submit_many(list(range(40)))
        handles += [await limited.submit(number, queue="other") for number in range(40, 60)]
        for handle in handles:
            await until_completed(handle)
        assert worker.counts == {Event.COMPLETED: 60}
    assert most == concurrency
    assert set(runs.values()) == {1}


async def test_a_limited_type_is_found_in_whatever_queue_and_under_whatever_name() -> None:
    """And at the speed of its own queue."""
    jobs = Gantline("memory://")
    running, most = 0, 0

    @jobs.job("limited", concurrency=1, aliases=("formerly", "once"))
    async def limited(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    queues = {"default": 2, "a": 2, "b": 2, "c": 2}
    async with working(jobs, queues=queues, poll=timedelta(hours=1)) as worker:
        began = asyncio.get_running_loop().time()
        for handle in [await limited.submit(number, queue="c") for number in range(100)]:
            await until_completed(handle)
        assert asyncio.get_running_loop().time() - began < 20
        assert worker.counts == {Event.COMPLETED: 100}
    assert most == 1


async def test_a_slot_that_becomes_free_is_used_though_others_were_free_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gantline.worker.claimer._FIRST_WAIT_SECONDS", 3600.0)
    jobs = Gantline("memory://")

    @jobs.job("any")
    async def handle(number: int) -> None:
        await asyncio.sleep(0.05)  # so that the claimer, which finds no more slots, goes to wait

    async with working(jobs, queues={"default": 1, "idle": 5}):
        for one in await handle.submit_many(list(range(5))):
            await until_completed(one)


async def test_a_limited_type_whose_handlers_are_stuck_is_trouble() -> None:
    jobs = Gantline("memory://")
    may_return = threading.Event()

    @jobs.job("stuck", timeout=_SOON, concurrency=1)
    def stuck() -> None:
        may_return.wait()

    async with working(jobs, lease=timedelta(seconds=30)) as worker:
        await (await stuck.submit(None, max_attempts=1)).wait(timeout=30)
        assert worker.trouble() is not None
        may_return.set()


async def test_a_thread_that_was_cut_off_and_goes_on_too_long_has_timed_out() -> None:
    line = Line("renew")
    jobs = Gantline(intercepted(MemoryStore(clock=FakeClock()), line.around))
    is_cut_off, may_return = asyncio.Event(), threading.Event()
    main = asyncio.get_running_loop()

    @jobs.job("long", timeout=timedelta(seconds=4))
    def long(ctx: Context) -> None:
        while not ctx.cancelled:
            may_return.wait(0.01)
        main.call_soon_threadsafe(is_cut_off.set)
        may_return.wait()

    async with working(jobs):
        handle = await long.submit(None, max_attempts=1)
        line.is_cut = True
        await is_cut_off.wait()
        line.is_cut = False
        job = await handle.wait(timeout=30)
        may_return.set()
    assert (job.status, job.crashes) == (JobStatus.POISONED, 0)
    assert job.last is not None
    assert job.last.error is not None
    assert job.last.error.code == "TIMEOUT"


async def test_what_is_cut_off_is_stopped_by_its_own_clock_and_goes_on_in_the_same_run() -> None:
    line = Line("renew")
    jobs = Gantline(intercepted(MemoryStore(clock=FakeClock()), line.around))
    events: list[str] = []
    changed = asyncio.Condition()

    async def say(what: str) -> None:
        async with changed:
            events.append(what)
            changed.notify_all()

    @jobs.job("long")
    async def long(ctx: Context) -> str:
        await say("begins")
        try:
            await asyncio.Event().wait() if len(events) == 1 else None
        except asyncio.CancelledError:
            await say("stopped")
            raise
        return "done"

    async with working(jobs) as worker:
        handle = await long.submit(None)
        async with changed:
            await changed.wait_for(lambda: events == ["begins"])
            line.is_cut = True
            await changed.wait_for(lambda: events == ["begins", "stopped"])
            line.is_cut = False
        assert await handle.result(timeout=30) == "done"
        history = await jobs.store.history(handle.job_id, tenant_id=None)
        job = await handle.status()
    assert events == ["begins", "stopped", "begins"]
    assert (job.attempt, job.crashes, job.fence) == (1, 0, 1)
    assert [row.event for row in history] == [Event.COMPLETED]
    assert worker.counts == {Event.COMPLETED: 1}


async def test_a_claim_whose_answer_is_lost_is_asked_for_again() -> None:
    """What it has started would be nobody's, and count as a crash when its lease runs out."""
    lost = 0

    async def around(verb: str, call: Call) -> Any:
        nonlocal lost
        answer = await call()
        if verb == "claim" and answer and lost < 2:
            lost += 1
            raise StoreUnavailable("the answer is lost")
        return answer

    jobs = Gantline(intercepted(MemoryStore(clock=FakeClock()), around))

    @jobs.job("any")
    async def handle() -> int:
        return 7

    async with working(jobs):
        handle_of_it = await handle.submit(None)
        assert await handle_of_it.result(timeout=30) == 7
        job = await handle_of_it.status()
    assert lost == 2
    assert (job.attempt, job.crashes, job.fence) == (1, 0, 1)


async def test_a_claim_that_is_answered_after_its_lease_starts_nothing_before_it_is_renewed() -> (
    None
):
    """Its runs may have been taken over by then."""
    renewed, may_answer, began = asyncio.Event(), asyncio.Event(), list[bool]()
    main = asyncio.get_running_loop()

    async def around(verb: str, call: Call) -> Any:
        answer = await call()
        if verb == "claim" and answer:
            await may_answer.wait()
        elif verb == "renew":
            main.call_soon_threadsafe(renewed.set)
        return answer

    jobs = Gantline(intercepted(MemoryStore(clock=FakeClock()), around))

    @jobs.job("any")
    async def handle() -> None:
        began.append(renewed.is_set())

    async with working(jobs):
        handle_of_it = await handle.submit(None)
        main.call_later(1.2, may_answer.set)
        await until_completed(handle_of_it)
    assert began == [True]


async def test_what_ended_while_the_store_was_away_is_written_when_it_is_back() -> None:
    """However long that took: the work was done."""
    line = Line("renew", "apply")
    jobs = Gantline(intercepted(MemoryStore(clock=FakeClock()), line.around))
    is_running, may_end = asyncio.Event(), asyncio.Event()

    @jobs.job("long")
    async def long() -> int:
        is_running.set()
        await may_end.wait()
        return 7

    async with working(jobs, lease=timedelta(seconds=1)) as worker:
        handle = await long.submit(None)
        await is_running.wait()
        line.is_cut = True
        may_end.set()
        asyncio.get_running_loop().call_later(2.5, setattr, line, "is_cut", False)
        assert await handle.result(timeout=30) == 7
        assert worker.counts == {Event.COMPLETED: 1}
    assert line.cuts > 1


class LosingStore(MemoryStore):
    """Takes no ends, and says of every run that it is lost."""

    def __init__(self) -> None:
        super().__init__(clock=FakeClock())
        self._losses = self._tries = 0
        self.was_tried_since = asyncio.Event()

    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        self._tries += bool(self._losses)
        if self._tries > 1:
            self.was_tried_since.set()
        raise StoreUnavailable("it takes no ends")

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        self._losses += 1
        return Renewal(lost=frozenset(run.token for run in runs))


async def test_a_run_that_is_lost_before_its_end_is_written_leaves_no_handler_behind() -> None:
    """Found by the simulation: seed 9 on SQLite. No handler was called, and the worker believed
    for ever that one does not return; with every slot, it would have ended its process."""
    store = LosingStore()
    jobs = Gantline(store)

    @jobs.job("off", concurrency=1)
    async def off() -> None: ...

    lease, drain = timedelta(seconds=1), timedelta(0)
    settings = WorkerSettings(queues={"default": 1}, lease=lease, poll=_SOON, drain=drain)
    async with asyncio.timeout(60), jobs:
        await off.submit(None)
        await jobs.switches.disable_type("off")
        async with jobs.running(settings) as worker:
            await store.was_tried_since.wait()
            assert not worker.has_stuck_handlers
            assert worker.trouble() is None


async def test_a_loop_that_is_ended_around_a_worker_counts_as_a_crash_of_what_ran() -> None:
    """A job may have ended it: given back without a cost, it would do so for ever."""
    store = MemoryStore(clock=FakeClock())
    jobs = Gantline(store)

    def live_and_end() -> None:
        is_running = asyncio.Event()

        @jobs.job("running")
        async def running() -> None:
            is_running.set()
            await asyncio.Event().wait()

        async def main() -> None:
            await jobs.open()
            await running.submit(None)
            async with jobs.working(WorkerSettings(drain=timedelta(0))) as worker:
                task = asyncio.create_task(worker.run())
                await is_running.wait()
                asyncio.get_running_loop().call_soon(_raise, SystemExit(3))
                await task

        with pytest.raises(SystemExit):
            asyncio.run(main())

    await asyncio.to_thread(live_and_end)
    (run,) = await store.expired(limit=10)
    assert (run.attempt, run.crashes) == (1, 0)


def _raise(error: BaseException) -> None:
    raise error


async def test_a_limited_type_runs_in_every_queue_while_one_of_them_has_a_backlog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gantline.worker.slots._IN_ONE_LANE_SECONDS", 0.0)
    jobs = Gantline("memory://")
    has_run = asyncio.Event()
    backlog = 0

    @jobs.job("limited", concurrency=1, queue="busy")
    async def limited(number: int) -> None:
        nonlocal backlog
        if number < 0:
            has_run.set()
            return
        backlog += 1
        if not has_run.is_set():  # so the backlog never ends before the other has run
            await limited.submit(number + 1)

    async with working(jobs, queues={"busy": 2, "quiet": 2}):
        await limited.submit_many([0, 0])
        await limited.submit(-1, queue="quiet")
        async with asyncio.timeout(20):
            await has_run.wait()
    assert backlog > 0


async def test_a_worker_goes_on_while_handlers_block_its_loop_one_after_the_other() -> None:
    """Together for longer than a lease, none of them for so long: in one turn of the loop."""
    jobs = Gantline("memory://")
    exits: list[int] = []

    @jobs.job("block")
    async def block() -> None:
        time.sleep(0.5)  # noqa: ASYNC251, TID251  # what a handler should not do

    settings = WorkerSettings(queues={"default": 8}, lease=timedelta(seconds=1), poll=_SOON)
    async with jobs, jobs.working(settings) as worker:
        worker._exit = exits.append
        handles = await block.submit_many([None] * 4)
        running = asyncio.create_task(worker.run())
        for handle in handles:
            await until_completed(handle)
        worker.stop()
        await running
    assert exits == []
    assert worker.counts == {Event.COMPLETED: 4}


async def test_a_handler_is_not_out_of_time_because_another_has_blocked_the_loop() -> None:
    jobs = Gantline("memory://")
    waits = asyncio.Event()

    @jobs.job("innocent", timeout=timedelta(seconds=0.5))
    async def innocent() -> None:
        waits.set()
        await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)

    @jobs.job("block")
    async def block() -> None:
        await waits.wait()
        time.sleep(1.5)  # noqa: ASYNC251, TID251  # what a handler should not do

    async with working(jobs, lease=timedelta(seconds=30)):
        handles = [await block.submit(None), await innocent.submit(None, max_attempts=1)]
        for handle in handles:
            await until_completed(handle)


@pytest.mark.parametrize("how", ["cancel", "stop"])
async def test_a_thread_that_raises_cancelled_error_when_told_to_stop_has_not_completed(
    how: str,
) -> None:
    jobs = Gantline("memory://")
    has_begun = threading.Event()

    @jobs.job("export")
    def export(number: int, ctx: Context) -> None:
        has_begun.set()
        while not ctx.cancelled:
            time.sleep(0.01)  # noqa: TID251  # a handler at work
        raise asyncio.CancelledError

    async with working(jobs) as worker:
        handle = await export.submit(1)
        await asyncio.to_thread(has_begun.wait)
        if how == "cancel":
            await handle.cancel()
            await handle.wait(timeout=30)
    assert worker.counts == {Event.CANCELLED if how == "cancel" else Event.RELEASED: 1}


async def test_a_worker_that_has_not_begun_has_done_nothing() -> None:
    jobs = Gantline("memory://")
    async with jobs.running() as worker:
        assert not worker.counts


class _Unreadable(Permanent):
    def __str__(self) -> str:
        raise SystemExit(3)


def _broken(error: BaseException) -> BaseException | None:
    raise asyncio.CancelledError


class _BrokenWait(Backoff, frozen=True, kw_only=True):
    def seconds(self, attempt: int) -> float:
        raise KeyboardInterrupt


ODD_ERRORS: dict[str, Callable[[], BaseException]] = {
    "a number as code": lambda: Permanent(404, "There is none."),  # type: ignore[arg-type]  # as users write it
    "no code": lambda: Permanent(None, "There is none."),  # type: ignore[arg-type]  # likewise
    "an error as detail": lambda: Retry("again", detail=ValueError("x")),  # type: ignore[arg-type]  # likewise
    "a group of these": lambda: ExceptionGroup("g", [Permanent(404, "m")]),  # type: ignore[arg-type]  # likewise
    "a text that raises": lambda: _Unreadable("X", "m"),
    "seconds": lambda: Retry("again", after=0.01),
}


@pytest.mark.parametrize("run_in", [RunIn.LOOP, RunIn.THREAD])
@pytest.mark.parametrize("policy", [{}, {"classify": _broken}, {"retry": _BrokenWait(attempts=3)}])
@pytest.mark.parametrize("error", ODD_ERRORS.values(), ids=ODD_ERRORS)
async def test_an_error_that_cannot_be_read_ends_its_run_and_frees_its_slot(
    error: Callable[[], BaseException], policy: dict[str, Any], run_in: RunIn
) -> None:
    """Such a run stayed Running, and its slot was lost, while the worker was ready."""
    app = Gantline("memory://")

    def fail() -> None:
        raise error()

    async def fail_on_the_loop() -> None:
        raise error()

    failing = app.job("failing", run_in=run_in, **policy)(
        fail_on_the_loop if run_in == "loop" else fail
    )

    @app.job("other")
    async def other() -> int:
        return 7

    async with app, app.running(WorkerSettings(queues={"default": 1})):
        handle = await failing.submit(None, max_attempts=1)
        async with asyncio.timeout(20):
            assert (await handle.wait()).status in DEAD
            assert await (await other.submit(None)).result() == 7
