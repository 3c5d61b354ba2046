"""Histories of real processes: workers that are killed leave calls without an end, and no wrong."""

import asyncio
from pathlib import Path

import pytest

from gantline import Gantline
from gantline.proof.checker import check
from gantline.proof.history import read_histories
from gantline.proof.rest import read_rest
from tests import app_under_test
from tests.history.test_sound_stores import drained
from tests.worker_process import WorkerProcess

pytestmark = pytest.mark.wide


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gantline:
    monkeypatch.setenv("GANTLINE_HISTORY", str(tmp_path / "history"))
    monkeypatch.setenv("GANTLINE_STORE", f"sqlite:///{tmp_path / 'jobs.db'}")
    return Gantline(include=[app_under_test.group])


async def test_killed_workers_are_judged_clean(tmp_path: Path, jobs: Gantline) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    worker = WorkerProcess("tests.history.app:jobs", url, tmp_path / "log", lease_seconds=1)
    flaky, snooze = jobs.find_type("flaky"), jobs.find_type("snooze")
    assert flaky is not None
    assert snooze is not None
    async with asyncio.timeout(100), jobs:
        for _ in range(3):
            await worker.start()
            await worker.is_ready()
            for number in range(60):
                await flaky.submit(number % 4)
                await snooze.submit(number % 3)
            await worker.kill()
        async with worker.running():
            await drained(jobs.store)
        rest = await read_rest(jobs.store)
    calls = read_histories(tmp_path / "history")
    assert len({call.process for call in calls}) == 5
    report = check(calls, rest=rest)
    assert report.violations == (), str(report)
    assert len(rest.jobs) == 360
