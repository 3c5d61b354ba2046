"""SQLite in bad places: each a clear error that names cause and next step, and nothing is lost."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.errors import (
    SchemaMismatch,
    StoreBusy,
    StoreCorrupt,
    StoreMisconfigured,
    StoreUnavailable,
)
from gantline.contract.results import Applied
from gantline.stores import store_from_url
from gantline.stores.memory import MemoryStore
from gantline.stores.sqlite import SqliteStore, open_store
from gantline.stores.sqlite.location import Location, check_location, file_system_of, parse_url
from gantline.testing.factories import make_new


def store_at(path: Path, **options: float) -> SqliteStore:
    return SqliteStore(Location(path, **options), clock=SystemClock())  # type: ignore[arg-type]  # busy_seconds alone


async def open_and_close(path: Path) -> None:
    store = store_at(path)
    await store.open()
    await store.close()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///gantline.db", "gantline.db"),
        ("sqlite:///data/jobs.db", "data/jobs.db"),
        ("sqlite:////var/lib/app/gantline.db", "/var/lib/app/gantline.db"),
        ("sqlite:///with%20space.db", "with space.db"),
    ],
)
def test_a_url_names_a_relative_or_an_absolute_file(url: str, path: str) -> None:
    assert parse_url(url) == Location(Path(path))


def test_a_url_has_options() -> None:
    location = parse_url("sqlite:///a.db?sync=normal&busy_seconds=2.5")
    assert (location.sync, location.busy_seconds) == ("normal", 2.5)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite://gantline.db",
        "sqlite:gantline.db",
        "sqlite:///:memory:",
        "sqlite:///a.db?sync=off",
        "sqlite:///a.db?busy_seconds=soon",
        "sqlite:///a.db?turbo=1",
        "sqlite:///a%00b.db",
        "memory://host/path",
        "oracle://host/db",
        "gantline.db",
        "",
    ],
)
def test_a_bad_url_is_refused_with_an_example_of_a_good_one(url: str) -> None:
    with pytest.raises(StoreMisconfigured) as caught:
        store_from_url(url, clock=SystemClock())
    assert caught.value.cause


def test_stores_are_found_by_the_scheme_of_their_url() -> None:
    assert isinstance(store_from_url("memory://", clock=SystemClock()), MemoryStore)
    assert isinstance(store_from_url("sqlite:///a.db", clock=SystemClock()), SqliteStore)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreMisconfigured, match=r"folder .*nowhere does not exist.* Create it"):
        await open_and_close(tmp_path / "nowhere" / "gantline.db")


async def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreMisconfigured, match="is a folder"):
        await open_and_close(tmp_path)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that another user may enter; into those of pytest only their owner may."""
    with TemporaryDirectory(prefix="gantline-test-") as folder:
        yield Path(folder)


def test_a_file_that_may_not_be_written_is_named(open_to_all: Path) -> None:
    """As another user, because root may write everywhere."""
    script = (
        "import os, asyncio, sys; from pathlib import Path\n"
        "from tests.test_sqlite_bad_input import open_and_close\n"
        "os.setuid(65534) if os.getuid() == 0 else None\n"
        "try: asyncio.run(open_and_close(Path(sys.argv[1])))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    (open_to_all / "gantline.db").touch()
    open_to_all.chmod(0o555)
    (open_to_all / "gantline.db").chmod(0o444)
    done = subprocess.run(
        [sys.executable, "-c", script, str(open_to_all / "gantline.db")],
        capture_output=True,
        text=True,
        check=True,
    )
    open_to_all.chmod(0o755)
    assert done.stdout.startswith("StoreMisconfigured")
    assert "cannot be written by this user. Give the user write access" in done.stdout


@pytest.mark.parametrize(
    "content",
    [
        b"this is no database, but a letter to my mother" * 100,
        b"SQLite format 3\0" + b"\xff" * 5000,
    ],
)
async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "letter.db"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"damaged or is not a SQLite database.*Keep a copy"):
        await open_and_close(path)
    assert path.read_bytes() == content


async def test_a_damaged_database_says_so_when_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "gantline.db"
    store = store_at(path)
    await store.open()
    await store.insert([make_new("x" * 2000) for _ in range(200)])
    await store.close()
    content = bytearray(path.read_bytes())
    content[8192 : len(content) - 4096] = b"\xaa" * (len(content) - 8192 - 4096)
    path.write_bytes(content)
    store = store_at(path)

    async def use() -> None:
        await store.open()
        await store.insert([make_new(1)])

    with pytest.raises(StoreCorrupt):
        await use()
    await store.close()


async def test_the_file_may_be_the_application_s_own(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE job (title TEXT)")
        connection.execute("CREATE TABLE log (line TEXT)")
        connection.execute("INSERT INTO job VALUES ('baker')")
    connection.close()
    await open_and_close(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT title FROM job").fetchall() == [("baker",)]
    connection.close()


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gantline.db"
    await open_and_close(path)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO gantline_migration VALUES (99, 'from_the_future', 'abc', 99, 'later')"
        )
    connection.close()
    with pytest.raises(SchemaMismatch, match=r"schema 99 \(from_the_future\).*Upgrade Gantline"):
        await open_and_close(path)


async def test_an_altered_migration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gantline.db"
    await open_and_close(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE gantline_migration SET checksum = 'other'")
    connection.close()
    with pytest.raises(SchemaMismatch, match="applied with another text"):
        await open_and_close(path)


async def test_a_locked_database_is_waited_for_then_named_and_works_again(tmp_path: Path) -> None:
    path = tmp_path / "gantline.db"
    store = store_at(path, busy_seconds=0.2)
    await store.open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    new = make_new(1)
    with pytest.raises(StoreBusy, match=r"locked by another program for more than 0.2 s"):
        await store.insert([new])
    assert await store.get([new.job.job_id], tenant_id=None) == [None]
    other.execute("ROLLBACK")
    other.close()
    assert await store.insert([new]) == [Applied(1)]
    await store.close()


async def test_a_full_disk_fails_the_write_and_keeps_what_was_there(tmp_path: Path) -> None:
    """Played by SQLite's own page limit, which gives the same error at the same place."""
    store = store_at(tmp_path / "gantline.db")
    await store.open()
    kept = make_new("kept")
    await store.insert([kept])

    def limit(connection: sqlite3.Connection) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    opened = store._opened
    assert opened is not None
    await opened.writer.run(limit)
    with pytest.raises(StoreUnavailable, match=r"disk .* is full.*Free some space"):
        await store.insert([make_new("x" * 60_000) for _ in range(20)])
    await opened.writer.run(lambda connection: connection.execute("PRAGMA max_page_count = 99999"))
    more = make_new("more")
    assert await store.insert([more]) == [Applied(1)]
    ids = [kept.job.job_id, more.job.job_id]
    assert all(await store.get(ids, tenant_id=None))
    await store.close()


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/export /srv/shared\\040files nfs4 rw 0 0
//server/share /mnt/windows cifs rw 0 0
tmpfs /srv/shared\\040files/local tmpfs rw 0 0
broken line
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/srv/shared files", "nfs4"),
        ("/srv/shared files/deep/er", "nfs4"),
        ("/srv/shared files/local", "tmpfs"),
        ("/srv/shared", "ext4"),
        ("/mnt/windows/jobs", "cifs"),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_its_innermost_mount(folder: str, kind: str) -> None:
    assert file_system_of(Path(folder), MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph"])
def test_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    mounts = f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path} {kind} rw 0 0\n"
    with pytest.raises(StoreMisconfigured, match=rf"network file system \({kind}\).*local disk"):
        check_location(Location(tmp_path / "gantline.db"), mounts=mounts)


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 0))
    with pytest.raises(StoreMisconfigured, match=r"3\.37\.0 is needed"):
        check_location(Location(tmp_path / "gantline.db"))


async def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/gantline.db", clock=SystemClock())
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.insert([make_new(1)])
    await store.open()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.ping()
    await store.close()


async def test_a_store_can_be_opened_again(tmp_path: Path) -> None:
    store = store_at(tmp_path / "gantline.db")
    new = make_new(1)
    await store.open()
    await store.insert([new])
    await store.close()
    await store.open()
    assert (await store.get([new.job.job_id], tenant_id=None))[0] is not None
    await store.close()
