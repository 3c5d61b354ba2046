"""The application of the tests that follow a job across restarts of the API.

Served by a process of its own: `gantline api tests.api.streams.followed:api`, or by plain uvicorn.
The test itself works on the jobs, and says step by step what becomes of them.
"""

import asyncio
import os
from datetime import timedelta

from gantline import Context, Fixed, Gantline, Retry
from gantline.api import ApiSettings
from gantline.api.application import Api
from gantline.api.streams.settings import StreamSettings
from gantline.auth.peppers import Peppers
from gantline.auth.stream_tokens import StreamTokens
from gantline.contract.clock import SystemClock
from tests.api.application import ByName

ORIGIN = "GANTLINE_TEST_ORIGIN"
AT_ONCE = timedelta(0)


class Steps:
    """What the running job is to do next."""

    def __init__(self) -> None:
        self._steps: asyncio.Queue[str] = asyncio.Queue()

    def next(self, step: str) -> None:
        self._steps.put_nowait(step)

    async def taken(self) -> str:
        return await self._steps.get()


def make_followed(url: str, steps: Steps | None = None) -> Gantline:
    jobs = Gantline(url)

    @jobs.job("steps", queue="steps", retry=Fixed(every=AT_ONCE, attempts=100))
    async def take_steps(name: str, ctx: Context) -> dict[str, str]:
        """Do what the test says."""
        while steps is not None:
            match await steps.taken():
                case "again":
                    raise Retry("not yet", after=AT_ONCE)
                case "end":
                    break
                case percent:
                    await ctx.progress(int(percent), f"at {percent}")
        return {"name": name}

    @jobs.job("noise", queue="noise")
    async def make_noise(number: int) -> None:
        """Is there too, and nobody's business."""

    return jobs


def served() -> Api:
    clock = SystemClock()
    return make_followed(os.environ["GANTLINE_STORE"]).api(
        authenticator=ByName(),
        settings=ApiSettings(
            cors_origins=(os.environ[ORIGIN],), streams=StreamSettings(ping_seconds=0.2)
        ),
        stream_tokens=StreamTokens(
            Peppers.from_environment(os.environ), clock=clock, lifetime=timedelta(minutes=10)
        ),
    )


if "GANTLINE_STORE" in os.environ and ORIGIN in os.environ:
    api = served()
