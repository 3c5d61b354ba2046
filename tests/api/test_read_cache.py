"""The API reads by the cache of its process, and shows nobody more by it than without."""

from datetime import timedelta
from typing import Any

import pytest

from gantline import Gantline
from gantline.testing.clock import FakeClock
from tests.api.conftest import Asker
from tests.api.playing import PERMANENT, run_all
from tests.api.test_submit import DOCUMENT, submit


class Reads:
    """Counts the reads of single jobs."""

    def __init__(self, jobs: Gantline, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        get = jobs.store.get

        async def counting(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return await get(*args, **kwargs)

        monkeypatch.setattr(jobs.store, "get", counting)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_a_job_is_read_once_in_its_moment_and_another_tenants_every_time(
    ask: Asker, jobs: Gantline, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(jobs.snapshots, "_seconds", seconds)
    url = (await submit(ask, DOCUMENT)).json()["statusUrl"]
    await run_all(jobs, PERMANENT)
    reads = Reads(jobs, monkeypatch)
    for _ in range(3):
        assert (await ask("alice", "GET", url)).json()["status"] == "Failed"
        assert (await ask("bob", "GET", url)).status_code == 403
    assert reads.count == (6 if seconds == 0 else 1)
    reads.count = 0
    for _ in range(3):
        assert (await ask("eve", "GET", url)).status_code == 404
    assert reads.count == 3, "or the time that it takes would tell that there is a job"
    clock.advance(timedelta(seconds=2))
    reads.count = 0
    await ask("alice", "GET", url)
    assert reads.count == 1


async def test_what_is_done_here_is_seen_at_once(
    ask: Asker, jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs.snapshots, "_seconds", 60.0)
    accepted = (await submit(ask, DOCUMENT)).json()
    url, path = accepted["statusUrl"], f"/api/jobs/{accepted['jobId']}"

    async def status() -> str:
        return str((await ask("alice", "GET", url)).json()["status"])

    assert await status() == "Queued"
    await run_all(jobs, PERMANENT)
    assert await status() == "Failed"
    await ask("alice", "POST", f"{path}/redrive")
    assert await status() == "Queued"
    await ask("alice", "POST", f"{path}/cancel")
    assert await status() == "Cancelled"
    await ask("alice", "DELETE", path)
    assert (await ask("alice", "GET", url)).status_code == 404
