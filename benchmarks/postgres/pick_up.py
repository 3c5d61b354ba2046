"""How soon a job starts: in an idle worker, and in one that is half busy."""

import statistics
import time
from typing import Final

from benchmarks.postgres.stage import Stage
from benchmarks.postgres.systems import OURS, System
from benchmarks.report import Goal
from benchmarks.worker.children import ended, started

_PER_SECOND: Final = 40
_WARM_UP_SECONDS: Final = 2.0
# Whatever was sent is started well before this is over.
_SETTLE_SECONDS: Final = 1.5
_HALF: Final = 0.5

Delays = list[float]


def run(stage: Stage, *, drain_rate: float) -> None:
    stage.say("idle pick-up")
    runs: dict[System, list[Delays]] = {system: [] for system in stage.systems}
    for _ in range(stage.scale.worker_runs):
        for system, delays in runs.items():
            jobs = stage.scale.pick_ups
            delays.append(_delays_ms(stage, system, jobs=jobs, rate=_PER_SECOND))
    for percent, goal in ((50, Goal(most=2)), (95, None), (99, None)):
        figures = {
            system: [_percentile(values, percent) for values in delays]
            for system, delays in runs.items()
        }
        stage.add_all(f"idle pick-up, p{percent}", "ms", figures, goal=goal)
    _run_half_busy(stage, drain_rate * _HALF)


def _run_half_busy(stage: Stage, rate: float) -> None:
    stage.say(f"pick-up at {rate:,.0f} jobs/s")
    jobs = round(rate * stage.scale.half_busy_seconds)
    runs = [
        _delays_ms(stage, OURS, jobs=jobs, rate=rate, slots=OURS.slots)
        for _ in range(stage.scale.worker_runs)
    ]
    for percent, goal in ((50, None), (99, Goal(most=10))):
        values = [_percentile(delays, percent) for delays in runs]
        stage.add(f"pick-up at half of the drain rate, p{percent}", "ms", values, goal=goal)


def _delays_ms(stage: Stage, system: System, *, jobs: int, rate: float, slots: int = 10) -> Delays:
    with (
        stage.database(system, "pick_up") as url,
        started(system.command(url, "serve", slots=slots)) as child,
    ):
        time.sleep(_WARM_UP_SECONDS)
        kept: float = system.run(url, "send", jobs=jobs, rate=rate)
        time.sleep(_SETTLE_SECONDS)
        delays: list[int] = ended(child)
    if kept < 0.9 * rate:
        stage.say(f"{system.name}: only {kept:,.0f} of {rate:,.0f} jobs/s could be sent")
    assert len(delays) >= jobs, f"{system.name}: {len(delays)} of {jobs}"
    return [delay / 1e6 for delay in delays]


def _percentile(values: Delays, percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
