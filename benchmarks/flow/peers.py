"""Beside peers: one at a time per key, and so many in all; how fast, and whether never too many.

A limit that is not over all workers is none here: each system works in two processes.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from benchmarks.contest.children import ChildFailed
from benchmarks.contest.environment import is_installed
from benchmarks.contest.system import System
from benchmarks.flow import spans
from benchmarks.flow.player import Shape
from benchmarks.flow.stage import OURS_HERE, Stage
from benchmarks.report import Goal

_PROCESSES: Final = 2
_HOLD_MS: Final = 10
_KEYS: Final = 50
_IN_ALL: Final = 10
_PSYCOPG: Final = "psycopg[binary]==3.3.8"


class Case(NamedTuple):
    name: str
    shape: Shape
    each: int
    """How many may be at work at once, of each key."""
    places: int


_PER_KEY: Final = Case(
    f"one at a time per key, {_KEYS} keys, {_HOLD_MS} ms jobs",
    Shape(keys=_KEYS, running=1, hold_ms=_HOLD_MS),
    1,
    _KEYS,
)
_ALL: Final = Case(
    f"{_IN_ALL} at a time, {_HOLD_MS} ms jobs",
    Shape(running_in_all=_IN_ALL, hold_ms=_HOLD_MS),
    _IN_ALL,
    _IN_ALL,
)


def _peer(name: str, module: str, slots: int, drain_share: float, *requirements: str) -> System:
    return System(name, f"benchmarks.flow.on_{module}", slots, drain_share, requirements)


_PGQUEUER: Final = _peer("PgQueuer", "pgqueuer", 50, 1, "pgqueuer[asyncpg]==1.6.0")
_PROCRASTINATE: Final = _peer(
    "Procrastinate", "procrastinate", 30, 0.2, _PSYCOPG, "procrastinate==3.10.0"
)
_DBOS: Final = _peer("DBOS", "dbos", 50, 0.2, "dbos==3.4.0")
_DRAMATIQ: Final = _peer(
    "dramatiq", "dramatiq", 50, 0.5, "dramatiq[redis]==2.2.1", "hiredis==3.5.0"
)
# Of keys PgQueuer knows nothing, and Procrastinate's locks are all one at a time.
_CONTESTS: Final[Mapping[str, Mapping[Case, tuple[System, ...]]]] = {
    "postgres": {_PER_KEY: (_PROCRASTINATE, _DBOS), _ALL: (_PGQUEUER, _DBOS)},
    "redis": {_PER_KEY: (_DRAMATIQ,), _ALL: (_DRAMATIQ,)},
    "sqlite": {_PER_KEY: (), _ALL: ()},
}


def run(stage: Stage) -> None:
    for case, peers in _CONTESTS[stage.engine.name].items():
        systems = [
            OURS_HERE._replace(slots=50),
            *(
                peer
                for peer in peers
                if is_installed(peer.environment, peer.requirements, stage.report)
            ),
        ]
        taken: dict[System, list[tuple[float, float]]] = {system: [] for system in systems}
        for number in range(stage.scale.worker_runs):
            stage.say(f"{case.name}, run {number + 1} of {stage.scale.worker_runs}")
            for system in tuple(taken):
                try:
                    taken[system].append(_measured(stage, case, system))
                except ChildFailed as failure:
                    if system.module == OURS_HERE.module:
                        raise
                    del taken[system]
                    stage.leave_out(system.name, what=case.name, reason=str(failure))
        _tell(stage, case, taken)


def _measured(stage: Stage, case: Case, system: System) -> tuple[float, float]:
    """The rate, and how many starts were over the limit."""
    most = case.places * 1000 / _HOLD_MS * stage.scale.flow_seconds
    jobs = round(most * system.drain_share)
    with stage.filled(system, case.shape, jobs) as url:
        runs = stage.noted(
            *(system, url, case.shape),
            processes=_PROCESSES,
            slots=system.slots,
            seconds=2 * stage.scale.flow_seconds,
        )
    if len(runs) < case.places:
        raise ChildFailed(f"{len(runs)} jobs were run, too few to measure")
    over = sum(spans.starts_over(of_key, case.each) for of_key in spans.by_key(runs))
    return spans.rate(runs), over


def _tell(stage: Stage, case: Case, taken: Mapping[System, list[tuple[float, float]]]) -> None:
    ours: tuple[float, ...] = ()
    for system, values in taken.items():
        rates, over = zip(*values, strict=True)
        is_ours = system.module == OURS_HERE.module
        stage.add(case.name, "jobs/s", rates, system=system.name)
        stage.add(
            f"{case.name}, starts over the limit",
            "starts",
            over,
            system=system.name,
            goal=Goal(most=0) if is_ours else None,
        )
        if is_ours:
            ours = rates
        else:
            stage.compare(f"{case.name}, {system.name}", ours, rates, beside_name=system.name)
