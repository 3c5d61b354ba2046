"""A handler that saw the stop has not completed; one that did not see it, and returns, has."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from gantline import (
    Context,
    Fixed,
    Gantline,
    Handle,
    JobDefaults,
    JobStatus,
    WorkerSettings,
    provide,
)
from gantline.contract.status import Event
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.faults import intercepted
from gantline.worker.worker import Worker
from tests.process_jobs import (
    Pipes,
    does_not_look,
    group,
    loops,
    pid,
    raises,
    reads,
    stopped,
    stopped_in_time,
    swallows,
)
from tests.test_worker_liveness import Line

pytestmark = pytest.mark.matrix

_SOON: Final = timedelta(milliseconds=50)
_LONG: Final = timedelta(minutes=1)
AT_ONCE: Final = Fixed(every=timedelta(0), attempts=2)


@pytest.fixture(params=["memory", "sqlite"])
async def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gantline]:
    is_memory = request.param == "memory"
    async with Gantline("memory://" if is_memory else f"sqlite:///{tmp_path}/gantline.db") as jobs:
        yield jobs


@pytest.fixture
def stop_came(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a run is asked to stop; a handler that waits for it has not looked."""
    came, ask_to_stop = threading.Event(), Context.ask_to_stop

    def ask(context: Context) -> None:
        ask_to_stop(context)
        came.set()

    monkeypatch.setattr(Context, "ask_to_stop", ask)
    return came


@asynccontextmanager
async def working(jobs: Gantline, **changes: Any) -> AsyncIterator[Worker]:
    plain = WorkerSettings(queues={"default": 4}, poll=_SOON, drain=timedelta(0))
    settings = msgspec.structs.replace(plain, **changes)
    async with asyncio.timeout(60), jobs.running(settings) as worker:
        yield worker


Act = Callable[[Context], object]
SEES: Final = (reads, raises, swallows, loops)
ENDS: Final = {
    "cancel": {Event.CANCELLED: 1},
    "timeout": {Event.RETRIED: 1, Event.COMPLETED: 1},
    "shutdown": {Event.RELEASED: 1},
}


async def stopped_once(
    jobs: Gantline, cause: str, act: Act, where: str, stop_came: threading.Event
) -> tuple[Worker, Handle[Any]]:
    """Run a job whose first run is stopped, and acts then; a later run returns at once."""
    has_begun, main, is_first = asyncio.Event(), asyncio.get_running_loop(), iter([True])

    async def on_the_loop(ctx: Context) -> str:
        if not next(is_first, False):
            return "whole"
        has_begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        act(ctx)
        return "partial"

    def in_a_thread(ctx: Context) -> str:
        if not next(is_first, False):
            return "whole"
        main.call_soon_threadsafe(has_begun.set)
        stop_came.wait()
        act(ctx)
        return "partial"

    declare = jobs.job("any", retry=AT_ONCE, timeout=_SOON if cause == "timeout" else _LONG)
    job_type: Any = declare(on_the_loop) if where == "loop" else declare(in_a_thread)
    async with working(jobs) as worker:
        handle = await job_type.submit(None, idempotency_key="the key")
        await has_begun.wait()
        if cause == "cancel":
            await handle.cancel()
        if cause != "shutdown":
            await handle.wait(timeout=30)
    return worker, handle


@pytest.mark.parametrize("where", ["loop", "thread"])
@pytest.mark.parametrize("act", SEES, ids=lambda act: act.__name__)
@pytest.mark.parametrize("cause", ENDS)
async def test_a_handler_that_returns_after_it_saw_the_stop_ends_by_its_cause(
    jobs: Gantline, cause: str, act: Act, where: str, stop_came: threading.Event
) -> None:
    worker, _ = await stopped_once(jobs, cause, act, where, stop_came)
    assert worker.counts == ENDS[cause]


@pytest.mark.parametrize("where", ["loop", "thread"])
@pytest.mark.parametrize("cause", ENDS)
async def test_a_handler_that_returns_and_did_not_see_the_stop_is_completed(
    jobs: Gantline, cause: str, where: str, stop_came: threading.Event
) -> None:
    worker, _ = await stopped_once(jobs, cause, does_not_look, where, stop_came)
    assert worker.counts == {Event.COMPLETED: 1}


@pytest.mark.parametrize(
    "act",
    [reads, *(pytest.param(act, marks=pytest.mark.wide) for act in SEES[1:]), does_not_look],
    ids=lambda act: act.__name__,
)
@pytest.mark.parametrize("cause", ENDS)
async def test_the_same_holds_in_a_process(cause: str, act: Act, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    jobs = Gantline("memory://", include=[group])
    async with jobs, working(jobs) as worker:
        await (await pid.submit(None)).result(timeout=30)  # no timeout rings while it starts
        worker.counts.clear()
        job_type = stopped_in_time if cause == "timeout" else stopped
        handle = await job_type.submit(Pipes(str(begun), act.__name__))
        await asyncio.to_thread(begun.read_text)
        if cause == "cancel":
            await handle.cancel()
        if cause != "shutdown":
            await handle.wait(timeout=30)
    assert worker.counts == ({Event.COMPLETED: 1} if act is does_not_look else ENDS[cause])


async def test_what_a_timeout_stopped_has_failed_by_it(
    jobs: Gantline, stop_came: threading.Event
) -> None:
    _, handle = await stopped_once(jobs, "timeout", reads, "thread", stop_came)
    first, *_ = await jobs.store.history(handle.job_id, tenant_id=None)
    assert first.error is not None
    assert first.error.code == "TIMEOUT"
    assert await handle.result(timeout=30) == "whole"


async def test_what_a_shutdown_stopped_runs_again_without_a_cost(
    jobs: Gantline, stop_came: threading.Event
) -> None:
    _, handle = await stopped_once(jobs, "shutdown", reads, "thread", stop_came)
    assert (await handle.status()).status is JobStatus.QUEUED
    async with working(jobs):
        job = await handle.wait(timeout=30)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.COMPLETED, 1, 0)


@pytest.mark.parametrize("act", [reads, does_not_look])
async def test_only_a_completed_job_holds_its_key(
    jobs: Gantline, act: Act, stop_came: threading.Event
) -> None:
    _, handle = await stopped_once(jobs, "cancel", act, "thread", stop_came)
    again = await jobs.job_types[0].submit(None, idempotency_key="the key")
    assert (again.job_id == handle.job_id) is (act is does_not_look)


# -- the loops -----------------------------------------------------------------------------------


async def test_what_follows_a_loop_that_was_stopped_is_not_done(
    jobs: Gantline, stop_came: threading.Event
) -> None:
    has_begun = threading.Event()
    done: list[object] = []

    @jobs.job("any")
    def export(ctx: Context) -> None:
        for item in ctx.until_cancelled(range(3)):
            done.append(item)
            has_begun.set()
            stop_came.wait()
        done.append("the mail that says that all is done")

    async with working(jobs) as worker:
        handle = await export.submit(None)
        await asyncio.to_thread(has_begun.wait)
        await handle.cancel()
        await handle.wait(timeout=30)
    assert (done, worker.counts) == ([0], {Event.CANCELLED: 1})


async def test_a_stop_during_the_last_item_does_not_undo_a_loop(
    jobs: Gantline, stop_came: threading.Event
) -> None:
    is_last = threading.Event()

    @jobs.job("any")
    def export(ctx: Context) -> int:
        items = list(range(3))
        for item in ctx.until_cancelled(items):
            if item == items[-1]:
                is_last.set()
                stop_came.wait()
        return len(items)

    async with working(jobs) as worker:
        handle = await export.submit(None)
        await asyncio.to_thread(is_last.wait)
        await handle.cancel()
        assert await handle.result(timeout=30) == 3
    assert worker.counts == {Event.COMPLETED: 1}


async def test_an_asynchronous_loop_ends_at_its_next_item(jobs: Gantline) -> None:
    done: list[int] = []

    async def pages() -> AsyncIterator[int]:
        for page in range(3):
            with suppress(asyncio.CancelledError):  # a source that survives its cancellation
                await asyncio.Event().wait() if page == 1 else None
            yield page

    @jobs.job("any", timeout=_SOON)
    async def export(ctx: Context) -> None:
        async for page in ctx.until_cancelled(pages()):
            done.append(page)  # noqa: PERF401  # what was done before the stop is to be seen

    async with working(jobs) as worker:
        await (await export.submit(None, max_attempts=1)).wait(timeout=30)
    assert (done, worker.counts) == ([0], {Event.POISONED: 1})


async def test_loops_that_nobody_stops_give_all_items(jobs: Gantline) -> None:

    async def pages() -> AsyncIterator[int]:
        for page in range(3):
            yield page

    @jobs.job("any")
    async def export(ctx: Context) -> list[int]:
        ctx.raise_if_cancelled()
        found = list(ctx.until_cancelled([7, 8]))
        return found + [page async for page in ctx.until_cancelled(pages())]

    async with working(jobs):
        assert await (await export.submit(None)).result(timeout=30) == [7, 8, 0, 1, 2]


# -- what surrounds a handler --------------------------------------------------------------------


async def test_code_that_catches_every_exception_lets_the_stop_pass(
    jobs: Gantline, stop_came: threading.Event
) -> None:
    done: list[int] = []

    @jobs.job("any", timeout=_SOON)
    def export(ctx: Context) -> None:
        stop_came.wait()
        for item in range(3):
            try:
                ctx.raise_if_cancelled()
            except Exception:
                done.append(item)

    async with working(jobs) as worker:
        await (await export.submit(None, max_attempts=1)).wait(timeout=30)
    assert (done, worker.counts) == ([], {Event.POISONED: 1})


async def test_a_group_of_tasks_that_takes_the_stop_for_an_end_does_not_complete_the_job(
    jobs: Gantline,
) -> None:

    @jobs.job("any", timeout=_SOON)
    async def export(ctx: Context) -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

        async def part() -> None:
            ctx.raise_if_cancelled()

        async with asyncio.TaskGroup() as group:
            group.create_task(part())
        return "partial"

    async with working(jobs) as worker:
        await (await export.submit(None, max_attempts=1)).wait(timeout=30)
    assert worker.counts == {Event.POISONED: 1}


@pytest.mark.parametrize("act", [reads, does_not_look])
async def test_a_dependency_commits_only_what_a_handler_has_completed(
    jobs: Gantline, act: Act, stop_came: threading.Event
) -> None:
    said: list[str] = []

    def session() -> Iterator[str]:
        try:
            yield "session"
        except BaseException as error:
            said.append(type(error).__name__)
            raise
        said.append("committed")

    @jobs.job("any", timeout=_SOON)
    def export(ctx: Context, *, db: str = provide(session)) -> None:
        stop_came.wait()
        act(ctx)

    async with working(jobs):
        await (await export.submit(None, max_attempts=1)).wait(timeout=30)
    assert said == (["RunStopped"] if act is reads else ["committed"])


async def test_what_looks_after_the_handler_has_returned_does_not_undo_it(
    stop_came: threading.Event,
) -> None:
    seen: list[bool] = []

    @asynccontextmanager
    async def hook(ctx: Context) -> AsyncIterator[None]:
        yield
        seen.append(ctx.cancelled)

    jobs = Gantline("memory://", defaults=JobDefaults(hooks=(hook,)))

    @jobs.job("any", timeout=_SOON)
    def export() -> None:
        stop_came.wait()

    async with jobs, working(jobs) as worker:
        await (await export.submit(None)).wait(timeout=30)
    assert (seen, worker.counts) == ([True], {Event.COMPLETED: 1})


async def test_a_run_that_completed_itself_stays_completed(tmp_path: Path) -> None:
    jobs = Gantline(f"sqlite:///{tmp_path}/gantline.db")

    said: list[str] = []

    def session() -> Iterator[str]:
        yield "session"
        said.append("committed")

    @jobs.job("any", timeout=_SOON)
    async def export(ctx: Context, *, db: str = provide(session)) -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        async with ctx.transaction("whole"):
            pass
        return "partial" if ctx.cancelled else ""

    async with jobs, working(jobs) as worker:
        assert await (await export.submit(None)).result(timeout=30) == "whole"
    assert (said, worker.counts) == (["committed"], {Event.COMPLETED: 1})


async def test_a_handler_that_saw_that_its_lease_is_uncertain_is_called_again() -> None:
    line = Line("renew")
    jobs = Gantline(intercepted(MemoryStore(clock=FakeClock()), line.around))
    has_begun, main = asyncio.Event(), asyncio.get_running_loop()
    may_return, is_cut_off = threading.Event(), asyncio.Event()

    @jobs.job("any")
    def export(ctx: Context) -> str:
        if has_begun.is_set():
            return "whole"
        main.call_soon_threadsafe(has_begun.set)
        while not ctx.cancelled:
            may_return.wait(0.01)
        main.call_soon_threadsafe(is_cut_off.set)
        may_return.wait()
        return "partial"

    async with jobs, working(jobs, lease=timedelta(seconds=1)) as worker:
        handle = await export.submit(None)
        await has_begun.wait()
        line.is_cut = True
        await is_cut_off.wait()
        line.is_cut = False
        may_return.set()
        assert await handle.result(timeout=30) == "whole"
        job = await handle.status()
    assert (job.attempt, job.fence, worker.counts) == (1, 1, {Event.COMPLETED: 1})
