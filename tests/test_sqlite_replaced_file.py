"""A file that is removed, replaced or emptied under a running store: nothing goes on unnoticed."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from gantline.contract.errors import StoreUnavailable
from gantline.contract.outcome import Success
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.manager.manager import Ending
from gantline.stores.sqlite import SqliteStore
from gantline.stores.sqlite.location import Location
from gantline.testing.clock import FakeClock
from gantline.testing.conformance import Bench
from gantline.testing.conformance.bench import LEASE
from gantline.testing.factories import make_new
from tests.harness import SqliteHarness

Harm = Callable[[Path], None]


def deleted(file: Path) -> None:
    file.unlink()


def renamed(file: Path) -> None:
    file.rename(file.with_name("away.db"))


def replaced_by_a_copy(file: Path) -> None:
    shutil.copy(file, file.with_name("copy.db"))
    file.with_name("copy.db").replace(file)


def replaced_by_an_empty_file(file: Path) -> None:
    file.with_name("empty.db").touch()
    file.with_name("empty.db").replace(file)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def deleted_with_its_log(file: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").unlink()


def without_its_log(file: Path) -> None:
    Path(f"{file}-wal").unlink()


def without_its_index(file: Path) -> None:
    Path(f"{file}-shm").unlink()


HARMS: tuple[Harm, ...] = (
    deleted,
    renamed,
    replaced_by_a_copy,
    replaced_by_an_empty_file,
    emptied,
    deleted_with_its_log,
    without_its_log,
    without_its_index,
)
every_harm = pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
refused = pytest.raises(StoreUnavailable, match="while it was open")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = await Bench.on(SqliteHarness())
    yield bench
    await bench.close()


def sqlite_of(store: JobStore) -> SqliteStore:
    assert isinstance(store, SqliteStore)
    return store


def path_of(bench: Bench) -> Path:
    return sqlite_of(bench.store).path


@every_harm
async def test_no_submit_is_acknowledged(bench: Bench, harm: Harm) -> None:
    other = await bench.another()
    await bench.submit()
    await other.submit()
    harm(path_of(bench))
    submits = [one.store.insert([make_new(n)]) for one in (bench, other) for n in range(8)]
    answers = await asyncio.gather(*submits, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}


@every_harm
async def test_nothing_is_claimed(bench: Bench, harm: Harm) -> None:
    await bench.submit()
    harm(path_of(bench))
    for _ in range(2):  # also where it would only look
        with refused:
            await bench.claim()


@every_harm
async def test_no_run_is_settled_or_renewed(bench: Bench, harm: Harm) -> None:
    run = await bench.start()
    harm(path_of(bench))
    with refused:
        await bench.store.renew(run.session, [run.ref], lease=LEASE)
    with refused:
        await bench.manager.settle([Ending(run, Success())])


@every_harm
async def test_no_record_is_written_and_nobody_leads(bench: Bench, harm: Harm) -> None:
    harm(path_of(bench))
    with refused:
        await bench.store.write_records([RecordWrite("space", "key", b"1")])
    with refused:
        await bench.store.lead("role", "owner", lease=LEASE)


@every_harm
async def test_reading_fails_and_so_does_the_ping(bench: Bench, harm: Harm) -> None:
    job_id = await bench.submit()
    harm(path_of(bench))
    with refused:
        await bench.store.ping()
    with refused:
        await bench.store.get([job_id], tenant_id=None)
    with refused:
        await bench.store.counts(tenant_id=None)


@every_harm
async def test_a_transaction_of_a_handler_does_not_begin(bench: Bench, harm: Harm) -> None:
    harm(path_of(bench))
    left = sorted(path_of(bench).parent.iterdir())
    with refused:
        async with bench.store.transaction():
            pytest.fail("it began")
    assert sorted(path_of(bench).parent.iterdir()) == left


@every_harm
async def test_a_transaction_of_a_handler_is_not_committed(bench: Bench, harm: Harm) -> None:
    with refused:
        async with bench.store.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE mine (x)")
            harm(path_of(bench))


@every_harm
async def test_a_job_is_not_taken_in_a_caller_s_transaction(bench: Bench, harm: Harm) -> None:
    with closing(sqlite3.connect(path_of(bench))) as connection:
        assert await bench.store.insert_in(connection, [make_new()]) == [Applied(1)]
        connection.rollback()
        harm(path_of(bench))
        with refused:
            await bench.store.insert_in(connection, [make_new()])


async def test_what_vanishes_while_a_batch_is_written_is_not_acknowledged() -> None:
    harness = SqliteHarness()
    bench = Bench(harness, await harness.open())
    file = path_of(bench)
    dying = bench.over(await harness.open(before_commit=lambda: file.unlink(missing_ok=True)))
    with refused:
        await dying.submit()
    await bench.close()


async def test_where_the_file_is_put_back_all_goes_on(bench: Bench) -> None:
    file, away = path_of(bench), path_of(bench).with_name("away.db")
    before = await bench.submit()
    file.rename(away)
    lost = make_new()
    with refused:
        await bench.store.insert([lost])
    away.rename(file)
    after = await bench.submit()
    assert {run.job.job_id for run in await bench.claim()} == {before, after}
    assert await bench.store.get([lost.job.job_id], tenant_id=None) == [None]


async def test_a_writer_that_connects_again_makes_no_new_file(bench: Bench) -> None:
    file = path_of(bench)
    sqlite_of(bench.store)._parts.writer._connection.close()
    deleted(file)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await bench.submit()
    assert not file.exists()


async def test_who_opens_the_store_afterwards_has_a_file_of_its_own(bench: Bench) -> None:
    await bench.submit()
    deleted_with_its_log(path_of(bench))
    later = await bench.another()
    job_id = await later.submit()
    assert await later.status(job_id) is JobStatus.QUEUED
    with refused:
        await bench.submit()
    assert [run.job.job_id for run in await later.claim()] == [job_id]


async def test_a_change_of_the_working_folder_is_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = await _opened(Path("jobs.db"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert await store.insert([make_new()]) == [Applied(1)]
    await store.ping()
    await store.close()


@pytest.mark.parametrize("name", ["jobs.db", "data/real.db", "data/real.db-wal"])
async def test_a_link_is_followed_to_the_file_and_to_what_is_beside_it(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "jobs.db").symlink_to(tmp_path / "data" / "real.db")
    store = await _opened(tmp_path / "jobs.db")
    assert await store.insert([make_new()]) == [Applied(1)]
    (tmp_path / name).unlink()
    with refused:
        await store.ping()
    await store.close()


async def _opened(path: Path) -> SqliteStore:
    store = SqliteStore(Location(path), clock=FakeClock())
    await store.open()
    return store
