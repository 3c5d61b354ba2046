"""Whose time it is."""

from datetime import UTC, datetime, timedelta

import pytest

from gantline import Gantline, JobStatus
from gantline.contract.clock import SystemClock
from gantline.testing.clock import FakeClock


async def test_a_host_whose_clock_is_wrong_keeps_the_server_s_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its leases would be over for everybody else before it has begun."""
    wrong = datetime.now(UTC) - timedelta(hours=1)
    monkeypatch.setattr(SystemClock, "now", lambda self: wrong)
    async with Gantline(url) as jobs:

        @jobs.job("order")
        async def order(value: int) -> None: ...

        assert await jobs.store.ping() > wrong + timedelta(minutes=50)
        async with jobs.running():
            job = await (await order.submit(1)).wait(timeout=10)
        assert (job.status, job.crashes) == (JobStatus.COMPLETED, 0)


async def test_a_clock_that_is_given_stands_in_for_the_server_s(url: str) -> None:
    clock = FakeClock()
    jobs = Gantline(url)
    jobs.move_to(url, clock=clock)
    async with jobs:
        assert await jobs.store.ping() == clock.now()
