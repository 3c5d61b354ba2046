"""How soon a job starts: in an idle worker, and in one that is half busy."""

import statistics
import time
from typing import Final

from benchmarks.contest.children import ChildFailed, ended, started
from benchmarks.contest.stage import Stage, Target
from benchmarks.contest.system import OURS, System
from benchmarks.report import Goal

_PER_SECOND: Final = 40
_WARM_UP_SECONDS: Final = 1.0
# Whatever was sent is started well before this is over.
_SETTLE_SECONDS: Final = 1.0
_HALF: Final = 0.5

Delays = list[float]


def run_idle(stage: Stage, *, goal: Goal | None = None, target: Target | None = None) -> None:
    jobs = stage.scale.pick_ups
    runs = stage.rounds(
        "idle pick-up", lambda system: _delays_ms(stage, system, jobs=jobs, rate=_PER_SECOND)
    )
    for percent in (50, 95, 99):
        metric, is_median = f"idle pick-up, p{percent}", percent == 50
        figures = {
            system: [_percentile(values, percent) for values in delays]
            for system, delays in runs.items()
        }
        stage.add_all(metric, "ms", figures, goal=goal if is_median else None)
        if is_median and target:
            stage.compare_all(metric, figures, target)


def run_half_busy(stage: Stage, *, drain_rate: float, goal: Goal) -> None:
    rate = drain_rate * _HALF
    jobs = round(rate * stage.scale.half_busy_seconds)
    runs = stage.rounds(
        f"pick-up at {rate:,.0f} jobs/s",
        lambda system: _delays_ms(stage, system, jobs=jobs, rate=rate, slots=system.slots),
        [OURS],
    )
    for percent in (50, 99):
        values = [_percentile(delays, percent) for delays in runs[OURS]]
        metric = f"pick-up at half of the drain rate, p{percent}"
        stage.add(metric, "ms", values, goal=goal if percent == 99 else None)


def _delays_ms(stage: Stage, system: System, *, jobs: int, rate: float, slots: int = 10) -> Delays:
    with (
        stage.emptied(system) as url,
        started(system.command(url, "serve", slots=slots)) as child,
    ):
        time.sleep(_WARM_UP_SECONDS)
        kept: float = system.run(url, "send", jobs=jobs, rate=rate)
        time.sleep(_SETTLE_SECONDS)
        delays: list[int] = ended(child)
    if kept < 0.9 * rate:
        stage.say(f"{system.name}: only {kept:,.0f} of {rate:,.0f} jobs/s could be sent")
    if len(delays) < jobs:
        raise ChildFailed(f"{len(delays)} of {jobs} jobs were started in time")
    return [delay / 1e6 for delay in delays]


def _percentile(values: Delays, percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
