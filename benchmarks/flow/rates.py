"""A gate in the long run, and in every window: by the store's own instants of starts."""

import asyncio
from typing import Final

from benchmarks.flow.player import Shape
from benchmarks.flow.stage import OURS_HERE, Stage
from benchmarks.report import Goal
from gantline import Gantline
from gantline.contract.query import Cursor, JobFilter
from tests.chaos.flow_journals import most_over

_PROCESSES: Final = 2
_SLOTS: Final = 50
_PAGE: Final = 500
# An instant is stored in microseconds.
_ROUNDING: Final = 0.01
_GATES: Final = ((200, 20), (2000, 200))


def run(stage: Stage) -> None:
    for per_second, burst in _GATES:
        shape = Shape(per_second=per_second, burst=burst)
        jobs = round(per_second * stage.scale.flow_seconds)
        name = f"a gate of {per_second}/s, burst {burst}"
        shares: list[float] = []
        over: list[float] = []
        for number in range(stage.scale.worker_runs):
            stage.say(f"{name}, run {number + 1} of {stage.scale.worker_runs}")
            with stage.filled(OURS_HERE, shape, jobs) as url:
                stage.noted(OURS_HERE, url, shape, processes=_PROCESSES, slots=_SLOTS)
                starts = asyncio.run(_starts(url))
            assert len(starts) == jobs, f"{len(starts)} of {jobs} jobs were run"
            # The burst at the beginning is not of the long run.
            shares.append((jobs - burst) / per_second / (max(starts) - min(starts)))
            over.append(most_over(starts, per_second=per_second, burst=burst))
        stage.add(f"{name}, long run", "of the rate", shares, goal=Goal(least=0.97))
        stage.add(f"{name}, the worst window over", "starts", over, goal=Goal(most=_ROUNDING))


async def _starts(url: str) -> list[float]:
    found: list[float] = []
    after: Cursor | None = None
    async with Gantline(url) as app:
        while True:
            page = await app.store.find(JobFilter(tenant_id=None), limit=_PAGE, after=after)
            found += [job.started_at.timestamp() for job in page.items if job.started_at]
            if (after := page.next) is None:
                return found
