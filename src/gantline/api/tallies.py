"""Tallies: the counts of several lanes as one."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from gantline.contract.query import LaneCounts

_COUNTED: Final = (
    "queued",
    "scheduled",
    "running",
    "completed",
    "failed",
    "poisoned",
    "cancelled",
)


def summed(lanes: Sequence[LaneCounts], now: datetime) -> dict[str, Any]:
    """The fields of `JobCounts`."""
    counts = {name: sum(getattr(lane, name) for lane in lanes) for name in _COUNTED}
    return {**counts, "oldest_age_seconds": oldest_age_seconds(lanes, now)}


def fullness(lanes: Sequence[LaneCounts]) -> tuple[int, int]:
    """How much is going on in lanes, and how much there was: to find the fullest where there are
    too many, since any submitter may invent queues."""
    going_on = sum(lane.queued + lane.running for lane in lanes)
    ended = sum(lane.completed + lane.failed + lane.poisoned + lane.cancelled for lane in lanes)
    return going_on, ended


def oldest_age_seconds(lanes: Sequence[LaneCounts], now: datetime) -> float | None:
    waiting = [lane.oldest_due_at for lane in lanes if lane.oldest_due_at is not None]
    return max(0.0, (now - min(waiting)).total_seconds()) if waiting else None
