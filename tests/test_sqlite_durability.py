"""Full sync: asked for by pragma, and seen in the calls that the process makes."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import which

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreUnavailable
from gantline.stores.sqlite import SqliteStore
from gantline.stores.sqlite.connection import connect_writer
from gantline.stores.sqlite.location import Location

FULL = 2
NORMAL = 1


@pytest.mark.parametrize(("sync", "level"), [("full", FULL), ("normal", NORMAL)])
def test_the_pragma_is_what_was_asked_for(tmp_path: Path, sync: str, level: int) -> None:
    connection = connect_writer(Location(tmp_path / "gantline.db", sync=sync))  # type: ignore[arg-type]  # of two texts
    assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_full_sync_is_the_default_and_survives_a_power_cut(tmp_path: Path) -> None:
    path = tmp_path / "gantline.db"
    store = SqliteStore(Location(path), clock=SystemClock())
    assert store.capabilities.durability == "power_loss"
    assert store.capabilities.survives("process")
    weaker = SqliteStore(Location(path, sync="normal"), clock=SystemClock())
    assert weaker.capabilities.durability == "process"
    assert not weaker.capabilities.survives("power_loss")


@pytest.mark.parametrize("is_replaced", [False, True], ids=["gone", "replaced"])
async def test_a_file_that_was_taken_away_is_no_store_any_more(
    tmp_path: Path, is_replaced: bool
) -> None:
    """What is written then is answered, and in no file that anybody can find."""
    path = tmp_path / "gantline.db"
    store = SqliteStore(Location(path), clock=SystemClock())
    await store.open()
    await store.ping()
    path.rename(tmp_path / "elsewhere.db")
    if is_replaced:
        path.touch()
    with pytest.raises(StoreUnavailable, match="while it was open"):
        await store.ping()
    path.unlink(missing_ok=True)
    (tmp_path / "elsewhere.db").rename(path)
    await store.ping()
    await store.close()


SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from gantline.contract.clock import SystemClock
from gantline.stores.sqlite import SqliteStore
from gantline.stores.sqlite.location import Location
from gantline.testing.factories import make_new

async def main(path, sync, one_by_one, at_once):
    store = SqliteStore(Location(Path(path), sync=sync), clock=SystemClock())
    await store.open()
    os.path.exists("/mark-before")
    for number in range(one_by_one):
        await store.insert([make_new(number)])
    os.path.exists("/mark-between")
    await asyncio.gather(*(store.insert([make_new(number)]) for number in range(at_once)))
    os.path.exists("/mark-after")
    await store.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


@pytest.fixture
def syncs_of(tmp_path: Path) -> Callable[[str, int, int], tuple[int, int]]:
    """Count the sync calls on the write-ahead log: one by one, and with all callers at once."""
    strace = which("strace")
    if strace is None:
        pytest.skip("strace is not installed")

    def count(sync: str, one_by_one: int, at_once: int) -> tuple[int, int]:
        trace = tmp_path / "trace"
        calls = "trace=fsync,fdatasync,stat,newfstatat"
        script = [sys.executable, "-c", SCRIPT, str(tmp_path / f"{sync}.db"), sync]
        subprocess.run(
            [strace, "-f", "-y", "-o", str(trace), "-e", calls, *script]
            + [str(number) for number in (one_by_one, at_once)],
            check=True,
        )
        before, between = trace.read_text().split("mark-between")
        first = before.split("mark-before")[-1]
        second = between.split("mark-after")[0]
        log = re.compile(r"f(?:data)?sync\(\d+<[^>]*-wal>")
        return len(log.findall(first)), len(log.findall(second))

    return count


def test_every_answered_write_was_synced(
    syncs_of: Callable[[str, int, int], tuple[int, int]],
) -> None:
    one_by_one, at_once = syncs_of("full", 20, 100)
    assert one_by_one >= 20
    # Group commit: a hundred callers share a few syncs, and there is at least one.
    assert 1 <= at_once <= 25


def test_the_weaker_setting_does_not_sync_each_write(
    syncs_of: Callable[[str, int, int], tuple[int, int]],
) -> None:
    one_by_one, _ = syncs_of("normal", 20, 1)
    assert one_by_one < 5
