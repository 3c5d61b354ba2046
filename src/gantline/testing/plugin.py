"""The pytest plugin: `jobs_test(app)` gives a JobsTest that is opened and closed for the test.

Enable it with `pytest_plugins = ["gantline.testing.plugin"]`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime

import pytest_asyncio

from gantline.app.gantline import Gantline
from gantline.testing.kit import JobsTest


@pytest_asyncio.fixture
async def jobs_test() -> AsyncIterator[Callable[..., Awaitable[JobsTest]]]:
    """Call it with an application: `kit = await jobs_test(jobs)`."""
    async with AsyncExitStack() as stack:

        async def open_kit(
            app: Gantline, *, inline: bool = False, now: datetime | None = None
        ) -> JobsTest:
            return await stack.enter_async_context(JobsTest(app, inline=inline, now=now))

        yield open_kit
