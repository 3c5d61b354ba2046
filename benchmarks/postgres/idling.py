"""How often a worker that has nothing to do asks the server."""

import time
from contextlib import ExitStack
from typing import Final

from benchmarks.postgres.stage import Stage
from benchmarks.postgres.systems import System
from benchmarks.report import Goal
from benchmarks.worker.children import ended, started

_SLOTS: Final = 10
_WARM_UP_SECONDS: Final = 3.0


def run(stage: Stage) -> None:
    """An idle worker asks each question in a transaction of its own, so commits count them."""
    stage.say("queries of idle workers")
    seconds = stage.scale.idle_seconds
    with ExitStack() as stack:
        urls = {
            system: stack.enter_context(stage.database(system, "idle")) for system in stage.systems
        }
        # What starting and stopping cost is in both, so it falls out.
        short, long = (_commits(stage, urls, span) for span in (0, seconds))
    rates = {system: [(long[system] - short[system]) / seconds] for system in urls}
    stage.add_all("queries of an idle worker", "1/s", rates, goal=Goal(most=1))


def _commits(stage: Stage, urls: dict[System, str], seconds: float) -> dict[System, int]:
    """Let a worker of each system idle at the same time."""
    before = {system: stage.server.counters(url) for system, url in urls.items()}
    with ExitStack() as stack:
        children = [
            stack.enter_context(started(system.command(url, "serve", slots=_SLOTS)))
            for system, url in urls.items()
        ]
        time.sleep(_WARM_UP_SECONDS + seconds)
        for child in children:
            ended(child)
    after = {system: stage.server.counters(url) for system, url in urls.items()}
    return {system: after[system].commits - before[system].commits for system in urls}
