"""Judging a proof: the checker's verdict on the merged history, stalls, and times of recovery."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from gantline.proof.call import Call, Change, StartedRun
from gantline.proof.rest import Rest
from gantline.proving.application import HEARD
from gantline.proving.faults import DEATHS, Fault

HealthySeconds = Callable[[float, float], float]
"""Given from when to when, for how long of it at least one worker could work."""


def find_stalls(
    calls: Sequence[Call], healthy_seconds: HealthySeconds, *, within: float
) -> list[str]:
    """Jobs that were due and did not start within so many seconds, though a worker could work.

    Where more is due than can run, a job may wait as long as others of its queue and type start.
    """
    starts: dict[tuple[str, str], list[float]] = defaultdict(list)
    runs = [
        (call.ended, run)
        for call in calls
        if call.verb == "claim" and call.ended is not None
        for run in call.answers
        if isinstance(run, StartedRun)
    ]
    for at, run in runs:
        starts[run.queue, run.job_type].append(at)
    for times in starts.values():
        times.sort()
    found = []
    for at, run in runs:
        if run.waited_seconds is None or run.waited_seconds <= within:
            continue
        times, due = starts[run.queue, run.job_type], at - run.waited_seconds
        between = times[bisect_right(times, due) : bisect_left(times, at)]
        gaps = (healthy_seconds(*gap) for gap in pairwise([due, *between, at]))
        if (longest := max(gaps)) > within:
            found.append(f"stall of job {run.job_id}: due for {longest:.1f} s, and nothing started")
    return found


def recovery_seconds(calls: Sequence[Call], faults: Sequence[Fault]) -> Iterator[float]:
    """For each worker that was killed with runs, how long until one of its jobs was started again.

    One, for the others may wait until it is their turn.
    """
    running: dict[str, dict[UUID, int]] = defaultdict(dict)
    """By process: jobs whose end it has not written, and their fences."""
    starts: dict[UUID, list[tuple[int, float]]] = defaultdict(list)
    for call in calls:
        if call.ended is None:
            continue
        for item in call.answers if call.verb == "claim" else ():
            if isinstance(item, StartedRun):
                starts[item.job_id].append((item.fence, call.ended))
                running[call.process][item.job_id] = item.fence
        if call.verb == "apply" and not call.error:
            for asked in call.asked:
                if isinstance(asked, Change) and asked.by_run:
                    running[call.process].pop(asked.job_id, None)
    for fault in faults:
        if fault.kind in DEATHS:
            again = [
                began
                for job_id, fence in running[fault.process].items()
                for other, began in starts[job_id]
                if other > fence and began >= fault.at
            ]
            if again:
                yield min(again) - fault.at


def find_unheard(folder: Path, rest: Rest) -> list[str]:
    """Events in the logs of jobs that the durable consumer was never given."""
    heard = {line for file in folder.glob("*" + HEARD) for line in file.read_text().splitlines()}
    return [
        f"event of job {job_id}: version {row.version}, {row.event}, was never delivered"
        for job_id, log in rest.logs.items()
        for row in log
        if f"{job_id} {row.version}" not in heard
    ]
