"""Whatever leaves a handler, wherever it runs: its job ends as documented, its neighbours finish.

The table of docs/concepts/endings.md is made here. `GANTLINE_WRITE_ENDINGS=1` writes it again.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import pytest

from gantline import Handle, JobStatus
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import Event, Reason
from gantline.testing.liveness import watching
from tests.raising_app import (
    ACTS,
    WHERE,
    End,
    jobs,
    neighbour,
    process_neighbour,
    threaded_neighbour,
)
from tests.servers.api import REPOSITORY
from tests.worker_process import WorkerProcess

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]

PAGE: Final = REPOSITORY / "docs/concepts/endings.md"
BEGIN: Final = "<!-- This table is made by tests/test_base_exceptions.py. -->\n"
END: Final = "<!-- The end of the table. -->\n"
APP: Final = "tests.raising_app:jobs"
LEASE_SECONDS: Final = 2.0
CRASH_BUDGET: Final = 3
# A run waits for a slot, and for a child process where it needs one.
STARTS_WITHIN: Final = timedelta(seconds=15)
ENDS_WITHIN_SECONDS: Final = 90


class Ending(StrEnum):
    """What becomes of a job, in the words of the page."""

    ATTEMPT = "failed attempt"
    FAILED = "Failed"
    COMPLETED = "Completed"
    CRASH = "crash"


COLUMNS: Final = {
    "loop": "`async def`",
    "thread": "`def`",
    "process": '`run_in="process"`',
    "awaited": "a task that the handler awaits",
    "left-alone": "a task that it does not await",
    "group": "`asyncio.TaskGroup`",
}
# How each kind ends on the loop; the cells beside it are the same but for the exceptions below.
ON_THE_LOOP: Final[Mapping[str, Ending]] = dict.fromkeys(ACTS, Ending.ATTEMPT) | {
    "Permanent": Ending.FAILED,
    "Permanent in a group": Ending.FAILED,
    "loop.stop()": Ending.COMPLETED,
    "a changed event loop policy": Ending.COMPLETED,
    "os._exit()": Ending.CRASH,
}
OTHERWISE: Final[Mapping[tuple[str, str], Ending | None]] = {
    ("os._exit()", "process"): Ending.ATTEMPT,
    ("os._exit()", "left-alone"): Ending.CRASH,
    # A child process has no loop of the worker's.
    ("loop.stop()", "process"): None,
    ("loop.close()", "process"): None,
    # asyncio itself takes a cancelled task of a group for a task that has ended.
    ("CancelledError", "group"): Ending.COMPLETED,
}
CODES: Final = {"Permanent": "GONE", "Retry": "LATER"}


def expected(kind: str, where: str) -> Ending | None:
    if (kind, where) in OTHERWISE:
        return OTHERWISE[kind, where]
    return Ending.COMPLETED if where == "left-alone" else ON_THE_LOOP[kind]


class Case(NamedTuple):
    """One kind at one place, in the first run or in a later one."""

    kind: str
    where: str
    run: str

    def history(self) -> list[tuple[Event, str]]:
        """What the job's history must show: the event and the reason of each run."""
        retried = (Event.RETRIED, Reason.RETRYABLE_ERROR)
        completed = (Event.COMPLETED, Reason.SUCCEEDED)
        before = [retried] if self.run == "later" else []
        match expected(self.kind, self.where):
            case Ending.ATTEMPT if self.run == "first":
                return [retried, completed]
            case Ending.ATTEMPT:
                return [retried, (Event.POISONED, Reason.ATTEMPTS_EXHAUSTED)]
            case Ending.FAILED:
                return [*before, (Event.FAILED, Reason.PERMANENT_ERROR)]
            case Ending.CRASH:
                return [*before, (Event.CRASHED, ""), completed]
            case _:
                return [*before, completed]


def cases(*, crashing: bool) -> Iterator[Case]:
    for kind in ACTS:
        for where in WHERE:
            ending = expected(kind, where)
            if ending is not None and (ending is Ending.CRASH) == crashing:
                yield Case(kind, where, "first")
                yield Case(kind, where, "later")


class Place:
    """A store, the application on it, and what was submitted there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/gantline.db"
        self.neighbours: list[Handle[object]] = []
        self.cases: dict[UUID, Case] = {}

    def worker(self, *options: str) -> WorkerProcess:
        return WorkerProcess(
            APP,
            self.url,
            self.folder / "worker.log",
            *options,
            lease_seconds=LEASE_SECONDS,
            GANTLINE_POLL_SECONDS="0.1",
        )

    async def submit(self, case: Case) -> Handle[object]:
        """With neighbours that run at the same time."""
        journal = self.folder / f"journal-{len(self.cases)}"
        end = End(case.kind, case.run, str(journal))  # type: ignore[arg-type]  # one of three
        handle: Handle[object] = await WHERE[case.where].submit(end)
        self.cases[handle.job_id] = case
        return handle

    async def submit_neighbours(self, count: int) -> None:
        self.neighbours += await neighbour.submit_many([0.2] * count)
        self.neighbours += await threaded_neighbour.submit_many(["none"] * (count // 2))

    async def ended(self, worker: WorkerProcess) -> None:
        """Wait until nothing is left to run, or the time is over, or there is no worker."""
        try:
            async with asyncio.timeout(ENDS_WITHIN_SECONDS):
                while await self._is_at_work():  # in another process
                    if worker.is_gone:
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            return  # what has not ended is shown by the comparison that follows

    async def _is_at_work(self) -> bool:
        lanes = await jobs.store.counts(tenant_id=None)
        return any(lane.queued or lane.running for lane in lanes)

    async def history(self, job_id: UUID) -> list[tuple[Event, str]]:
        """Whether a crash was the job's own fault depends on who ran beside it."""
        rows = await jobs.store.history(job_id, tenant_id=None)
        return [(row.event, "" if row.event is Event.CRASHED else row.reason) for row in rows]

    async def surprises(self) -> dict[Case, list[tuple[Event, str]]]:
        """The cases that did not end as documented, with their history."""
        seen = {job_id: await self.history(job_id) for job_id in self.cases}
        return {
            case: seen[job_id]
            for job_id, case in self.cases.items()
            if seen[job_id] != case.history()
        }

    async def hurt_neighbours(self) -> list[JobSnapshot]:
        seen = [await handle.status() for handle in self.neighbours]
        return [job for job in seen if job.status is not JobStatus.COMPLETED or job.attempt != 1]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    jobs.move_to(place.url)
    async with jobs:
        yield place


async def test_what_cannot_end_a_process_ends_its_own_job_and_nothing_else(place: Place) -> None:
    worker = place.worker("-q", "default:20")
    for number, case in enumerate(cases(crashing=False)):
        await place.submit(case)
        if number % 20 == 0:
            await place.submit_neighbours(4)
            place.neighbours.append(await process_neighbour.submit(number))
    async with (
        worker.running(),
        watching(jobs.store, readiness=[worker.readiness], within=STARTS_WITHIN) as oracle,
    ):
        await place.ended(worker)
    surprises = await place.surprises()
    assert not surprises, "\n".join(f"{case}: {seen}" for case, seen in surprises.items())
    assert not await place.hurt_neighbours()
    assert (worker.starts, await worker.stop()) == (1, 0), worker.log[-2000:]
    oracle.check()
    # What a task raised that nobody awaits is in the log.
    assert "SystemExit" in worker.log
    for kind, code in CODES.items():
        await _decides_by_its_code(place, kind, code)


async def _decides_by_its_code(place: Place, kind: str, code: str) -> None:
    """A signal inside a group is found, however deep."""
    for job_id, case in place.cases.items():
        if case.kind.startswith(kind) and case.run == "first" and case.where != "left-alone":
            (row, *_) = await jobs.store.history(job_id, tenant_id=None)
            assert row.error is not None
            assert row.error.code == code, case


# Each takes some leases, so `make test` runs one of them, and `make matrix` one in a thread.
CRASHES: Final = [case for case in cases(crashing=True) if case != ("os._exit()", "loop", "first")]
KILLERS: Final = sorted({case.where for case in CRASHES} - {"loop"})


def _mark(where: str, run: str = "first") -> pytest.MarkDecorator:
    return pytest.mark.wide if (where, run) == ("thread", "first") else pytest.mark.chaos


@pytest.mark.parametrize(
    "case",
    [
        Case("os._exit()", "loop", "first"),
        *(pytest.param(case, marks=_mark(case.where, case.run)) for case in CRASHES),
    ],
    ids=lambda case: f"{case.where}-{case.run}",
)
async def test_what_ends_the_process_once_costs_a_crash_and_the_job_completes(
    place: Place, case: Case
) -> None:
    await place.submit(case)
    await _crash_and_recover(place)
    assert not await place.surprises()


@pytest.mark.parametrize(
    "where", ["loop", *(pytest.param(where, marks=_mark(where)) for where in KILLERS)]
)
async def test_what_ends_every_process_is_poisoned_and_its_neighbours_are_not(
    place: Place, where: str
) -> None:
    killer = await place.submit(Case("os._exit()", where, "every"))
    await _crash_and_recover(place)
    job = await killer.status()
    assert job.last is not None
    assert (job.status, job.last.reason) == (JobStatus.POISONED, Reason.LEASE_EXPIRED)
    assert job.crashes >= CRASH_BUDGET


@pytest.mark.wide
async def test_a_supervisor_replaces_what_a_killer_ends(place: Place) -> None:
    killer = await place.submit(Case("os._exit()", "loop", "every"))
    await place.submit_neighbours(20)
    worker = place.worker("--processes", "2")
    async with (
        worker.running(),
        watching(jobs.store, readiness=[worker.readiness], within=STARTS_WITHIN) as oracle,
    ):
        await killer.wait(timeout=100)
        await place.ended(worker)
    assert (await killer.status()).status is JobStatus.POISONED
    assert not await place.hurt_neighbours()
    assert "ended with 3" in worker.log
    oracle.check()


async def _crash_and_recover(place: Place) -> None:
    """Neighbours before, beside and after it; the worker is started again by the test."""
    await place.submit_neighbours(20)
    worker = place.worker()
    async with (
        worker.kept_running(),
        watching(jobs.store, readiness=[worker.readiness], within=STARTS_WITHIN) as oracle,
    ):
        await place.ended(worker)
    assert not await place.hurt_neighbours()
    assert worker.starts > 1
    oracle.check()


# -- the page -----------------------------------------------------------------------------------


def table() -> str:
    lines = [
        f"| what happens | {' | '.join(COLUMNS.values())} |",
        f"|---{'|---' * len(COLUMNS)}|",
    ]
    for kind in ACTS:
        name = f"`{kind}`" if " " not in kind else kind
        cells = [(expected(kind, where) or "–") for where in COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_page_shows_what_is_tested() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    before, begin, rest = shown.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE.name} does not say where the table begins"
    assert end, f"{PAGE.name} does not say where it ends"
    made = f"{before}{begin}\n{table()}\n{end}{after}"
    if os.environ.get("GANTLINE_WRITE_ENDINGS"):
        PAGE.write_text(made, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == made
