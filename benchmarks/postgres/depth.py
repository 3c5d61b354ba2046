"""Whether a drain is as fast whatever else is in the store."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from benchmarks.contest.children import drained_by
from benchmarks.contest.on_gantline import type_names
from benchmarks.contest.system import OURS
from benchmarks.postgres.seeding import Group, seed, settle_disk
from benchmarks.postgres.stage import Stage
from benchmarks.postgres.store import opened
from benchmarks.report import Goal
from benchmarks.scale import Scale, short
from gantline.contract.outcome import Success
from gantline.manager.switches import Switches

_GOAL: Final = Goal(least=0.9)


class _Case(NamedTuple):
    """What lies behind, and how what is drained is spread."""

    name: str
    behind: tuple[Group, ...] = ()
    drained: Callable[[int], Group] = lambda jobs: Group(jobs=jobs)
    types: int = 0
    paused: tuple[str, ...] = ()


def _cases(scale: Scale) -> list[_Case]:
    most, types, tenants = scale.most, scale.types, scale.many
    names, paused = type_names(types), type_names(1)
    return [
        _Case(f"{short(most)} pending behind", (Group(jobs=most),)),
        _Case(
            f"{short(most)} future in front",
            (Group(jobs=most, priority=0, delay=timedelta(days=1)),),
        ),
        _Case(
            f"{short(most)} of a paused type",
            (Group(jobs=most, job_types=paused, priority=0),),
            types=1,
            paused=paused,
        ),
        _Case(f"{short(most)} finished", (Group(jobs=most, outcome=Success(b"true")),)),
        _Case(
            f"over {short(types)} types",
            drained=lambda jobs: Group(jobs=jobs, job_types=names),
            types=types,
        ),
        _Case(
            f"over {short(tenants)} tenants",
            (Group(jobs=tenants, tenants=tenants, outcome=Success(b"true")),),
            drained=lambda jobs: Group(jobs=jobs, tenants=tenants),
        ),
    ]


def run(stage: Stage) -> list[float]:
    """Give the rates with nothing else, for what goes by them."""
    metric = f"drain of {short(stage.scale.depth_jobs)}"
    every: list[float] = []
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    for case in _cases(stage.scale):
        stage.say(f"drain, {case.name}")
        plain, rates = _measured(stage, case)
        every += plain
        pairs[case.name] = (plain, rates)
    stage.add(f"{metric}, nothing else", "jobs/s", every)
    for name, (plain, rates) in pairs.items():
        stage.add(f"{metric}, {name}", "jobs/s", rates)
        stage.compare(f"{metric}, {name}", rates, plain, beside_name="nothing else", goal=_GOAL)
    return every


def _measured(stage: Stage, case: _Case) -> tuple[list[float], list[float]]:
    """Rates with nothing else and those of the case, in turns."""
    plain = _Case("nothing else")
    with stage.database(OURS, "plain") as without, stage.database(OURS, "deep") as within:
        both = ((plain, without), (case, within))
        for one, url in both:
            seed(url, one.behind)
            asyncio.run(_pause(url, one.paused))
        taken: dict[str, list[float]] = {plain.name: [], case.name: []}
        for _ in range(stage.scale.worker_runs):
            for one, url in both:
                taken[one.name].append(_rate(url, one, stage.scale.depth_jobs))
    return taken[plain.name], taken[case.name]


async def _pause(url: str, job_types: tuple[str, ...]) -> None:
    async with opened(url) as store:
        for job_type in job_types:
            await Switches(store).pause_type(job_type)


def _rate(url: str, case: _Case, jobs: int) -> float:
    seed(url, [case.drained(jobs)])
    settle_disk(url)
    # What is left for the next round is less than a worker has in hand, so it never runs dry.
    some = jobs - 2 * OURS.slots
    command = OURS.command(url, "drain_some", jobs=some, slots=OURS.slots, types=case.types)
    return drained_by(command, 1).rate
