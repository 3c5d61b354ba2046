"""The read cache: only what has ended, only for a moment, and only where it is wanted."""

from datetime import timedelta
from typing import Any

import pytest

from gantline import Gantline
from gantline.api import ApiSettings
from gantline.testing.clock import FakeClock
from tests.api.application import ByName
from tests.api.conftest import asker_of
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
async def test_an_ended_job_is_read_once_in_its_moment(
    jobs: Gantline, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    api = jobs.api(authenticator=ByName(), settings=ApiSettings(cache_seconds=seconds))
    reads = Reads(jobs, monkeypatch)
    async with asker_of(api) as ask:
        url = (await submit(ask, DOCUMENT)).json()["statusUrl"]
        for _ in range(2):
            assert (await ask("alice", "GET", url)).json()["status"] == "Queued"
        assert reads.count == 2  # what has not ended is never kept
        await run_all(jobs, PERMANENT)
        reads.count = 0
        for _ in range(3):
            assert (await ask("alice", "GET", url)).json()["status"] == "Failed"
            assert (await ask("eve", "GET", url)).status_code == 404
            assert (await ask("bob", "GET", url)).status_code == 403
        assert reads.count == (9 if seconds == 0 else 1)
        clock.advance(timedelta(seconds=2))
        await ask("alice", "GET", url)
        assert reads.count == (10 if seconds == 0 else 2)


async def test_a_redrive_here_is_seen_at_once(jobs: Gantline) -> None:
    api = jobs.api(authenticator=ByName(), settings=ApiSettings(cache_seconds=60))
    async with asker_of(api) as ask:
        accepted = (await submit(ask, DOCUMENT)).json()
        await run_all(jobs, PERMANENT)
        url, path = accepted["statusUrl"], f"/api/jobs/{accepted['jobId']}"
        assert (await ask("alice", "GET", url)).json()["status"] == "Failed"
        await ask("alice", "POST", f"{path}/redrive")
        assert (await ask("alice", "GET", url)).json()["status"] == "Queued"
        await run_all(jobs)
        await ask("alice", "GET", url)
        await ask("alice", "DELETE", path)
        assert (await ask("alice", "GET", url)).status_code == 404


async def test_the_cache_keeps_only_so_many(jobs: Gantline) -> None:
    settings = ApiSettings(cache_seconds=60, cache_jobs=2)
    api = jobs.api(authenticator=ByName(), settings=settings)
    async with asker_of(api) as ask:
        for number in range(5):
            body = {**DOCUMENT, "payload": {"documentId": str(number)}}
            url = (await submit(ask, body)).json()["statusUrl"]
            await run_all(jobs)
            await ask("alice", "GET", url)
            assert len(api._parts.cache._kept) <= 2
