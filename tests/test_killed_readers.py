"""Consumers over processes that die: at least once, in order per job, and none missed."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from gantline import Gantline
from gantline.manager.sequencer import number_events
from tests.ear import PATIENCE_SECONDS
from tests.killed_reader import make_app
from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.wide, pytest.mark.xdist_group("processes"), pytest.mark.timeout(180)]

JOBS = 60


class Line(NamedTuple):
    """One event, as some process took it."""

    owner: str
    sequence: int
    job_id: str
    version: int


def lines(journal: Path) -> list[Line]:
    # A line that is being written may be seen in part, where it crosses a page of the file.
    whole, _, _ = (journal.read_text() if journal.exists() else "").rpartition("\n")
    words = [line.split() for line in whole.splitlines()]
    return [Line(owner, int(number), job, int(version)) for owner, number, job, version in words]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gantline.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(schema=f"w{uuid4().hex}")


@asynccontextmanager
async def reader(
    url: str, journal: Path, name: str, point: str, *, lease_seconds: float = 1
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.killed_reader", url, str(journal), name, point),
        str(lease_seconds),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"at work\n"
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def all_taken(jobs: Gantline, journal: Path) -> list[int]:
    """Wait until every job has ended and every event was taken; the numbers of all events."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            counts = await jobs.store.counts(tenant_id=None)
            await number_events(jobs.store)
            events = [one.sequence for one in await jobs.store.events(after=0, limit=10_000)]
            taken = {line.sequence for line in lines(journal)}
            have_ended = all(lane.queued == lane.running == 0 for lane in counts)
            if have_ended and taken.issuperset(events):
                return events
            await asyncio.sleep(0.05)


def assert_in_order_per_job(taken: list[Line]) -> None:
    """Repeats aside, the versions of each job only grow."""
    newest: dict[str, int] = {}
    seen: set[int] = set()
    for line in taken:
        if line.sequence not in seen:
            assert line.version > newest.get(line.job_id, 0)
            newest[line.job_id] = line.version
            seen.add(line.sequence)


@pytest.mark.parametrize("point", ["before", "taken", "moved"])
async def test_wherever_the_leader_is_killed_the_other_process_goes_on(
    url: str, point: str, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    jobs, ship = make_app(url)
    async with (
        jobs,
        reader(url, journal, "dying", point) as dying,
    ):
        await ship.submit(0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not lines(journal):  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.01)
        async with reader(url, journal, "next", "never"):
            async with asyncio.timeout(PATIENCE_SECONDS):
                # However many are a page: until it has had its share.
                while dying.returncode is None:
                    await ship.submit(0)
                    await asyncio.sleep(0.02)
            assert dying.returncode == -signal.SIGKILL
            await ship.submit(0)
            events = await all_taken(jobs, journal)
    taken = lines(journal)
    assert sorted({line.sequence for line in taken}) == events
    assert_in_order_per_job(taken)
    by_first = {line.sequence for line in taken if line.owner == "dying"}
    by_next = {line.sequence for line in taken if line.owner == "next"}
    assert by_first
    assert by_next
    # What was taken and not moved behind comes again, and only then.
    assert bool(by_first & by_next) == (point == "taken")


async def test_of_two_processes_one_reads_and_nothing_comes_twice(url: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    jobs, ship = make_app(url)
    async with (
        jobs,
        reader(url, journal, "one", "never", lease_seconds=30),
        reader(url, journal, "two", "never", lease_seconds=30),
    ):
        for order in range(JOBS):
            await ship.submit(order)
        events = await all_taken(jobs, journal)
    assert [line.sequence for line in lines(journal)] == events
    assert len({line.owner for line in lines(journal)}) == 1
