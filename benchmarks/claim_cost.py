"""`claim_cost`: whether a claim costs the same whatever else is in the store."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from benchmarks import claim_timing
from benchmarks.bench import Bench
from benchmarks.claim_timing import SeededFile
from benchmarks.jobs import JOB_TYPE, lane_requests, new_jobs
from benchmarks.report import GANTLINE
from benchmarks.scale import Scale, short
from benchmarks.seeding import Group
from gantline.contract.clock import SystemClock
from gantline.contract.outcome import Success
from gantline.stores.memory import MemoryStore

LIMITS: Final = (1, 100)

Timing = Callable[[Sequence[SeededFile], Scale], list[list[float]]]


class Case(NamedTuple):
    """What is in the store, and which types are asked for."""

    name: str
    groups: tuple[Group, ...]
    asked: tuple[str, ...] = (JOB_TYPE,)


def cases(scale: Scale) -> list[Case]:
    """The first is the yardstick."""
    most, types = short(scale.most), short(scale.types)
    type_names = tuple(f"type-{number:04}" for number in range(scale.types))
    due = Group(jobs=scale.few)
    future = Group(jobs=scale.most, priority=0, delay=timedelta(days=1))
    paused = Group(jobs=scale.most, job_types=("paused",))
    ended = Group(jobs=scale.most, outcome=Success(result=b'{"sent":true}'))
    one_each = Group(jobs=scale.types, job_types=type_names)
    many_each = Group(jobs=scale.most, job_types=type_names)
    return [
        Case(f"{short(scale.few)} pending", (due,)),
        Case(f"{short(scale.many)} pending", (Group(jobs=scale.many),)),
        Case(f"{most} pending", (Group(jobs=scale.most),)),
        Case(f"{most} future in front", (future, due)),
        Case(f"{most} of a paused type", (paused, due)),
        Case(f"{most} finished", (ended, due)),
        Case(f"{types} types, 1 job each", (one_each,), type_names),
        Case(f"{types} types, {most} jobs", (many_each,), type_names),
    ]


def run(bench: Bench) -> None:
    # Rolled-back claims come first, and small ones first: released jobs are due at one instant.
    for limit in LIMITS:
        _measure_sqlite(bench, limit, "statements only", claim_timing.statements_only)
    for limit in LIMITS:
        _measure_sqlite(bench, limit, "through the store", claim_timing.through_files)
    asyncio.run(_measure_memory(bench))


def _measure_sqlite(bench: Bench, limit: int, way: str, timing: Timing) -> None:
    costs = _Costs(bench, "sqlite", f"claim of {limit}, {way}")
    yardstick, *others = cases(bench.scale)
    for case in others:
        bench.report.say(f"  claim of {limit}, {way}, {case.name}")
        files = [
            SeededFile(bench.seeded_file(*each.groups), lane_requests(limit, *each.asked))
            for each in (yardstick, case)
        ]
        costs.add(case.name, *timing(files, bench.scale))
    costs.report(yardstick.name)


class _Costs:
    """Milliseconds per claim of many cases, each taken in turns with the yardstick."""

    def __init__(self, bench: Bench, engine: str, what: str) -> None:
        self._report = bench.report
        self._engine = engine
        self._what = what
        self._pairs: dict[str, tuple[list[float], list[float]]] = {}

    def add(self, case: str, yardstick: list[float], values: list[float]) -> None:
        self._pairs[case] = (yardstick, values)

    def report(self, yardstick: str) -> None:
        every = [value for beside, _ in self._pairs.values() for value in beside]
        self._add(yardstick, every)
        for case, (beside, values) in self._pairs.items():
            self._add(case, values)
            self._report.compare(
                engine=self._engine,
                metric=f"{self._what}, {case}",
                values=values,
                beside=beside,
                beside_name=yardstick,
            )

    def _add(self, case: str, values: list[float]) -> None:
        self._report.add(
            engine=self._engine,
            system=GANTLINE,
            metric=f"{self._what}, {case}",
            unit="ms",
            values=values,
        )


async def _measure_memory(bench: Bench) -> None:
    few, most = bench.scale.few, bench.scale.most
    bench.report.say(f"  {short(most)} pending in memory")
    stores = [await _memory_store(few), await _memory_store(most)]
    for limit in LIMITS:
        costs = _Costs(bench, "memory", f"claim of {limit}")
        asked = [(store, lane_requests(limit)) for store in stores]
        values = await claim_timing.through_stores(asked, bench.scale)
        costs.add(f"{short(most)} pending", *values)
        costs.report(f"{short(few)} pending")


async def _memory_store(jobs: int) -> MemoryStore:
    store = MemoryStore(clock=SystemClock())
    await store.insert(new_jobs(jobs))
    return store
