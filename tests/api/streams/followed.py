"""The application of the tests that follow a job across restarts of the API.

Served by a process of its own: `windlass api tests.api.streams.followed:api`, or by plain uvicorn.
The test itself works on the jobs, and says step by step what becomes of them.
"""

import asyncio
import os
from datetime import timedelta

from tests.api.application import ByName
from windlass import Context, Fixed, Retry, Windlass
from windlass.api import ApiSettings
from windlass.api.application import Api
from windlass.api.streams.settings import StreamSettings
from windlass.auth.peppers import Peppers
from windlass.auth.stream_tokens import StreamTokens
from windlass.contract.clock import SystemClock

ORIGIN = "WINDLASS_TEST_ORIGIN"
AT_ONCE = timedelta(0)


class Steps:
    """What the running job is to do next."""

    def __init__(self) -> None:
        self._steps: asyncio.Queue[str] = asyncio.Queue()

    def next(self, step: str) -> None:
        self._steps.put_nowait(step)

    async def taken(self) -> str:
        return await self._steps.get()


def make_followed(url: str, steps: Steps | None = None) -> Windlass:
    jobs = Windlass(url)

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
    return make_followed(os.environ["WINDLASS_STORE"]).api(
        authenticator=ByName(),
        settings=ApiSettings(
            cors_origins=(os.environ[ORIGIN],), streams=StreamSettings(ping_seconds=0.2)
        ),
        stream_tokens=StreamTokens(
            Peppers.from_environment(os.environ), clock=clock, lifetime=timedelta(minutes=10)
        ),
    )


if "WINDLASS_STORE" in os.environ and ORIGIN in os.environ:
    api = served()
