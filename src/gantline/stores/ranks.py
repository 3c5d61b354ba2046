"""Ranks: the order in which a claim takes the Queued jobs of a lane (`rank` in the contract)."""

from typing import Final

from gantline.contract.snapshot import MOST_CRASHES_COUNTED, SUSPECT_AFTER_CRASHES, rank

PRIORITIES: Final = 4
SUSPECT_CRASHES: Final = range(SUSPECT_AFTER_CRASHES, MOST_CRASHES_COUNTED + 1)
"""The numbers of crashes by which suspects are grouped."""
RANKS: Final = {
    crashes: range(rank(0, crashes), rank(0, crashes) + PRIORITIES)
    for crashes in (0, *SUSPECT_CRASHES)
}
"""The ranks of jobs that were in so many crashes, by priority; under 0 those of ordinary jobs."""


def ranks_before(rank: int) -> list[int]:
    """The ranks of which all that is due is claimed before a job of this one, in that order."""
    first = rank - rank % PRIORITIES
    more_crashes = range(first + PRIORITIES, RANKS[MOST_CRASHES_COUNTED].stop) if first else ()
    return [*more_crashes, *range(first, rank)]


def crashes_of(rank: int) -> int:
    """In how many crashes the suspects of a rank were."""
    return rank // PRIORITIES + SUSPECT_AFTER_CRASHES - 1
