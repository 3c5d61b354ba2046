"""What runs tell by their instants: how many at once, how full places were, how soon refilled."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.flow.player import NotedRun

_PER_MS = 1e6
_PER_SECOND = 1e9


def by_key(runs: Iterable[NotedRun]) -> list[list[NotedRun]]:
    found: dict[str, list[NotedRun]] = defaultdict(list)
    for run in runs:
        found[run.key].append(run)
    return list(found.values())


def starts_over(runs: Sequence[NotedRun], most: int) -> int:
    """How many began while as many as may be were at work already."""
    over = 0
    at_work: list[int] = []
    for run in sorted(runs, key=lambda run: run.began_ns):
        at_work = [ended for ended in at_work if ended > run.began_ns]
        over += len(at_work) >= most
        at_work.append(run.ended_ns)
    return over


def share_used(runs: Sequence[NotedRun], places: int) -> float:
    """How much of the places' time was used, from the first start to the last."""
    first = min(run.began_ns for run in runs)
    last = max(run.began_ns for run in runs)
    used = sum(min(run.ended_ns, last) - run.began_ns for run in runs)
    return used / (places * (last - first))


def refills_ms(runs: Sequence[NotedRun], places: int) -> list[float]:
    """From each end to the start that took its place, of runs that share these places."""
    starts = sorted(run.began_ns for run in runs)[places:]
    ends = sorted(run.ended_ns for run in runs)
    return [(start - end) / _PER_MS for start, end in zip(starts, ends, strict=False)]


def rate(runs: Sequence[NotedRun]) -> float:
    """Runs a second, from the first start to the last end."""
    first = min(run.began_ns for run in runs)
    last = max(run.ended_ns for run in runs)
    return len(runs) / ((last - first) / _PER_SECOND)


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
