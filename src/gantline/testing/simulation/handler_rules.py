"""Rules for handlers, as they were really called: at most one of a job, within slots and lease."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final
from uuid import UUID

from gantline.testing.simulation.application import LIMITED, QUEUES, Handled
from gantline.testing.simulation.outside import Lease, Outside
from gantline.testing.simulation.script import Script

_SAME: Final = 1e-9
_ALL: Final = "all queues"
Tokens = Mapping[tuple[str, int], UUID]
"""By job and fence."""


def check_handlers(
    script: Script, outside: Outside, runs: Sequence[Handled], tokens: Tokens
) -> Iterator[str]:
    """Judge all calls of handlers that came to their end."""
    by_job: dict[str, list[Handled]] = defaultdict(list)
    for run in runs:
        by_job[run.job_id].append(run)
    for some in by_job.values():
        ordered = sorted(some, key=lambda run: (run.began, run.fence))
        for one, other in pairwise(ordered):
            yield from _side_by_side(script, outside, one, other)
    for run in runs:
        yield from _without_a_lease(script, outside, run, tokens)
    yield from _beyond_the_slots(script, runs)


def _side_by_side(script: Script, outside: Outside, one: Handled, other: Handled) -> Iterator[str]:
    """No two handlers of a job, unless the one that is over could not know that its lease was."""
    is_same_run = (one.process, one.fence) == (other.process, other.fence)
    if is_same_run and one.stopped is None:
        yield f"the handler of {one} had returned, and was called again in the same run: {other}"
        return
    over = min(one, other, key=lambda run: run.fence)
    if other.began < one.until - _SAME and (is_same_run or not _is_excused(script, outside, over)):
        yield f"job {one.job_id} ran in {one} and in {other} at once"


def _is_excused(script: Script, outside: Outside, run: Handled) -> bool:
    """Where the clock was set since its lease was given, that may have ended at once; and a process
    that stood still between the claim and the call of the handler calls it when it goes on."""
    given = run.began - script.lease
    since = given if run.ended - run.began < _SAME else run.began
    return outside.stood_still(run.process, since, run.ended) or outside.has_jumped(
        given, run.ended
    )


def _without_a_lease(
    script: Script, outside: Outside, run: Handled, tokens: Tokens
) -> Iterator[str]:
    """A handler is asked to stop before its lease runs out, so before anybody else may begin."""
    token = tokens.get((run.job_id, run.fence))
    if token is None:
        return
    for until, after in _gaps(outside.leases[token]):
        if run.began >= after - _SAME or run.until <= until + _SAME:
            continue
        since = min(run.began, until - script.lease)
        if outside.stood_still(run.process, since, run.until):
            continue
        if not outside.has_jumped(since, run.until):
            yield f"the lease of {run} ran out at {until}, and its handler went on"
            return


def _gaps(leases: Sequence[Lease]) -> Iterator[tuple[float, float]]:
    """When the store held no lease any more, and when it gave the next one."""
    until = float("-inf")
    for lease in leases:
        if lease.at > until > float("-inf"):
            yield until, lease.at
        until = max(until, lease.until)
    yield until, float("inf")


def _beyond_the_slots(script: Script, runs: Sequence[Handled]) -> Iterator[str]:
    everywhere = script.slots_in_all or script.slots * len(set(QUEUES.values()))
    most = dict.fromkeys(QUEUES.values(), script.slots) | {LIMITED: 1, _ALL: everywhere}
    marks: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for run in runs:
        names = [QUEUES[run.job_type], _ALL]
        names += [LIMITED] if run.job_type == LIMITED else []
        for name in names if run.ended - run.began > _SAME else ():
            marks[run.process, name] += [(run.began, 1), (run.ended, -1)]
    for (process, name), changes in marks.items():
        running = 0
        for at, change in sorted(changes):
            running += change
            if running > most[name]:
                said = f"{process} ran {running} handlers of {name} at once at {at}"
                yield f"{said}, not {most[name]}"
                break
