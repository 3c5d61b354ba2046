"""A worker of several processes: whatever happens to one of them, jobs go back or are completed."""

import os
import signal
import sqlite3
from contextlib import closing, suppress
from uuid import UUID

import pytest

from gantline.contract.status import Event
from gantline.contract.store import JobStore
from tests.cli.conftest import Place, Program

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(60)]

SHOP = """
import asyncio
import threading
from pathlib import Path
from gantline import Gantline

jobs = Gantline()

@jobs.job("hold")
async def hold(flag: str) -> None:
    while not Path(flag).exists():
        await asyncio.sleep(0.02)

@jobs.job("never-returns")
def never_return(value: int) -> None:
    threading.Event().wait()
"""


@pytest.fixture
def shop(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    (place.folder / "shop.py").write_text(SHOP)
    monkeypatch.setenv("GANTLINE_POLL_SECONDS", "0.1")
    return place


def hold(shop: Place, flag: str) -> str:
    """Submit a job that runs until a file is there."""
    return shop.submit("hold", f'"{shop.folder / flag}"')


def until_running(shop: Place, *job_ids: str) -> None:
    shop.eventually(
        lambda: all(shop.status(job_id) == "Running" for job_id in job_ids), "the jobs run"
    )


def child_pids(shop: Place) -> list[int]:
    return sorted(session["pid"] for session in shop.json("sessions"))


def events(shop: Place, job_id: str) -> list[Event]:
    async def read(store: JobStore) -> list[Event]:
        history = await store.history(UUID(job_id), tenant_id=None)
        return [row.event for row in history]

    found: list[Event] = shop.stored(read)
    return found


def freeze(shop: Place, pid: int) -> None:
    """Stop a process between two writes: within one it would keep the file locked for all."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        if _is_unlocked(shop):
            return
        os.kill(pid, signal.SIGCONT)


def _is_unlocked(shop: Place) -> bool:
    with closing(sqlite3.connect(shop.database, isolation_level=None, timeout=0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def until_all_have_ended(program: Program, children: list[int]) -> None:
    """The program's output ends when the last process that has inherited it does."""
    program.process.wait(30)
    program.read_to_the_end()
    if program.is_read_from:
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # a child of the process that this test started
        pytest.fail("a process is left")


@pytest.mark.parametrize("is_stopped_first", [False, True], ids=["running", "stopped"])
def test_workers_drain_when_their_supervisor_is_killed(shop: Place, is_stopped_first: bool) -> None:
    finished, unfinished = hold(shop, "flag"), hold(shop, "never")
    words = ("worker", "shop:jobs", "--processes", "2", "--drain", "3")
    with shop.process(*words) as program:
        program.wait_for("Working on", times=2)
        until_running(shop, finished, unfinished)
        children = child_pids(shop)
        if is_stopped_first:
            program.process.send_signal(signal.SIGSTOP)
        program.process.kill()
        try:
            program.wait_for("Stopping:", times=2)
            late = hold(shop, "late")
            (shop.folder / "flag").touch()
        finally:
            until_all_have_ended(program, children)
    assert events(shop, finished) == [Event.COMPLETED]
    assert events(shop, unfinished) == [Event.RELEASED]
    assert events(shop, late) == [], "it was claimed by a worker that should only have drained"


def test_a_development_worker_ends_when_its_reloader_is_killed(shop: Place) -> None:
    unfinished = hold(shop, "never")
    with shop.process("dev", "shop:jobs", "--no-api") as program:
        until_running(shop, unfinished)
        children = child_pids(shop)
        program.process.kill()
        until_all_have_ended(program, children)
    assert events(shop, unfinished) == [Event.RELEASED]


def test_workers_go_on_while_their_supervisor_is_stopped(shop: Place) -> None:
    with shop.process("worker", "shop:jobs", "--processes", "2") as program:
        program.wait_for("Working on", times=2)
        program.process.send_signal(signal.SIGSTOP)
        done = hold(shop, "flag")
        (shop.folder / "flag").touch()
        assert shop.run("job", "watch", done, "--timeout", "20").exit_code == 0
        program.process.terminate()
        program.process.send_signal(signal.SIGCONT)
        assert program.exit_code() == 0, program.stderr


def test_a_stopped_worker_does_not_delay_the_stop(shop: Place) -> None:
    held = hold(shop, "never")
    with shop.process("worker", "shop:jobs", "--processes", "2", "--drain", "0.1") as program:
        program.wait_for("Working on", times=2)
        until_running(shop, held)
        for pid in child_pids(shop):
            freeze(shop, pid)  # a child of the process that this test started
        program.process.terminate()
        assert program.exit_code() == 0, program.stderr
        assert "has not ended yet" not in program.stderr
    assert events(shop, held) == [Event.RELEASED]


def test_a_second_signal_stops_the_jobs_of_all_processes(shop: Place) -> None:
    held = hold(shop, "never")
    with shop.process("worker", "shop:jobs", "--processes", "2", "--drain", "600") as program:
        program.wait_for("Working on", times=2)
        until_running(shop, held)
        program.process.send_signal(signal.SIGINT)
        program.wait_for("Stopping:", times=2)
        program.process.send_signal(signal.SIGINT)
        assert program.exit_code() == 130, program.stderr
    assert events(shop, held) == [Event.RELEASED]


@pytest.mark.parametrize(
    ("processes", "drain", "signals"),
    [(1, "0.1", 1), (2, "0.1", 1), (1, "600", 2)],
    ids=["one process", "two processes", "stopped now"],
)
def test_a_function_that_never_returns_does_not_keep_its_process(
    shop: Place, processes: int, drain: str, signals: int
) -> None:
    """Its job goes back, and the stacks show where it is."""
    stuck = shop.submit("never-returns", "1")
    words = ("worker", "shop:jobs", "--processes", str(processes), "--drain", drain)
    with shop.process(*words) as program:
        program.wait_for("Working on", times=processes)
        until_running(shop, stuck)
        for _ in range(signals):
            program.process.terminate()
            program.wait_for("Stopping:")
        assert program.exit_code() == (1 if signals == 1 else 130), program.stderr
        assert "in never_return" in program.stderr
    assert events(shop, stuck) == [Event.RELEASED]


@pytest.mark.wide
def test_a_store_that_is_away_does_not_keep_a_worker_that_is_to_stop(
    shop: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as a supervisor would wait for its children, and a pod is told to."""
    monkeypatch.setenv("GANTLINE_LEASE_SECONDS", "600")  # for so long it would try to write the end
    held = hold(shop, "never")
    with shop.process("worker", "shop:jobs", "--drain", "0.1") as program:
        program.wait_for("Working on")
        until_running(shop, held)
        with closing(sqlite3.connect(shop.database, isolation_level=None, timeout=20)) as other:
            other.execute("BEGIN IMMEDIATE")
            program.process.terminate()
            assert program.exit_code() == 1, program.stderr
    assert "Timeout" in program.stderr, "the stacks say where it was"
    assert events(shop, held) == []
