"""Handles: who waits for a job hears of its end by a hint, and seldom reads the store."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from gantline import (
    Gantline,
    Handle,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStatus,
    Permanent,
    StoreUnavailable,
    SyncHandle,
)
from gantline.app import handle
from gantline.contract.wakeup import Hint
from gantline.wakeups import job_waiter as looking
from gantline.wakeups.job_waiter import JobWaiter
from gantline.wakeups.remote import Link, RemoteWakeup, WakeupPace

pytestmark = pytest.mark.matrix

_WORKER = """
import asyncio, pathlib, sys
from gantline import Gantline

jobs = Gantline(sys.argv[1])

@jobs.job("doubled")
async def doubled(value: int) -> int:
    return 2 * value

@jobs.job("gated")
async def gated(path: str) -> str:
    while not pathlib.Path(path).exists():
        await asyncio.sleep(0.005)
    return "from elsewhere"

async def main():
    async with jobs, jobs.running():
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


class Application:
    """One whose jobs end when the test says so; counts what is read of the store."""

    def __init__(self, store: str) -> None:
        self.jobs = Gantline(store)
        self.may_end = asyncio.Event()
        self.reads: list[Sequence[UUID]] = []

        @self.jobs.job("gated")
        async def gated(path: str) -> str:
            await self.may_end.wait()
            return path

        @self.jobs.job("refused")
        async def refused(value: int) -> int:
            raise Permanent("BAD", "for good")

        @self.jobs.job("doubled")
        async def doubled(value: int) -> int:
            return 2 * value

        self.gated, self.refused, self.doubled = gated, refused, doubled
        get = self.jobs.store.get

        async def counted(job_ids: Sequence[UUID], *, tenant_id: str | None) -> Any:
            self.reads.append(job_ids)
            return await get(job_ids, tenant_id=tenant_id)

        self.jobs.store.get = counted  # type: ignore[method-assign]  # counts

    async def until_a_worker_listens(self) -> None:
        await (await self.doubled.submit(1)).wait(60)
        self.reads.clear()

    @asynccontextmanager
    async def waiting(self, *handles: Handle[Any]) -> AsyncIterator[list["asyncio.Task[Any]"]]:
        """Those that wait for handles, once they have read what there is."""
        tasks = [asyncio.create_task(handle.result(60)) for handle in handles]
        async with asyncio.timeout(30):
            while not any(len(ids) == len(handles) for ids in self.reads[len(handles) :]):  # noqa: ASYNC110  # nothing tells it
                await asyncio.sleep(0.001)
        yield tasks
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(params=["sqlite", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/gantline.db"


@pytest.fixture
def by_hints_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Put looking without a hint off for so long that it could not be it."""

    def begin() -> None:
        for name in ("FIRST_LOOK", "LONGEST_LOOK", "LONGEST_LOOK_WITH_HINTS"):
            monkeypatch.setattr(looking, f"_{name}_SECONDS", 60.0)

    return begin


# -- by hints ------------------------------------------------------------------------------------


async def test_a_worker_of_this_process_ends_the_wait_by_its_hint(
    url: str, by_hints_only: Callable[[], None]
) -> None:
    app = Application(url)
    async with app.jobs, app.jobs.running():
        await app.until_a_worker_listens()
        by_hints_only()
        handle = await app.gated.submit("here")
        async with app.waiting(handle) as (task,):
            app.may_end.set()
            assert await task == "here"
    assert len(app.reads) <= 5


async def test_a_worker_of_another_process_ends_the_wait_by_its_hint(
    tmp_path: Path, by_hints_only: Callable[[], None]
) -> None:
    url, gate = f"sqlite:///{tmp_path}/gantline.db", tmp_path / "gate"
    app = Application(url)
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _WORKER, url), stdin=subprocess.PIPE
    )
    async with app.jobs:
        await app.until_a_worker_listens()
        by_hints_only()
        handle = await app.gated.submit(str(gate))
        async with app.waiting(handle) as (task,):
            gate.touch()
            assert await task == "from elsewhere"
    await worker.communicate(b"\n")
    assert len(app.reads) <= 5


async def test_a_thousand_who_wait_are_one_look(url: str) -> None:
    app = Application(url)
    async with app.jobs:
        handles = await app.gated.submit_many(["x"] * 1000)
        async with app.waiting(*handles) as tasks:
            alone = len(app.reads)
            app.may_end.set()
            async with app.jobs.running():
                assert await asyncio.gather(*tasks) == ["x"] * 1000
    assert alone <= 1005, "each looks once by himself, and then all together"
    assert len(app.reads) - alone < 200


async def test_who_waits_hears_of_a_cancel(url: str, by_hints_only: Callable[[], None]) -> None:
    app = Application(url)
    by_hints_only()
    async with app.jobs:
        handle = await app.gated.submit("x")
        async with app.waiting(handle) as (task,):
            assert await handle.cancel() is JobStatus.CANCELLED
            with pytest.raises(JobCancelled):
                await task


# -- without hints -------------------------------------------------------------------------------


class Deaf:
    is_listening = False

    async def open(self, on_hint: Any) -> None: ...

    def notify(self, hint: Hint = Hint.WORK, *, job_id: Any = None) -> None: ...

    async def close(self) -> None: ...


async def test_where_no_hint_comes_an_end_is_found_by_looking(url: str) -> None:
    app = Application(url)
    async with app.jobs, app.jobs.running():
        app.jobs.waiter = JobWaiter(app.jobs.store, Deaf)
        handle = await app.gated.submit("x")
        async with app.waiting(handle) as (task,):
            app.may_end.set()
            assert await task == "x"
        await app.jobs.waiter.close()


async def test_when_the_time_is_up_it_says_how_the_job_stands(url: str) -> None:
    app = Application(url)
    async with app.jobs:
        handle = await app.gated.submit("x")
        with pytest.raises(TimeoutError, match=r"is still Queued in .* after 0 s"):
            await handle.wait(0)
        with pytest.raises(TimeoutError, match=r"is still Queued in .* after 0.05 s"):
            await handle.wait(0.05)


async def test_a_handle_is_made_of_either_id(url: str) -> None:
    app, given = Application(url), uuid4()
    async with app.jobs:
        waiting = await app.doubled.submit(1, job_id=given, tenant="other")
        handle = await app.doubled.submit(21, job_id=given)
        again = await app.doubled.submit(21, job_id=given)
        assert (again.job_id, again.duplicate) == (handle.job_id, True)
        assert len({waiting.job_id, handle.job_id, given}) == 3
        assert await app.doubled.handle(given, tenant="other").cancel() is JobStatus.CANCELLED
        async with app.jobs.running():
            assert await app.doubled.handle(given).result(30) == 42
        assert (await app.jobs.get(given)).job.job_id == handle.job_id
        assert (await waiting.status()).status is JobStatus.CANCELLED
        with pytest.raises(JobNotFound):
            await app.doubled.handle(given, tenant="a third").status()


# -- who waits for what is not there, or no longer -----------------------------------------------


async def test_a_job_that_is_removed_meanwhile_is_not_found(url: str) -> None:
    app = Application(url)
    async with app.jobs:
        ended = await app.doubled.submit(1)
        await ended.cancel()
        with pytest.raises(JobNotFound):
            await app.doubled.handle(ended.job_id, tenant="another").wait(1)
        await app.jobs.manager.delete([ended.job_id], tenant_id=None)
        with pytest.raises(JobNotFound):
            await app.jobs.waiter.wait(ended.job_id, 60)
        assert await app.jobs.waiter.wait(ended.job_id, 0.05, is_on_its_way=True) is None


async def test_closing_the_application_lets_all_go_who_wait(url: str) -> None:
    app = Application(url)
    await app.jobs.open()
    handle = await app.gated.submit("x")
    async with app.waiting(handle) as (task,):
        await app.jobs.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await task


async def test_an_application_that_is_not_open_is_opened_by_a_handle(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gantline.db"
    first, second = Application(url), Application(url)
    async with first.jobs, first.jobs.running():
        job_id = (await first.doubled.submit(4)).job_id
        handle = second.doubled.handle(job_id)
        assert await handle.result(30) == 8
        assert (handle.job_id, handle.duplicate) == (job_id, False)
        with pytest.raises(JobNotFound):
            await second.doubled.handle(uuid4()).status()
    await second.jobs.close()


# -- several loops, and none ---------------------------------------------------------------------


async def test_who_blocks_a_thread_waits_beside_who_awaits(url: str) -> None:
    app = Application(url)
    async with app.jobs, app.jobs.running():
        handle = await app.gated.submit("x")
        in_thread = asyncio.create_task(asyncio.to_thread(SyncHandle(handle).result, 60))
        async with app.waiting(handle) as (task,):
            app.may_end.set()
            assert await task == await in_thread == "x"


def test_a_blocking_handle_says_and_does_the_same(tmp_path: Path) -> None:
    app = Application(f"sqlite:///{tmp_path}/gantline.db")
    first, bad, never = (
        app.doubled.submit_sync(21, subject="answer"),
        app.refused.submit_sync(1),
        app.doubled.submit_sync(1, queue="nobody-works-here"),
    )
    assert isinstance(first, SyncHandle)
    assert (first.subject_id, first.duplicate) == ("answer", False)
    assert first.status().status is JobStatus.QUEUED
    stop = threading.Event()
    worker = threading.Thread(target=lambda: asyncio.run(_work_until(app.jobs, stop.is_set)))
    worker.start()
    try:
        assert first.result(30) == 42
        assert first.wait(30).status is JobStatus.COMPLETED
        with pytest.raises(JobFailed, match=r"BAD.*`gantline job get \S+` shows why\."):
            bad.result(30)
        with pytest.raises(TimeoutError, match="still Queued"):
            never.wait(0.05)
        assert never.cancel(actor="me") is JobStatus.CANCELLED
        with pytest.raises(JobNotFound):
            SyncHandle(app.doubled.handle(uuid4())).status()
    finally:
        stop.set()
        worker.join()
        app.jobs.run_sync(app.jobs.close)


async def _work_until(jobs: Gantline, is_over: Callable[[], bool]) -> None:
    async with jobs.running():
        while not is_over():  # noqa: ASYNC110  # set in another thread
            await asyncio.sleep(0.01)


def test_a_blocking_handle_works_after_a_fork(tmp_path: Path) -> None:
    script = """
import os, sys
from tests.app_under_test import index, Document, make_app
app = make_app(sys.argv[1])
handle = index.submit_sync(Document("parent"))
handle.status()
pid = os.fork()
if pid == 0:
    os._exit(0 if handle.status().status == "Queued" and handle.cancel() == "Cancelled" else 1)
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status), handle.wait(30).status)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, f"sqlite:///{tmp_path}/gantline.db"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["0", "Cancelled"], done.stderr


def test_what_belongs_to_a_loop_goes_when_another_begins(tmp_path: Path) -> None:
    app = Application(f"sqlite:///{tmp_path}/gantline.db")

    async def wait_in_vain() -> None:
        handle = await app.gated.submit("x")
        with pytest.raises(TimeoutError):
            await handle.wait(0.01)

    for _ in range(3):
        asyncio.run(wait_in_vain())
    assert len(app.jobs.waiter._by_loop) == 1
    app.jobs.run_sync(app.jobs.close)


async def test_nobody_begins_to_wait_while_the_application_is_closed() -> None:
    app = Gantline("memory://")
    async with app:
        waiter = JobWaiter(app.store, app.new_wakeup, lambda: False)
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(10):
                await waiter.wait(uuid4(), None, is_on_its_way=True)


async def test_a_job_of_another_tenant_is_not_told_of_when_the_time_is_up() -> None:
    app = Gantline("memory://")

    @app.job("payroll")
    async def payroll(value: int) -> None: ...

    async with app:
        submitted = await payroll.submit(1, tenant="a")
        foreign: Handle[None] = Handle(app, submitted.job_id, "b", is_on_its_way=True)
        with pytest.raises(JobNotFound):
            await foreign.wait(0.05)


async def test_a_look_that_took_long_does_not_put_off_the_next_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an outage, waiters looked again only after several times its length."""
    monkeypatch.setattr("gantline.wakeups.job_waiter._PAUSE_PER_LOOK", 1e9)
    monkeypatch.setattr("gantline.wakeups.job_waiter._LONGEST_PAUSE_SECONDS", 0.01)
    app = Gantline("memory://")

    @app.job("work")
    async def work(value: int) -> None: ...

    async with app, app.running():
        async with asyncio.timeout(10):
            await (await work.submit(1)).wait()


@pytest.mark.parametrize("fault", ["hangs", "raises"])
async def test_who_cannot_listen_still_finds_the_end(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handles and HTTP requests stood still where the wake-up did not open."""
    monkeypatch.setattr(looking, "_LISTEN_WITHIN_SECONDS", 0.01)

    class Stuck(Deaf):
        async def open(self, on_hint: object) -> None:
            if fault == "raises":
                raise OSError("no more sockets")
            await asyncio.Event().wait()

    app = Gantline("memory://")

    @app.job("work")
    async def work(value: int) -> int:
        return value

    async with app, app.running():
        app.waiter = JobWaiter(app.store, Stuck)
        async with asyncio.timeout(10):
            assert await (await work.submit(1)).result() == 1


def test_a_wakeup_that_cannot_begin_says_so_instead_of_hanging() -> None:
    def make_link() -> Link:
        raise OSError("no more files")

    async def open_both() -> None:
        for on_hint in (None, lambda hint: None):
            wakeup = RemoteWakeup(
                make_link, what="wake-ups", pace=WakeupPace(), always_connected=False
            )
            async with asyncio.timeout(10):
                with pytest.raises(OSError, match="no more files"):
                    await wakeup.open(on_hint)
            await wakeup.close()

    asyncio.run(open_both())


def test_no_thread_goes_on_after_a_fork_before_all_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, has_begun, is_made = Gantline("memory://"), threading.Event(), threading.Event()

    def connect() -> None:
        has_begun.set()
        assert not is_made.wait(0.1), "another thread went on, or made it too"
        is_made.set()

    def use() -> bool:
        has_begun.wait(10)
        app._start_anew_after_a_fork()
        return is_made.is_set()

    monkeypatch.setattr(app, "_connect", connect)
    app._process = 0  # as a fork leaves it
    with ThreadPoolExecutor(6) as pool:
        others = [pool.submit(use) for _ in range(5)]
        app._start_anew_after_a_fork()
        assert all(other.result(10) for other in others)


async def test_who_waits_for_long_is_shown_what_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handle, "_NOTICE_SECONDS", 0.05)
    jobs = Gantline("memory://")

    @jobs.job("alone")
    async def alone() -> None: ...

    async with jobs:
        due, later = await alone.submit(), await alone.submit(delay=60)
        for waited in (due, later):
            with pytest.raises(TimeoutError, match=r"after 0\.2 s"):
                await waited.wait(0.2)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "gantline.app"]
    assert line == (
        f"Job {due.job_id} is still Queued in memory:// after 0.05 s. "
        "Does a worker run on the same store? `gantline doctor` shows it."
    )


async def test_who_waits_for_long_is_shown_the_file(tmp_path: Path) -> None:
    jobs = Gantline(f"sqlite:///{tmp_path}/jobs.db")

    @jobs.job("alone")
    async def alone() -> None: ...

    async with jobs:
        waited = await alone.submit()
        with pytest.raises(TimeoutError, match=f"in {tmp_path}/jobs.db after 0 s"):
            await waited.wait(0)
