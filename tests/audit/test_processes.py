"""Several processes append to one chain; some of them are killed."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise

import pytest

from tests.audit.conftest import TENANT, Trail

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]


Start = Callable[[str, int], subprocess.Popen[str]]


@pytest.fixture
def start(sql_trail: Trail) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(name: str, count: int) -> subprocess.Popen[str]:
            module = "tests.appending_process"
            process = subprocess.Popen(
                [sys.executable, "-m", module, sql_trail.url, name, str(count)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield started


def begin(*processes: subprocess.Popen[str]) -> None:
    """Let them go when all of them are ready."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.close()


def told(process: subprocess.Popen[str], batches: int | None = None) -> list[str]:
    """The ids that the process says are in the chain; all, or those of its first batches."""
    assert process.stdout is not None
    lines = [*process.stdout] if batches is None else [next(process.stdout) for _ in range(batches)]
    return [one for line in lines if line.endswith("\n") for one in line.split()]


async def test_two_processes_make_one_unbroken_chain(sql_trail: Trail, start: Start) -> None:
    processes = [start(name, 250) for name in ("one", "two")]
    begin(*processes)
    ids = [one for process in processes for one in told(process)]
    assert [process.wait() for process in processes] == [0, 0]
    result = await sql_trail.verified()
    assert (result.events, result.last_version, result.findings) == (500, 500, [])
    events = await sql_trail.events()
    assert sorted(event.payload["id"] for event in events) == sorted(ids)
    turns = sum(one.actor != other.actor for one, other in pairwise(events))
    assert turns > 1, "they did not write at the same time"


async def test_who_is_killed_leaves_a_chain_that_verifies(sql_trail: Trail, start: Start) -> None:
    """All that was acknowledged is in it, once."""
    survivor = start("survivor", 300)
    begin(survivor)
    acknowledged = []
    for _ in range(3):
        victim = start("victim", 100_000)
        begin(victim)
        acknowledged += told(victim, batches=4)
        victim.kill()
        acknowledged += told(victim)
        victim.wait()
        assert (await sql_trail.verified()).findings == []
    acknowledged += told(survivor)
    assert survivor.wait() == 0
    result = await sql_trail.verified()
    assert result.findings == []
    ids = [event.payload["id"] for event in await sql_trail.events(TENANT)]
    assert len(set(ids)) == len(ids)
    assert set(acknowledged) <= set(ids)
    assert len(acknowledged) >= 360
