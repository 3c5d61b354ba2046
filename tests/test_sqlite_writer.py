"""The writer: many callers, one commit; each fails alone, all hear the truth."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreError, StoreUnavailable
from gantline.contract.query import JobFilter
from gantline.contract.results import Applied
from gantline.stores.sqlite import SqliteStore
from gantline.stores.sqlite import threads as sqlite_threads
from gantline.stores.sqlite.connection import OpenedFile
from gantline.stores.sqlite.location import Location
from gantline.stores.sqlite.threads import Writer
from gantline.testing.conformance import Bench
from gantline.testing.factories import make_new
from tests.harness import SqliteHarness


def writer_of(path: Path) -> Writer:
    return Writer(Location(path), OpenedFile(path), name="test")


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[Writer]:
    writer = writer_of(tmp_path / "gantline.db")
    await writer.run(lambda connection: connection.execute("CREATE TABLE t (x UNIQUE)"))
    yield writer
    await asyncio.to_thread(writer.close)


def put(value: int) -> Callable[[sqlite3.Connection], int]:
    return lambda connection: connection.execute("INSERT INTO t VALUES (?)", (value,)).rowcount


async def values(writer: Writer) -> list[int]:
    return await writer.run(
        lambda connection: [row[0] for row in connection.execute("SELECT x FROM t ORDER BY x")]
    )


async def test_callers_that_wait_share_one_commit(tmp_path: Path) -> None:
    commits = 0

    def count() -> None:
        nonlocal commits
        commits += 1

    store = SqliteStore(
        Location(tmp_path / "gantline.db"), clock=SystemClock(), before_commit=count
    )
    await store.open()
    commits = 0
    answers = await asyncio.gather(*(store.insert([make_new(n)]) for n in range(100)))
    assert answers == [[Applied(1)]] * 100
    assert commits <= 10
    await store.close()


async def test_one_caller_s_error_does_not_touch_the_others(writer: Writer) -> None:
    def put_and_fail(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (50)")
        raise ZeroDivisionError

    answers = await asyncio.gather(
        writer.run(put(1)),
        writer.run(put_and_fail),
        writer.run(put(1)),
        writer.run(put(2)),
        return_exceptions=True,
    )
    assert answers[0] == answers[3] == 1
    assert isinstance(answers[1], ZeroDivisionError)
    assert isinstance(answers[2], StoreError)
    assert await values(writer) == [1, 2]


async def test_a_commit_that_fails_is_told_to_everyone_in_it(tmp_path: Path) -> None:
    broken = threading.Event()

    def break_if_asked() -> None:
        if broken.is_set():
            raise OSError("the disk is gone")

    store = SqliteStore(
        Location(tmp_path / "gantline.db"), clock=SystemClock(), before_commit=break_if_asked
    )
    await store.open()
    jobs = [make_new(n) for n in range(5)]
    broken.set()
    answers = await asyncio.gather(*(store.insert([new]) for new in jobs), return_exceptions=True)
    assert {type(answer) for answer in answers} == {OSError}
    assert await store.get([new.job.job_id for new in jobs], tenant_id=None) == [None] * 5
    broken.clear()
    assert await store.insert(jobs) == [Applied(1)] * 5
    await store.close()


async def test_a_caller_that_gives_up_harms_nobody(writer: Writer) -> None:
    waiting = asyncio.create_task(writer.run(put(1)))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await writer.run(put(2))
    assert 2 in await values(writer)


async def test_another_event_loop_may_call(writer: Writer) -> None:
    """The lease keeper has a loop of its own."""

    def in_a_thread() -> list[int]:
        async def write() -> list[int]:
            await writer.run(put(7))
            return await values(writer)

        return asyncio.run(write())

    assert await asyncio.to_thread(in_a_thread) == [7]


async def test_closing_finishes_what_was_handed_in(tmp_path: Path) -> None:
    writer = writer_of(tmp_path / "gantline.db")
    await writer.run(lambda connection: connection.execute("CREATE TABLE t (x UNIQUE)"))
    waiting = [asyncio.create_task(writer.run(put(n))) for n in range(200)]
    await asyncio.sleep(0)
    await asyncio.to_thread(writer.close)
    assert await asyncio.gather(*waiting) == [1] * 200
    with pytest.raises(StoreUnavailable, match="closed"):
        await writer.run(put(1))


async def test_a_claim_that_finds_no_suspect_does_not_write_beside_other_work() -> None:
    commits = 0

    def count() -> None:
        nonlocal commits
        commits += 1

    harness = SqliteHarness()
    bench = Bench(harness, await harness.open(before_commit=count))
    await bench.submit_many(3)
    assert len(await bench.claim(limit=1)) == 1
    commits = 0
    assert await bench.claim(suspects=(5,)) == []
    assert commits == 0
    assert len(await bench.claim(at_most={"test": 1})) == 1
    await bench.close()


async def test_an_idle_claim_does_not_write(tmp_path: Path) -> None:
    commits = 0

    def count() -> None:
        nonlocal commits
        commits += 1

    harness = SqliteHarness()
    bench = Bench(harness, await harness.open(before_commit=count))
    assert await bench.claim() == []
    commits = 0
    for _ in range(5):
        assert await bench.claim() == []
    assert commits == 0
    await bench.submit(job_type="full")
    commits = 0
    for _ in range(5):
        assert await bench.claim("test", "full", at_most={"full": 0}) == []
    assert commits == 0
    job_id = await bench.submit()
    assert [run.job.job_id for run in await bench.claim()] == [job_id]
    await bench.close()


async def test_a_claim_whose_caller_gave_up_first_is_not_made(tmp_path: Path) -> None:
    """Else a job that no handler ever ran would be counted as crashed."""
    harness = SqliteHarness()
    is_held, may_go_on = threading.Event(), threading.Event()
    may_go_on.set()

    def hold() -> None:
        is_held.set()
        may_go_on.wait(timeout=20)

    bench = Bench(harness, await harness.open(before_commit=hold))
    job_id = await bench.submit()
    is_held.clear()
    may_go_on.clear()
    busy = asyncio.create_task(bench.submit())
    await asyncio.to_thread(is_held.wait, 20)
    claiming = asyncio.create_task(bench.claim())
    await asyncio.sleep(0)
    claiming.cancel()
    may_go_on.set()
    await busy
    assert (await bench.snapshot(job_id)).fence == 0
    await bench.close()


async def test_an_error_that_is_kept_does_not_hold_a_snapshot(tmp_path: Path) -> None:
    store = SqliteStore(Location(tmp_path / "gantline.db"), clock=SystemClock())
    await store.open()
    opened = store._opened
    assert opened is not None
    await store.insert([make_new(number) for number in range(5)])

    def fail_with_an_open_cursor(connection: sqlite3.Connection) -> None:
        cursor = connection.execute("SELECT * FROM gantline_job")
        next(cursor)
        raise ZeroDivisionError

    kept = []
    for part in (opened.readers, opened.readers, opened.writer):
        with pytest.raises(ZeroDivisionError) as caught:
            await part.run(fail_with_an_open_cursor)
        kept.append(caught.value)
    await store.insert([make_new(6)])
    assert [lane.queued for lane in await store.counts(tenant_id=None)] == [6]
    assert kept
    await store.close()


async def test_what_no_future_can_hold_is_told_all_the_same(writer: Writer) -> None:
    def stop(connection: sqlite3.Connection) -> None:
        raise StopIteration

    answers = await asyncio.gather(writer.run(stop), writer.run(put(1)), return_exceptions=True)
    assert isinstance(answers[0], RuntimeError)
    assert answers[1] == 1


async def test_opening_at_once_and_giving_up_leave_nothing_behind(tmp_path: Path) -> None:
    before = _own_threads()
    store = SqliteStore(Location(tmp_path / "gantline.db"), clock=SystemClock())
    await asyncio.gather(*(store.open() for _ in range(3)))
    await store.insert([make_new(1)])
    await asyncio.gather(*(store.close() for _ in range(3)))
    opening = asyncio.create_task(store.open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with asyncio.timeout(10):
        while _own_threads() - before:  # noqa: ASYNC110  # threads end without a signal
            await asyncio.sleep(0.01)
    await store.open()
    await store.close()


async def test_the_log_stays_short_while_reads_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_threads, "_LONGEST_LOG_BYTES", 1_000_000)
    monkeypatch.setattr(sqlite_threads, "_COMMITS_PER_CHECK", 5)
    path = tmp_path / "gantline.db"
    store = SqliteStore(Location(path, sync="normal"), clock=SystemClock())
    await store.open()
    reading = True

    async def read() -> None:
        while reading:
            await store.find(JobFilter(), limit=50)

    readers = [asyncio.create_task(read()) for _ in range(4)]
    longest = 0
    for _ in range(60):
        await store.insert([make_new("x" * 2000) for _ in range(50)])
        longest = max(longest, path.with_name("gantline.db-wal").stat().st_size)
    reading = False
    await asyncio.gather(*readers)
    await store.close()
    assert longest < 5_000_000  # 18 MB without it


async def test_a_store_of_the_parent_is_refused_after_a_fork(writer: Writer) -> None:
    writer._process += 1  # as it looks to a child
    with pytest.raises(StoreUnavailable):
        await writer.run(put(1))
    writer._process -= 1


def _own_threads() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate() if thread.name.startswith("gantline")}
