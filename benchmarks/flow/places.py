"""How well places are kept used: 40 of them and jobs of 100 ms, with slots to spare."""

from typing import Final

from benchmarks.flow import spans
from benchmarks.flow.player import NotedRun, Shape
from benchmarks.flow.stage import OURS_HERE, Stage
from benchmarks.report import Goal

_PLACES: Final = 40
_PROCESSES: Final = 2
_SLOTS: Final = 50
_HOLD_MS: Final = 100
_CASES: Final = {
    "40 places of a type": (Shape(running_in_all=_PLACES, hold_ms=_HOLD_MS), _PLACES),
    "2 places each of 20 keys": (Shape(keys=20, running=2, hold_ms=_HOLD_MS), 2),
}


def run(stage: Stage) -> None:
    jobs = round(_PLACES * 1000 / _HOLD_MS * stage.scale.flow_seconds)
    for name, (shape, each) in _CASES.items():
        taken: list[list[NotedRun]] = []
        for number in range(stage.scale.worker_runs):
            stage.say(f"{name}, run {number + 1} of {stage.scale.worker_runs}")
            with stage.filled(OURS_HERE, shape, jobs) as url:
                taken.append(stage.noted(OURS_HERE, url, shape, processes=_PROCESSES, slots=_SLOTS))
                assert len(taken[-1]) == jobs, f"{len(taken[-1])} of {jobs} jobs were run"
        used = [spans.share_used(runs, _PLACES) for runs in taken]
        stage.add(f"{name}, 100 ms jobs, used", "of the time", used, goal=Goal(least=0.95))
        keys = [spans.by_key(runs) for runs in taken]
        refills = [
            [gap for key in of_run for gap in spans.refills_ms(key, each)] for of_run in keys
        ]
        for percent, goal in ((50, Goal(most=10)), (99, None)):
            values = [spans.percentile(gaps, percent) for gaps in refills]
            stage.add(f"{name}, a freed place refilled, p{percent}", "ms", values, goal=goal)
        over = [float(sum(spans.starts_over(key, each) for key in of_run)) for of_run in keys]
        stage.add(f"{name}, starts over the limit", "starts", over, goal=Goal(most=0))
