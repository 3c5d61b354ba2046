"""The application object and its worker, on a real SQLite file and on memory."""

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict
from uuid import uuid4

import msgspec
import pydantic
import pytest

from gantline import (
    Context,
    Fixed,
    Gantline,
    Handle,
    InvalidInput,
    JobCancelled,
    JobDefaults,
    JobFailed,
    JobGroup,
    JobPoisoned,
    JobStatus,
    Permanent,
    QueueFull,
    StorageSettings,
    SubmitConflict,
    WorkerSettings,
    current_job,
    provide,
)
from gantline.contract.errors import (
    GantlineError,
    JobTypeDisabled,
    RunOver,
    StoreError,
    StoreMisconfigured,
)
from gantline.contract.query import JobFilter
from gantline.contract.status import DerivedState
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.manager.manager import Submitted
from gantline.manager.sessions import live_sessions
from gantline.manager.submitter import Submission
from gantline.testing.factories import make_job
from gantline.worker.worker import Worker
from tests.app_under_test import hang_in_process, in_process, make_app

pytestmark = pytest.mark.matrix

SECOND = timedelta(seconds=1)
EMPTY_KEY = DedupeKey(KeyKind.REQUEST, "default", "user", "")


@pytest.fixture(params=["sqlite", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/gantline.db"


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/gantline.db"


@asynccontextmanager
async def working(app: Gantline, **settings: Any) -> AsyncIterator[Worker]:
    """A worker beside the test; drained quickly at the end."""
    options: dict[str, Any] = {"queues": {"default": 10}, "drain": timedelta(0)} | settings
    async with app, app.working(WorkerSettings(**options)) as worker:
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await task


class Doc(msgspec.Struct):
    doc_id: str
    version: int = 1


async def test_a_job_is_submitted_run_and_its_result_read(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("index", subject="{doc_id}", idempotency_key="doc-{doc_id}-v{version}")
    async def index(doc: Doc, ctx: Context) -> dict[str, int]:
        assert current_job() is ctx
        await ctx.progress(50, "parsed")
        return {"length": len(doc.doc_id)}

    async with working(jobs):
        handle = await index.submit(Doc("d1"))
        assert await handle.result(timeout=10) == {"length": 2}
        job = await handle.status()
        assert (job.job.subject_id, job.job.idempotency_key) == ("d1", "doc-d1-v1")
        again = await index.submit(Doc("d1"))
        assert (again.job_id, again.duplicate) == (handle.job_id, True)
        with pytest.raises(SubmitConflict):
            await index.submit(Doc("other"), idempotency_key="doc-d1-v1")
    assert current_job() is None


async def test_the_function_stays_callable(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("double")
    async def double(value: int) -> int:
        """Twice."""
        return 2 * value

    assert await double(4) == 8
    assert double.__doc__ == "Twice."


async def test_outcomes_by_exception(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("for-good")
    async def for_good(value: int) -> None:
        raise Permanent("NO_SUCH_THING", "It is not there.")

    @jobs.job("always", retry=Fixed(every=timedelta(0), attempts=2))
    async def always(value: int) -> None:
        raise ConnectionError("10.0.0.7 refused")

    @jobs.job("exits", retry=Fixed(every=timedelta(0), attempts=1))
    async def exits(value: int) -> None:
        raise SystemExit(3)

    @jobs.job("fine")
    async def fine(value: int) -> int:
        return value

    async with working(jobs):
        with pytest.raises(JobFailed, match="NO_SUCH_THING, It is not there"):
            await (await for_good.submit(1)).result(timeout=10)
        handle = await always.submit(1)
        with pytest.raises(JobPoisoned) as caught:
            await handle.result(timeout=10)
        assert "10.0.0.7" not in str(caught.value)
        assert caught.value.status.attempt == 2
        with pytest.raises(JobPoisoned):
            await (await exits.submit(1)).result(timeout=10)
        assert await (await fine.submit(5)).result(timeout=10) == 5


async def test_a_timeout_is_a_failed_attempt(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("slow", timeout=timedelta(milliseconds=30), retry=Fixed(every=0 * SECOND, attempts=1))
    async def slow(value: None) -> None:
        await asyncio.Event().wait()

    async with working(jobs):
        with pytest.raises(JobPoisoned, match="TIMEOUT"):
            await (await slow.submit(None)).result(timeout=10)


async def test_a_running_job_is_cancelled_soon(url: str) -> None:
    jobs = Gantline(url)
    started = asyncio.Event()

    @jobs.job("long")
    async def long(value: None) -> None:
        started.set()
        await asyncio.Event().wait()

    async with working(jobs):
        handle = await long.submit(None)
        await asyncio.wait_for(started.wait(), 10)
        assert await handle.cancel(actor="me") is JobStatus.RUNNING
        with pytest.raises(JobCancelled):
            await handle.result(timeout=4)


async def test_a_thread_is_asked_to_stop_and_waited_for(url: str) -> None:
    jobs = Gantline(url)
    started, is_over = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @jobs.job("thread")
    def thread(value: None, ctx: Context) -> str:
        loop.call_soon_threadsafe(started.set)
        while not ctx.cancelled:
            pass
        is_over.set()
        return "partial"

    async with working(jobs):
        handle = await thread.submit(None)
        await asyncio.wait_for(started.wait(), 10)
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result(timeout=30)
        assert is_over.is_set()


async def test_process_handlers_can_be_killed(file_url: str) -> None:
    jobs = make_app(file_url)
    async with working(jobs):
        pid = await (await in_process.submit("pid")).result(timeout=20)
        assert pid != os.getpid()
        assert await (await in_process.submit("print")).result(timeout=10) == 0
        assert await (await in_process.submit("pid")).result(timeout=10) == pid
        with pytest.raises(JobPoisoned, match="HANDLER_PROCESS_DIED"):
            await (await in_process.submit("die", max_attempts=1)).result(timeout=10)
        with pytest.raises(JobPoisoned, match="TIMEOUT"):
            await (await hang_in_process.submit(None, max_attempts=1)).result(timeout=20)
        with pytest.raises(JobFailed, match="UNKNOWN"):
            await (await in_process.submit("what")).result(timeout=10)


def test_what_a_process_could_not_import_is_refused_when_declared() -> None:
    jobs = Gantline("memory://")
    with pytest.raises(InvalidInput, match="could not import"):

        @jobs.job("local", run_in="process")
        def local(value: int) -> int:
            return value


async def test_follow_ups_exist_if_the_run_completes(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("next")
    async def next_(value: int, ctx: Context) -> int:
        return value + 1

    @jobs.job("first")
    async def first(value: int, ctx: Context) -> str:
        follow_up = ctx.follow_up(next_, value)
        if value < 0:
            raise Permanent("NEGATIVE", "no")
        return str(follow_up)

    async with working(jobs) as worker:
        handle = await first.submit(1, correlation_id="request-7")
        follow_up = await handle.result(timeout=10)
        child = (await jobs.store.get([msgspec.convert(follow_up, type(uuid4()))], tenant_id=None))[
            0
        ]
        assert child is not None
        assert (child.job.parent_job_id, child.job.correlation_id) == (handle.job_id, "request-7")
        with pytest.raises(JobFailed):
            await (await first.submit(-1)).result(timeout=10)
        (lane,) = [
            lane for lane in await jobs.store.counts(tenant_id=None) if lane.job_type == "next"
        ]
        assert lane.queued + lane.running + lane.completed == 1
        assert worker.counts["discarded"] == 0


async def test_a_follow_up_is_of_the_same_tenant_owner_and_correlation(url: str) -> None:
    """Whoever may see the job sees what follows from it."""
    jobs = Gantline(url)

    @jobs.job("next")
    async def next_(value: int) -> None: ...

    @jobs.job("first")
    async def first(value: int, ctx: Context) -> None:
        ctx.follow_up(next_, value)
        ctx.follow_up(next_, value, owner="user:other")

    async with working(jobs):
        handle = await first.submit(1, tenant="acme", owner="user:alice", correlation_id="c")
        await handle.wait(timeout=10)
        job_filter = JobFilter(tenant_id="acme", job_types=frozenset({"next"}))
        page = await jobs.store.find(job_filter, limit=10)
        inherited, named = sorted(page.items, key=lambda job: job.job.created_by)
        assert (inherited.job.created_by, named.job.created_by) == ("user:alice", "user:other")
        assert {job.job.correlation_id for job in page.items} == {"c"}


async def test_once_makes_a_replayed_job_skip(url: str) -> None:
    jobs = Gantline(url)
    sent = []

    @jobs.job("mail")
    async def mail(address: str, ctx: Context) -> bool:
        if not await ctx.once(f"mail-{address}"):
            return False
        sent.append(address)
        return True

    async with working(jobs):
        assert await (await mail.submit("a")).result(timeout=10) is True
        assert await (await mail.submit("a")).result(timeout=10) is False
        assert await (await mail.submit("b")).result(timeout=10) is True
    assert sent == ["a", "b"]


class Model(pydantic.BaseModel):
    name: str
    size: int = pydantic.Field(ge=1)


@dataclass
class Data:
    name: str
    size: int


class Typed(TypedDict):
    name: str
    size: int


PAYLOADS: list[tuple[Any, Any, Any]] = [
    (Model, Model(name="x", size=2), Model.model_construct(name="x", size=0)),
    (Data, Data("x", 2), Data("x", "two")),  # type: ignore[arg-type]  # wrong on purpose
    (Typed, {"name": "x", "size": 2}, {"name": "x"}),
    (Doc, Doc("x", 2), Doc("x", "two")),  # type: ignore[arg-type]  # wrong on purpose
    (list[int], [1, 2], ["one"]),
]


@pytest.mark.parametrize(("kind", "good", "bad"), PAYLOADS, ids=lambda part: str(part)[:30])
async def test_payloads_are_validated_at_submit_and_at_run(kind: Any, good: Any, bad: Any) -> None:
    jobs = Gantline("memory://")

    async def handle(payload: Any) -> str:
        return type(payload).__name__

    handle.__annotations__["payload"] = kind
    job = jobs.job("typed")(handle)
    async with working(jobs):
        name = type(good).__name__
        assert await (await job.submit(good)).result(timeout=10) == name
        with pytest.raises(InvalidInput, match="not valid"):
            await job.submit(bad)
        # One that another program submitted, of the wrong shape.
        raw = msgspec.structs.replace(job.prepare(good).job, payload=msgspec.Raw(b'"odd"'))
        fresh = msgspec.structs.replace(raw, job_id=uuid4())
        (answer,) = await jobs.manager.submit([Submission(fresh)])
        assert isinstance(answer, Submitted)
        stranger: Handle[None] = Handle(jobs, fresh.job_id, "default")
        with pytest.raises(JobFailed, match="VALIDATION_ERROR"):
            await stranger.result(timeout=10)


async def test_an_older_payload_is_upgraded_and_a_newer_one_waits(url: str) -> None:
    old = Gantline(url)

    @old.job("versioned")
    async def versioned_1(payload: dict[str, int]) -> int:
        return payload["a"]

    store = old.store
    new = Gantline(store)

    def upgrade(payload: Any, version: int) -> Any:
        return {"b": payload["a"] + version}

    @new.job("versioned-2", aliases=("versioned",), version=2, upgrade=upgrade)
    async def versioned_2(payload: dict[str, int]) -> int:
        return payload["b"]

    async with old:
        first = await versioned_1.submit({"a": 10})
        async with working(new):
            assert await first.result(timeout=10) == 11
            second = await versioned_2.submit({"b": 5})
            assert await second.result(timeout=10) == 5


async def test_a_type_nobody_handles_waits_and_harms_nobody(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("known")
    async def known(value: int) -> int:
        return value

    async with working(jobs):
        stranger = make_job(1, job_type="unknown here")
        await jobs.manager.submit([Submission(stranger)])
        assert await (await known.submit(2)).result(timeout=10) == 2
        waiting: Handle[None] = Handle(jobs, stranger.job_id, "default")
        assert (await waiting.status()).status is JobStatus.QUEUED


async def test_a_drain_gives_leases_back_and_burns_no_attempt(url: str) -> None:
    jobs = Gantline(url)
    started: asyncio.Queue[None] = asyncio.Queue()

    @jobs.job("long")
    async def long(value: int) -> None:
        started.put_nowait(None)
        await asyncio.Event().wait()

    async with jobs:
        async with working(jobs) as worker:
            handles = await long.submit_many(range(8))
            for _ in handles:
                await asyncio.wait_for(started.get(), 10)
        await jobs.open()
        for handle in handles:
            job = await handle.status()
            assert (job.status, job.attempt, job.crashes) == (JobStatus.QUEUED, 0, 0)
        assert worker.counts["released"] == 8
        assert await live_sessions(jobs.store) == []


async def test_a_type_s_limit_holds_inside_a_process(url: str) -> None:
    jobs = Gantline(url)
    running = most = 0

    @jobs.job("limited", concurrency=2)
    async def limited(value: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    async with working(jobs):
        for handle in await limited.submit_many(range(20)):
            await handle.result(timeout=10)
    assert most == 2


async def test_dependencies_hooks_and_lifespan_surround_a_run(url: str) -> None:
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Gantline) -> AsyncIterator[str]:
        told.append("open")
        yield "state"
        told.append("close")

    @asynccontextmanager
    async def hook(ctx: Context) -> AsyncIterator[None]:
        told.append("before")
        yield
        told.append("after")

    async def connection(ctx: Context) -> AsyncIterator[str]:
        yield f"connection of {ctx.state}"
        told.append("connection closed")

    jobs = Gantline(url, lifespan=lifespan, defaults=JobDefaults(hooks=[hook]))

    @jobs.job("with")
    async def handler(value: int, *, db: str = provide(connection)) -> str:
        told.append("run")
        return f"{db}, {value}"

    async with working(jobs):
        assert await (await handler.submit(3)).result(timeout=10) == "connection of state, 3"
    assert told == ["open", "before", "run", "connection closed", "after", "close"]


def test_a_template_over_what_the_payload_has_not_is_refused() -> None:
    jobs = Gantline("memory://")
    with pytest.raises(InvalidInput, match="names nope"):

        @jobs.job("c", subject="{nope}")
        async def c(doc: Doc) -> None: ...

    with pytest.raises(InvalidInput, match="plain field names"):

        @jobs.job("d", subject="{doc_id.__class__}")
        async def d(doc: Doc) -> None: ...


def test_a_name_has_one_handler() -> None:
    jobs = Gantline("memory://")

    @jobs.job("same")
    async def one(value: int) -> None: ...

    with pytest.raises(InvalidInput, match="twice"):

        @jobs.job("same")
        async def two(value: int) -> None: ...


async def test_a_group_is_declared_apart_and_included(url: str) -> None:
    group = JobGroup(queue="documents")

    @group.job("grouped")
    async def grouped(value: int) -> int:
        return value

    jobs = Gantline(url, include=[group])
    async with working(jobs, queues=jobs.default_queues()):
        handle = await grouped.submit(3)
        assert await handle.result(timeout=10) == 3
        assert (await handle.status()).job.queue == "documents"


async def test_a_group_in_two_applications_works_in_both() -> None:
    group = JobGroup()
    seen: list[int] = []

    @group.job("shared")
    async def shared(value: int, ctx: Context) -> int:
        seen.append(value)
        if value < 10:
            ctx.follow_up(shared, 10 * value)
        return value

    with pytest.raises(GantlineError, match=r"belongs to no application yet.*include=\[group\]"):
        await shared.submit(0)
    one = Gantline("memory://", include=[group])
    two = Gantline("memory://", include=[group], defaults=JobDefaults(queue="of-two"))
    other = Gantline("memory://")
    async with working(one), working(two, queues=two.default_queues()):
        assert shared.app is two  # the last that has included it
        with pytest.raises(InvalidInput, match="not in this application"):
            shared.of(other)
        for number, app, queue in ((1, one, "default"), (2, two, "of-two")):
            handle = await shared.of(app).submit(number)
            assert await handle.result(timeout=10) == number
            assert (await handle.status()).job.queue == queue
            assert handle.app is app
            (followed,) = [job async for job in app.find() if job.job.job_id != handle.job_id]
            assert followed.job.queue == queue
    assert {1, 2} <= {*seen}


async def test_delay_and_options_reach_the_job(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("later")
    async def later(value: int) -> None: ...

    async with jobs:
        handle = await later.submit(
            1, delay=timedelta(hours=1), priority=0, tenant="t", owner="me", queue="q"
        )
        job = await handle.status()
        assert job.derived(jobs.clock.now()) is DerivedState.SCHEDULED
        assert (job.priority, job.job.tenant_id, job.job.created_by) == (0, "t", "me")
        with pytest.raises(InvalidInput, match="priority"):
            await later.submit(1, priority=7)


async def test_many_callers_share_writes(file_url: str) -> None:
    jobs = Gantline(file_url)

    @jobs.job("n")
    async def n(value: int) -> None: ...

    async with jobs:
        handles = await asyncio.gather(*(n.submit(value) for value in range(300)))
        assert len({handle.job_id for handle in handles}) == 300
        (lane,) = await jobs.store.counts(tenant_id=None)
        assert lane.queued == 300


async def test_many_callers_share_wake_ups(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Gantline(file_url)
    notified: list[None] = []
    monkeypatch.setattr(jobs.wakeup, "notify", lambda **_: notified.append(None))

    @jobs.job("n")
    async def n(value: int) -> None: ...

    async with jobs:
        await asyncio.gather(*(n.submit(value) for value in range(300)))
        # One per write; how many writes there are depends on how busy the machine is.
        assert 1 <= len(notified) <= 30


async def test_a_job_in_the_caller_s_transaction_lives_and_dies_with_it(
    file_url: str, tmp_path: Path
) -> None:
    jobs = Gantline(file_url)

    @jobs.job("order")
    async def order(value: int) -> None: ...

    async with jobs:
        connection = sqlite3.connect(tmp_path / "gantline.db")
        connection.execute("CREATE TABLE orders (n)")
        connection.execute("INSERT INTO orders VALUES (1)")
        lost = await order.submit(1, connection=connection)
        connection.rollback()
        connection.execute("INSERT INTO orders VALUES (2)")
        kept = await order.submit(2, connection=connection)
        connection.commit()
        connection.close()
        found = await jobs.store.get([lost.job_id, kept.job_id], tenant_id=None)
        assert [job is not None for job in found] == [False, True]
        alone = sqlite3.connect(tmp_path / "gantline.db", isolation_level=None)
        with pytest.raises(StoreMisconfigured, match="no transaction to join"):
            await order.submit(3, connection=alone)
        alone.execute("BEGIN")
        bad = msgspec.structs.replace(order.prepare(4), request_key=EMPTY_KEY)
        with pytest.raises(StoreError):
            await jobs.store.insert_in(alone, [order.prepare(5), bad])
        alone.execute("COMMIT")
        alone.close()
        (lane,) = await jobs.store.counts(tenant_id=None)
        assert lane.queued == 1
        stranger = sqlite3.connect(tmp_path / "other.db")
        with pytest.raises(StoreMisconfigured, match="not open on"):
            await order.submit(3, connection=stranger)
        stranger.close()


async def test_an_option_that_there_is_not_is_refused() -> None:
    jobs = Gantline("memory://")

    @jobs.job("plain")
    async def plain(value: int) -> None: ...

    with pytest.raises(InvalidInput, match=r"'prioritty'.*'priority'"):
        await plain.submit(1, prioritty=1)  # type: ignore[call-overload]  # misspelt on purpose


async def test_a_check_of_payloads_sees_them_as_json_says_them() -> None:
    seen: list[Any] = []
    defaults = JobDefaults(payload_check=lambda job_type, data: seen.append(data))
    jobs = Gantline("memory://", defaults=defaults)

    @jobs.job("plain")
    async def plain(value: dict[int, tuple[int, int]]) -> None: ...

    async with jobs:
        await plain.submit({7: (1, 2)})
    assert seen == [{"7": [1, 2]}]


def test_submit_from_code_that_is_not_async(file_url: str) -> None:
    jobs = Gantline(file_url)

    @jobs.job("sync")
    async def sync(value: int) -> None: ...

    handles = [sync.submit_sync(value) for value in range(3)]
    assert handles[0].status().status is JobStatus.QUEUED
    jobs.run_sync(jobs.close)


def test_a_fork_after_first_use_starts_anew(tmp_path: Path) -> None:
    """As gunicorn does with preload: the parent has submitted, then the children do."""
    script = """
import os, sys
from tests.app_under_test import index, Document, make_app
app = make_app(sys.argv[1])
index.submit_sync(Document("parent"))
pid = os.fork()
if pid == 0:
    index.submit_sync(Document("child"))
    os._exit(0)
_, status = os.waitpid(pid, 0)
index.submit_sync(Document("parent again"))
counts = app.run_sync(lambda: app.store.counts(tenant_id=None))
print(os.waitstatus_to_exitcode(status), counts[0].queued)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, f"sqlite:///{tmp_path}/gantline.db"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["0", "3"]


async def test_what_is_required_of_a_store_is_checked_at_the_start() -> None:
    jobs = Gantline("memory://", storage=StorageSettings(durability="power_loss"))
    with pytest.raises(StoreMisconfigured, match=r"requires durability 'power_loss'"):
        await jobs.open()


async def test_a_paused_queue_is_left_alone_and_a_disabled_type_fails(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("switched")
    async def switched(value: int) -> int:
        return value

    async with jobs:
        await jobs.switches.pause_queue("default")
        handle = await switched.submit(1)
        async with working(jobs, poll=timedelta(milliseconds=20)):
            with pytest.raises(TimeoutError):
                await handle.wait(timeout=0.2)
            await jobs.switches.pause_queue("default", paused=False)
            assert await handle.result(timeout=10) == 1
        await jobs.open()
        handle = await switched.submit(2)
        await jobs.switches.disable_type("switched")
        with pytest.raises(JobTypeDisabled, match="gantline type enable switched"):
            await switched.submit(3)
        async with working(jobs):
            with pytest.raises(JobFailed, match="JOB_TYPE_DISABLED"):
                await handle.result(timeout=10)


async def test_a_full_queue_refuses_more(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("capped", max_depth=3)
    async def capped(value: int) -> None: ...

    async with jobs:
        await capped.submit_many(range(2))
        await capped.submit(2)
        with pytest.raises(QueueFull, match="3 jobs of type 'capped' may wait"):
            await capped.submit(3)
        with pytest.raises(QueueFull):
            await capped.submit_many(range(2))
        (lane,) = await jobs.store.counts(tenant_id=None)
        assert lane.queued == 3


async def test_a_cap_of_one_job_speaks_of_one(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("capped", max_depth=1)
    async def capped(value: int) -> None: ...

    async with jobs:
        await capped.submit(1)
        with pytest.raises(QueueFull, match="1 job of type 'capped' may wait, and no more"):
            await capped.submit(2)


async def test_what_is_there_already_takes_no_room_below_the_cap(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("capped", max_depth=3, idempotency_key=str)
    async def capped(value: int) -> None: ...

    async with jobs:
        for _ in range(5):
            await capped.submit(1)
            with pytest.raises(SubmitConflict):
                await capped.submit(2, idempotency_key="1")
        await capped.submit_many([1, 1])
        await capped.submit_many([2, 3])
        (lane,) = await jobs.store.counts(tenant_id=None)
        assert lane.queued == 3


async def test_a_worn_out_worker_stops_by_itself(url: str) -> None:
    jobs = Gantline(url)

    @jobs.job("n")
    async def n(value: int) -> None: ...

    async with jobs, jobs.working(WorkerSettings(recycle_after_jobs=5)) as worker:
        await n.submit_many(range(20))
        async with asyncio.timeout(20):
            await worker.run()
    assert worker.counts["completed"] >= 5


async def test_a_handler_s_writes_and_its_completion_are_one_transaction(
    file_url: str, tmp_path: Path
) -> None:
    jobs = Gantline(file_url)

    @jobs.job("next")
    async def next_(value: int) -> None: ...

    @jobs.job("book")
    async def book(value: int, ctx: Context) -> None:
        async with ctx.transaction(result={"booked": value}) as connection:
            connection.execute("INSERT INTO bookings VALUES (?)", (value,))
            ctx.follow_up(next_, value)
            if value < 0:
                raise Permanent("NEGATIVE", "no")

    def bookings() -> list[int]:
        with closing(sqlite3.connect(tmp_path / "gantline.db")) as connection:
            return [row[0] for row in connection.execute("SELECT n FROM bookings")]

    async with working(jobs) as worker:
        with closing(sqlite3.connect(tmp_path / "gantline.db")) as connection:
            connection.execute("CREATE TABLE bookings (n)")
        handle: Handle[Any] = await book.submit(7)
        job = await handle.wait(timeout=10)
        assert job.last is not None
        assert (job.status, job.last.result) == (JobStatus.COMPLETED, b'{"booked":7}')
        with pytest.raises(JobFailed):
            await (await book.submit(-1)).result(timeout=10)
        assert bookings() == [7]
        assert worker.counts["discarded"] == 0
        lanes = {lane.job_type: lane for lane in await jobs.store.counts(tenant_id=None)}
        assert lanes["next"].queued + lanes["next"].running + lanes["next"].completed == 1


async def test_after_its_transaction_a_job_has_ended_and_writes_nothing_more(
    file_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = Gantline(file_url)

    @jobs.job("twice")
    async def twice(value: int, ctx: Context) -> str:
        async with ctx.transaction(result="first") as connection:
            connection.execute("CREATE TABLE first (n)")
        async with ctx.transaction() as connection:
            connection.execute("CREATE TABLE second (n)")
        return "second"

    async with working(jobs, drain=timedelta(seconds=10)):
        handle = await twice.submit(1)
        assert await handle.result(timeout=10) == "first"
    with closing(sqlite3.connect(tmp_path / "gantline.db")) as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    assert names & {"first", "second"} == {"first"}
    assert "which was completed already" in caplog.text


@pytest.mark.parametrize("what", ["transaction", "once"])
async def test_what_must_be_awaited_is_refused_in_a_thread_in_plain_words(
    file_url: str, what: str
) -> None:
    """`if ctx.once(…)` would always be true there, and `with ctx.transaction()` a riddle."""
    jobs = Gantline(file_url)

    @jobs.job("threaded")
    def threaded(value: str, ctx: Context) -> None:
        getattr(ctx, value)("key")

    async with working(jobs):
        handle = await threaded.submit(what)
        with pytest.raises(JobFailed, match=rf"ctx\.{what}\(\) needs an `async def` handler"):
            await handle.result(timeout=10)
        job = await handle.status()
        assert job.last is not None
        assert job.last.error is not None
        assert job.last.error.code == "CONFIGURATION_ERROR"


async def test_a_zombie_s_writes_are_rolled_back(file_url: str, tmp_path: Path) -> None:
    jobs = Gantline(file_url)
    started, may_write = asyncio.Event(), asyncio.Event()
    errors: list[BaseException] = []

    @jobs.job("zombie")
    async def zombie(value: int, ctx: Context) -> None:
        if ctx.fence > 1:
            return
        started.set()
        await may_write.wait()
        try:
            async with ctx.transaction() as connection:
                connection.execute("INSERT INTO bookings VALUES (?)", (value,))
        except BaseException as error:
            errors.append(error)
            raise

    async with working(jobs, lease=timedelta(seconds=4)):  # looked for every second
        with closing(sqlite3.connect(tmp_path / "gantline.db")) as connection:
            connection.execute("CREATE TABLE bookings (n)")
        handle = await zombie.submit(1)
        await asyncio.wait_for(started.wait(), 10)
        # As if its lease had run out: the store gives the job to somebody else.
        with closing(sqlite3.connect(tmp_path / "gantline.db")) as connection:
            connection.execute("UPDATE gantline_lease SET token = randomblob(16), until = 0")
            connection.commit()
        may_write.set()
        await handle.wait(timeout=20)
    # Told by the commit, or by the lease keeper where that looked first.
    assert [type(error) in (RunOver, asyncio.CancelledError) for error in errors] == [True]
    with closing(sqlite3.connect(tmp_path / "gantline.db")) as connection:
        assert connection.execute("SELECT count(*) FROM bookings").fetchone() == (0,)


async def test_a_cancelled_submit_harms_nobody(url: str) -> None:
    """The job may have been stored or not, as after a lost connection; the others are."""
    jobs = Gantline(url)

    @jobs.job("n")
    async def n(value: int) -> int:
        return value

    async with working(jobs):
        submits = [asyncio.create_task(n.submit(value)) for value in range(20)]
        await asyncio.sleep(0)
        for submit in submits[::2]:
            submit.cancel()
        answers = await asyncio.gather(*submits, return_exceptions=True)
        for value, answer in enumerate(answers):
            if value % 2:
                assert isinstance(answer, Handle)
                assert await answer.result(timeout=10) == value
        assert await (await n.submit(99)).result(timeout=10) == 99


async def test_nothing_of_a_run_is_kept_once_it_has_ended(url: str) -> None:
    """Its deadline is minutes away; at thousands of jobs a second nobody could wait for that."""
    app = Gantline(url)
    contexts: list[weakref.ref[Context]] = []

    @app.job("remembered")
    async def remembered(payload: int, ctx: Context) -> None:
        contexts.append(weakref.ref(ctx))

    async with working(app) as worker:
        for handle in await remembered.submit_many([1, 2, 3]):
            await handle.wait(timeout=10)
    gc.collect()
    assert worker.counts["completed"] == 3
    assert [context() for context in contexts] == [None] * 3
