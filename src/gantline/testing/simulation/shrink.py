"""Shortens a script that breaks a rule to the smallest that still does."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from gantline.testing.simulation.network import Chances
from gantline.testing.simulation.run import Report
from gantline.testing.simulation.script import Script

T = TypeVar("T")


def shrink(
    script: Script,
    simulate: Callable[[Script], Report],
    *,
    most_runs: int = 400,
    said: Callable[[Script], None] = lambda script: None,
) -> Script:
    """Leave out whatever is not needed for a violation. `said` is called with each shorter one."""
    left = most_runs
    report = simulate(script)
    assert report.violations, "there is nothing to shrink"
    best = msgspec.structs.replace(script, faults=report.happened)

    def fails(candidate: Script) -> bool:
        nonlocal left
        left -= 1
        return bool(simulate(candidate).violations)

    if not fails(best):  # it depends on more than which calls failed
        best = script
    found = True
    while found and left > 0:
        found = False
        for candidate in _shorter(best):
            if left <= 0:
                break
            if fails(candidate):
                best, found = candidate, True
                said(best)
                break
    return best


def _shorter(script: Script) -> Iterator[Script]:
    """What is left without some of it, the largest parts first."""
    for steps in _without_parts(script.steps):
        yield msgspec.structs.replace(script, steps=steps)
    if script.faults:
        for faults in _without_parts(script.faults):
            yield msgspec.structs.replace(script, faults=faults)
    for workers in range(1, script.workers):
        yield msgspec.structs.replace(script, workers=workers)
    calm = Chances(fault=script.chances.fault, hint_lost=0, hint_doubled=0, latency_seconds=0)
    if script.chances != calm:
        yield msgspec.structs.replace(script, chances=calm)
    if script.retention is not None:
        yield msgspec.structs.replace(script, retention=None)
    for limits in _without_parts(script.limits):
        yield msgspec.structs.replace(script, limits=limits)
    if script.slots_in_all is not None:
        yield msgspec.structs.replace(script, slots_in_all=None)


def _without_parts(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    size = len(items)
    while size > 0:
        for first in range(0, len(items), size):
            yield (*items[:first], *items[first + size :])
        size //= 2
