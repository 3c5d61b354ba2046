"""What turns and limits cost: no-op jobs drained by one process, beside plain ones.

The goals are for the CPU of client and server together, which a busy machine disturbs least.
"""

from typing import Final, NamedTuple

from benchmarks.flow.player import Shape
from benchmarks.flow.stage import OURS_HERE, Stage
from benchmarks.report import Goal

_SLOTS: Final = 500
_FAIR: Final = Goal(least=0.9)
_PLAIN: Final = "plain"


class Case(NamedTuple):
    name: str
    shape: Shape
    goal: Goal | None = None


def run(stage: Stage) -> None:
    jobs = stage.scale.flow_jobs
    cases = _cases(jobs)
    taken: dict[str, list[tuple[float, float]]] = {case.name: [] for case in cases}
    for number in range(stage.scale.worker_runs):
        stage.say(f"cost of turns and limits, run {number + 1} of {stage.scale.worker_runs}")
        for case in cases:
            with stage.filled(OURS_HERE, case.shape, jobs) as url:
                taken[case.name].append(stage.drained(url, case.shape, jobs, slots=_SLOTS))
    for case in cases:
        rates, micros = zip(*taken[case.name], strict=True)
        stage.add(f"drain, {case.name}", "jobs/s", rates)
        stage.add(f"drain, {case.name}, CPU per job", "µs", micros)
        if case.name == _PLAIN:
            continue
        plain_rates, plain_micros = zip(*taken[_PLAIN], strict=True)
        stage.compare(f"drain, {case.name}", rates, plain_rates, beside_name=_PLAIN)
        # So many of these jobs for the CPU of one plain job.
        stage.compare(
            f"drain, {case.name}, CPU per job",
            plain_micros,
            micros,
            beside_name=_PLAIN,
            goal=case.goal,
        )


def _cases(jobs: int) -> list[Case]:
    most_keys = min(10_000, jobs)
    return [
        Case(_PLAIN, Shape()),
        *(Case(f"{keys:,} groups", Shape(keys=keys), _FAIR) for keys in (10, 100, 1_000)),
        Case("10 at once per key, 100 keys", Shape(keys=100, running=10), Goal(least=0.8)),
        Case(
            f"one at once per key, {most_keys:,} keys",
            Shape(keys=most_keys, running=1),
            Goal(least=0.7),
        ),
        Case("50 at once in all", Shape(running_in_all=50)),
        Case("an open gate", Shape(per_second=1_000_000, burst=100_000)),
    ]
