"""Tallies: the counts of several lanes as one, and how queues and types are switched."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from gantline.api.documents import JobTypeState, LaneDocument, QueueDocument, QueueState
from gantline.contract.query import LaneCounts
from gantline.manager.switches import Switches

COUNTED: Final = ("queued", "scheduled", "running", "completed", "failed", "poisoned", "cancelled")


def summed(lanes: Sequence[LaneCounts], now: datetime) -> dict[str, Any]:
    """The fields of `JobCounts`."""
    counts = {name: sum(getattr(lane, name) for lane in lanes) for name in COUNTED}
    return {**counts, "oldest_age_seconds": oldest_age_seconds(lanes, now)}


def fullness(lanes: Sequence[LaneCounts]) -> tuple[int, int]:
    """How much is going on in lanes, and how much there was: to find the fullest where there are
    too many."""
    going_on = sum(lane.queued + lane.running for lane in lanes)
    ended = sum(lane.completed + lane.failed + lane.poisoned + lane.cancelled for lane in lanes)
    return going_on, ended


def oldest_age_seconds(lanes: Sequence[LaneCounts], now: datetime) -> float | None:
    waiting = [lane.oldest_due_at for lane in lanes if lane.oldest_due_at is not None]
    return max(0.0, (now - min(waiting)).total_seconds()) if waiting else None


def lane_document(lane: LaneCounts, now: datetime) -> LaneDocument:
    return LaneDocument(queue=lane.queue, job_type=lane.job_type, **summed([lane], now))


def queue_document(
    queue: str, lanes: Sequence[LaneCounts], switches: Switches, now: datetime
) -> QueueDocument:
    state = msgspec.structs.asdict(queue_state(queue, switches))
    return QueueDocument(**state, **summed(lanes, now))


def queue_state(queue: str, switches: Switches) -> QueueState:
    return QueueState(
        queue=queue,
        paused=queue in switches.paused_queues,
        max_depth=switches.depth_caps.get(queue),
        max_depth_per_tenant=switches.tenant_depth_caps.get(queue),
    )


def type_state(name: str, switches: Switches) -> JobTypeState:
    disabled, paused = name in switches.disabled_types, name in switches.paused_types
    return JobTypeState(job_type=name, disabled=disabled, paused=paused)
