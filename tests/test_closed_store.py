"""A closed store: whatever works on it comes to rest, and goes on when it is opened again."""

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gantline import Gantline, WorkerSettings
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreClosed
from gantline.contract.job_event import JobEvent
from gantline.contract.query import JobFilter
from gantline.contract.retention import Retention
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint
from gantline.manager.maintenance import Maintenance
from gantline.manager.pruner import Pruner
from gantline.manager.switches import Switches
from gantline.moving.closing import reopen
from gantline.stores import store_from_url
from gantline.stores.memory import MemoryStore
from gantline.testing.conformance.bench import Bench
from gantline.testing.faults import Call, intercepted
from tests.ear import PATIENCE_SECONDS
from tests.harness import MemoryHarness
from tests.moving_stores import close, copied

QUICK = WorkerSettings(
    queues={"default": 10}, drain=timedelta(0), maintain_every=None, poll=timedelta(seconds=0.05)
)


class Listener:
    """Takes every event, and can be waited for."""

    name = "listener"

    def __init__(self) -> None:
        self.taken: list[UUID] = []
        self.came = asyncio.Event()

    async def consume(self, events: Sequence[JobEvent]) -> None:
        self.taken += [event.job.job_id for event in events]
        self.came.set()


class Watched:
    """A store whose calls are counted, and can be waited for."""

    def __init__(self, store: JobStore) -> None:
        self.calls: list[str] = []
        self._called = asyncio.Condition()
        self.store = intercepted(store, self._around)

    async def _around(self, verb: str, call: Call) -> Any:
        answer = await call()
        async with self._called:
            self.calls.append(verb)
            self._called.notify_all()
        return answer

    async def until(self, verb: str, times: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._called:
            await self._called.wait_for(lambda: self.calls.count(verb) >= times)


async def test_a_submit_is_refused_and_one_that_was_accepted_is_found() -> None:
    store = MemoryStore(clock=SystemClock())
    jobs = Gantline(store)

    @jobs.job("mail")
    async def mail(to: str) -> None: ...

    async with jobs:
        first = await mail.submit("a", idempotency_key="k")
        await close(store)
        jobs.switches.invalidate()
        with pytest.raises(StoreClosed, match="Try again later"):
            await mail.submit("b")
        again = await mail.submit("a", idempotency_key="k")
        assert (again.job_id, again.duplicate) == (first.job_id, True)
        await reopen(store)
        jobs.switches.invalidate()
        await mail.submit("b")


async def test_a_worker_neither_claims_nor_reads_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    watched = Watched(MemoryStore(clock=SystemClock()))
    listener = Listener()
    jobs = Gantline(watched.store)
    jobs.add_consumer(listener, from_start=True)

    @jobs.job("mail", events=("submitted",))
    async def mail(to: str) -> None: ...

    async with jobs:
        handle = await mail.submit("a")
        await close(watched.store)
        async with jobs.running(QUICK) as worker:
            # At the start they are read by the claimer and the consumer; then with every hint.
            for _ in range(6):
                jobs.wakeup.notify(Hint.SWITCHED)
                await watched.until("read_records", watched.calls.count("read_records") + 1)
            assert "claim" not in watched.calls
            assert "events" not in watched.calls
            assert worker.trouble() is None  # it is well: there is just nothing for it
            await reopen(watched.store)
            jobs.wakeup.notify(Hint.SWITCHED)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await listener.came.wait()
                await handle.wait()
        assert handle.job_id in listener.taken
    said = [line.message for line in caplog.records if line.message.startswith("The store is")]
    assert said == [
        "The store is closed, for its jobs are being moved to another one. Try again later. "
        "Nothing is claimed.",
        "The store is open again.",
    ]


async def test_runs_end_and_nothing_is_pruned() -> None:
    bench = await Bench.on(MemoryHarness())
    ended, _ = await bench.bring_to(JobStatus.COMPLETED)
    running = await bench.start()
    pruner = Pruner(
        bench.store, Switches(bench.store), retention=Retention.split(timedelta(0), timedelta(0))
    )
    await bench.let_leases_expire()
    await close(bench.store)
    report = await Maintenance(bench.store, Switches(bench.store), "leader").run_once()
    assert report is not None
    assert report.reaped.requeued == 1
    assert await bench.status(running.job.job_id) is JobStatus.QUEUED
    assert (await pruner.run_once()).jobs == 0
    await reopen(bench.store)
    pruner._switches.invalidate()
    assert (await pruner.run_once()).jobs == 1
    assert await bench.store.get([ended], tenant_id=None) == [None]


async def test_what_is_in_an_outbox_stays_there(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    jobs = Gantline("memory://", outbox=f"sqlite:///{file}")

    @jobs.job("mail")
    async def mail(to: str) -> None: ...

    async with jobs:
        assert jobs.outbox is not None
        connection = sqlite3.connect(file, check_same_thread=False)
        with connection:
            connection.execute("BEGIN")
            handle = await mail.submit("a", connection=connection)
        connection.close()
        await close(jobs.store)
        jobs.switches.invalidate()
        with pytest.raises(StoreClosed):
            await jobs.outbox.relay().run_once()
        assert await jobs.store.get([handle.job_id], tenant_id=None) == [None]
        await reopen(jobs.store)
        jobs.switches.invalidate()
        assert await jobs.outbox.relay().run_once() == 1
        assert await jobs.store.get([handle.job_id], tenant_id=None) != [None]


async def test_nothing_is_lost_or_doubled_while_all_go_on(tmp_path: Path) -> None:
    """Submitters and a worker that live through a copy: each job is in one place, and runs once."""
    old, new = (f"sqlite:///{tmp_path}/{name}.db" for name in ("old", "new"))
    ran: dict[str, list[int]] = {old: [], new: []}
    left, are_all_run = 0, asyncio.Event()
    accepted: list[int] = []
    refused = asyncio.Event()

    def application(url: str) -> tuple[Gantline, Any]:
        jobs = Gantline(url)

        @jobs.job("count")
        async def count(number: int) -> None:
            ran[url].append(number)
            if url == new and len(ran[new]) == left:
                are_all_run.set()

        return jobs, count

    async def submit_until_refused(job_type: Any, first: int) -> None:
        number = first
        while True:
            try:
                await job_type.submit(number)
            except StoreClosed:
                refused.set()
                return
            accepted.append(number)
            number += 1

    here, count = application(old)
    there, _ = application(new)
    async with here, there, asyncio.timeout(60):
        submitters = [asyncio.create_task(submit_until_refused(count, n * 10**6)) for n in range(3)]
        slow = WorkerSettings(queues={"default": 1}, maintain_every=None)
        async with here.running(slow):
            target = store_from_url(new, clock=SystemClock())
            await target.open()

            async def switched(store: JobStore) -> None:
                """As the hint does."""
                if store is here.store:
                    here.wakeup.notify(Hint.SWITCHED)

            done = await copied(
                here.store,
                target,
                wait=timedelta(seconds=20),
                grace=timedelta(seconds=2),
                notify_switched=switched,
            )
            await asyncio.gather(*submitters)
        await target.close()
        assert done.jobs == len(accepted)
        left = len(accepted) - len(ran[old])
        async with there.running(QUICK):
            await are_all_run.wait()
        job_filter = JobFilter(tenant_id=None, statuses=frozenset({JobStatus.COMPLETED}))
        page = await there.store.find(job_filter, limit=len(accepted) + 10)
    assert refused.is_set()
    assert sorted(ran[old] + ran[new]) == sorted(accepted)
    assert len(page.items) == len(accepted)
