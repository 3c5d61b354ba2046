"""How often a worker that has nothing to do asks the server."""

import time
from contextlib import ExitStack
from typing import Final

from benchmarks.contest.children import ended, started
from benchmarks.contest.system import OURS, System
from benchmarks.postgres.stage import Stage
from benchmarks.report import Goal

_SLOTS: Final = 10
_WARM_UP_SECONDS: Final = 3.0


def run(stage: Stage) -> None:
    """An idle worker asks each question in a transaction of its own, so commits count them.

    The server's own are taken off: those in a database where nobody works.
    """
    stage.say("queries of idle workers")
    with ExitStack() as stack:
        urls = {
            system: stack.enter_context(stage.database(system, "idle")) for system in stage.systems
        }
        alone = stack.enter_context(stage.database(OURS, "alone"))
        children = [
            stack.enter_context(started(system.command(url, "serve", slots=_SLOTS)))
            for system, url in urls.items()
        ]
        time.sleep(_WARM_UP_SECONDS)
        start, before, own = time.monotonic(), _commits(stage, urls), _count(stage, alone)
        time.sleep(stage.scale.idle_seconds)
        seconds, after = time.monotonic() - start, _commits(stage, urls)
        own = _count(stage, alone) - own
        for child in children:
            ended(child)
    rates = {system: [(after[system] - before[system] - own) / seconds] for system in urls}
    stage.add_all("queries of an idle worker", "1/s", rates, goal=Goal(most=1))


def _commits(stage: Stage, urls: dict[System, str]) -> dict[System, int]:
    """Read them at once: a busy session is a second late with its own, alike at both ends."""
    return {system: _count(stage, url) for system, url in urls.items()}


def _count(stage: Stage, url: str) -> int:
    return stage.server.counters(url).commits
