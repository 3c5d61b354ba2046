"""Suspects: jobs that were in several crashes. Which of them crashes workers is found by halves.

A process runs at most half as many suspects together as it has slots, a quarter of those that were
in one more crash, and so on until each runs alone. The innocent ones complete on the way; ordinary
jobs go on beside all but those that run alone.
"""

from gantline.contract.snapshot import MOST_CRASHES_TOLD_APART, SUSPECT_AFTER_CRASHES, Run


def group_sizes(slots: int) -> tuple[int, ...]:
    """How many suspects may run together in a process, of those in 2, 3, 4 … crashes."""
    halved = MOST_CRASHES_TOLD_APART - SUSPECT_AFTER_CRASHES
    return (*(max(1, slots >> times) for times in range(1, halved + 1)), 1)


def runs_alone(run: Run, slots: int) -> bool:
    """Whether nothing at all may run beside it in this process."""
    times = run.crashes - SUSPECT_AFTER_CRASHES + 1
    return run.crashes >= MOST_CRASHES_TOLD_APART or (times > 0 and slots >> times == 0)
