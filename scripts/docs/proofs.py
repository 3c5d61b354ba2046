"""What the proofs came to, from the results that they keep in tests/."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from textwrap import shorten
from typing import Any, Final, NamedTuple

import msgspec

from gantline.proving.report import Report
from gantline.testing.simulation.__main__ import Tally
from scripts.docs.markdown import code, table
from tests.chaos.results import Result
from tests.mutants.killing import Result as Mutated
from tests.seeded_bugs.catching import Catch

TESTS: Final = Path(__file__).parents[2] / "tests"
STORES: Final = {
    "memory": "memory",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "redis": "Redis",
}


class _Simulated(NamedTuple):
    """All runs on one store."""

    store: str
    tallies: Sequence[Tally]

    def total(self, name: str) -> int:
        return sum(getattr(tally, name) for tally in self.tallies)

    @property
    def minutes(self) -> float:
        return sum(tally.minutes_of_a_core for tally in self.tallies)

    @property
    def faults(self) -> Counter[str]:
        return sum((Counter(tally.faults) for tally in self.tallies), Counter[str]())


def _simulated() -> list[_Simulated]:
    tallies: list[Tally] = _read("proving/simulated.json", Tally)
    stores = dict.fromkeys(tally.store for tally in tallies)
    return [
        _Simulated(STORES[store], [tally for tally in tallies if tally.store == store])
        for store in stores
    ]


def simulated() -> str:
    """For each store that is simulated: how much, and what broke."""
    stores = _simulated()
    rows = {
        "seeds": [f"{one.total('seeds'):,}" for one in stores],
        "verb calls that found or changed something": [
            f"{one.total('busy_calls'):,}" for one in stores
        ],
        "verb calls that found nothing to do": [f"{one.total('idle_calls'):,}" for one in stores],
        "faults": [f"{one.faults.total():,}" for one in stores],
        "jobs": [f"{one.total('jobs'):,}" for one in stores],
        "runs": [f"{one.total('runs'):,}" for one in stores],
        "verb calls a minute of one core": [
            f"{one.total('calls') / one.minutes:,.0f}" for one in stores
        ],
        "faults a minute of one core": [
            f"{one.faults.total() / one.minutes:,.0f}" for one in stores
        ],
        "seeds in which a rule was broken": [
            f"**{sum(len(tally.failed) for tally in one.tallies)}**" for one in stores
        ],
    }
    head = ["", *(one.store for one in stores)]
    return table(head, [[name, *cells] for name, cells in rows.items()])


def simulated_faults() -> str:
    """How often each fault was made, on each store."""
    stores = _simulated()
    kinds = sorted({kind for one in stores for kind in one.faults})
    head = ["fault", *(one.store for one in stores)]
    return table(head, [[kind, *(f"{one.faults[kind]:,}" for one in stores)] for kind in kinds])


def proven() -> str:
    """What `gantline prove` reported of each store."""
    return _reports([(STORES[one.store], one) for one in _read("proving/results.json", Report)])


def proven_faults() -> str:
    """How often each fault was made, on each store."""
    reports = _read("proving/results.json", Report)
    kinds = list(dict.fromkeys(kind for report in reports for kind in report.faults))
    head = ["fault", *(STORES[report.store] for report in reports)]
    return table(head, [[kind, *(f"{one.faults[kind]:,}" for one in reports)] for kind in kinds])


def _reports(named: Iterable[tuple[str, Report]]) -> str:
    head = (
        *("", "minutes", "faults", "jobs", "lost", "not ended", "ends doubled"),
        *("events missing", "stalls", "other violations", "recovery p50", "p99"),
    )
    return table(head, [[name, *_cells(report)] for name, report in named])


def _cells(report: Report) -> Sequence[str]:
    broken = (report.lost, report.unended, report.doubled)
    recovery = report.recovery
    return (
        f"{report.minutes:.1f}",
        f"{sum(report.faults.values()):,}",
        f"{report.jobs:,}",
        *(f"**{count}**" for count in broken),
        f"**{report.events_missing}** of {report.events:,}",
        f"**{report.stalls}**",
        f"**{report.others}**",
        *_recovery(recovery.kills, recovery.p50, recovery.p99),
    )


def chaos() -> str:
    """What each fault did on each store."""
    found: list[Result] = _read("chaos/results.json", Result)
    head = (
        *("fault", "store", "times", "jobs", "lost", "not ended", "ends doubled"),
        *("events missing", "stalls", "other violations", "recovery p50", "p99"),
    )
    rows = [
        [
            one.fault,
            STORES[one.store],
            f"{sum(one.faults.values()):,}",
            f"{one.jobs:,}",
            *(f"**{count}**" for count in (one.lost, one.unended, one.doubled)),
            f"**{one.events_missing}** of {one.events:,}",
            f"**{one.stalls}**",
            f"**{one.others}**",
            *_recovery(one.recoveries, one.recovery_p50, one.recovery_p99),
        ]
        for one in found
    ]
    return table(head, rows)


def _recovery(count: int, p50: float, p99: float) -> Sequence[str]:
    return (f"{p50:.1f} s", f"{p99:.1f} s") if count else ("", "")


def mutants() -> str:
    """How many were killed, by part."""
    rows = []
    found: list[Mutated] = _read("mutants/results.json", Mutated)
    for part in dict.fromkeys(one.part for one in found):
        of_part = [one for one in found if one.part == part]
        equivalent = sum(bool(one.equivalent) and not one.killed_by for one in of_part)
        killed = sum(bool(one.killed_by) for one in of_part)
        rest = len(of_part) - equivalent
        rows.append([part, str(len(of_part)), str(equivalent), str(killed), f"{killed / rest:.1%}"])
    return table(["part", "mutants", "equivalent", "killed", "of those that can be"], rows)


def bugs() -> str:
    """How many of those that were put in are caught, by part."""
    catches = _read("seeded_bugs/results.json", Catch)
    rows = []
    for part in dict.fromkeys(catch.part for catch in catches):
        of_part = [catch for catch in catches if catch.part == part]
        caught = [catch for catch in of_part if catch.is_caught]
        seconds = [catch.cpu_seconds for catch in caught]
        times = (f"{median(seconds):.1f} s", f"{max(seconds):.1f} s") if seconds else ("", "")
        rows.append([part, str(len(of_part)), str(len(caught)), *times])
    total = sum(catch.is_caught for catch in catches)
    rows.append(["**all**", f"**{len(catches)}**", f"**{total}**", "", ""])
    return table(["part", "bugs", "caught", "CPU time, median", "longest"], rows)


def each_bug() -> str:
    """All of them, with the seed that catches each."""
    rows = []
    for catch in _read("seeded_bugs/results.json", Catch):
        by = catch.by if catch.seed is None else f"{catch.by}, seed {catch.seed}"
        rule = shorten(catch.rule.partition(" of job")[0].partition(":")[0], 60, placeholder="…")
        took = f"{catch.cpu_seconds:.1f} s" if catch.is_caught else "not caught"
        rows.append([catch.bug, catch.what, by, code(rule), took])
    return table(["bug", "what is wrong", "caught by", "rule", "CPU time"], rows)


def _read(name: str, kind: Any) -> list[Any]:
    """Keys that a result has besides are passed over."""
    found: list[Any] = msgspec.json.decode((TESTS / name).read_bytes(), type=list[kind])
    return found
