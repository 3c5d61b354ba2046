"""The file of jobs is its owner's alone, from the moment it is there; one that was there stays."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gantline.contract.clock import SystemClock
from gantline.stores.diagnostics import advice_of
from gantline.stores.sqlite import open_store
from gantline.stores.sqlite.location import Location
from gantline.stores.sqlite.schema import SqliteMigrator
from gantline.testing.factories import make_new


@pytest.fixture(autouse=True, params=[0o022, 0o000], ids=["umask 022", "umask 000"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {file.name: oct(file.stat().st_mode & 0o777) for file in folder.iterdir()}


def url_of(file: Path) -> str:
    return f"sqlite:///{file}"


async def test_nobody_else_reads_the_file_its_log_or_its_index(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "jobs.db"), clock=SystemClock())
    await store.open()
    try:
        await store.insert([make_new()])
        assert modes(tmp_path) == dict.fromkeys(("jobs.db", "jobs.db-wal", "jobs.db-shm"), "0o600")
    finally:
        await store.close()
    assert modes(tmp_path) == {"jobs.db": "0o600"}


async def test_a_migration_alone_makes_it_so(tmp_path: Path) -> None:
    await SqliteMigrator(Location(tmp_path / "jobs.db")).migrate()
    assert modes(tmp_path) == {"jobs.db": "0o600"}


async def test_there_is_no_moment_at_which_others_could_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mode that is set afterwards is too late for who has opened it before."""
    connect, seen = sqlite3.connect, []

    def connecting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        seen.append(modes(tmp_path).get("jobs.db"))
        connection: sqlite3.Connection = connect(*arguments, **options)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connecting)
    store = open_store(url_of(tmp_path / "jobs.db"), clock=SystemClock())
    await store.open()
    await store.close()
    assert seen
    assert set(seen) == {"0o600"}


async def test_a_link_to_a_file_that_is_not_there_yet_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    store = open_store(url_of(tmp_path / "link.db"), clock=SystemClock())
    await store.open()
    await store.close()
    assert modes(tmp_path)["jobs.db"] == "0o600"


@pytest.mark.parametrize(
    ("mode", "is_good"), [(0o600, True), (0o660, True), (0o644, False), (0o606, False)]
)
async def test_a_file_that_was_there_keeps_its_mode_and_the_doctor_says_who_reads_it(
    tmp_path: Path, mode: int, is_good: bool
) -> None:
    """It may be an application's own, shared by a group on purpose."""
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE orders (id)")
    file.chmod(mode)
    store = open_store(url_of(file), clock=SystemClock())
    await store.open()
    try:
        await store.insert([make_new()])
        expected = dict.fromkeys(("shop.db", "shop.db-wal", "shop.db-shm"), oct(mode))
        assert modes(tmp_path) == expected
        (advice,) = await advice_of(store)
        assert advice.is_good is is_good
        assert is_good or f"chmod o-rwx {file}" in advice.next_step
    finally:
        await store.close()
