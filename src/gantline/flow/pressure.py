"""Pressure: what limits hold back at this moment, counted for metrics and the doctor."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from gantline.contract.flow import GroupState, TypeFlow
from gantline.contract.query import LaneCounts
from gantline.contract.store import JobReader
from gantline.flow.limits import Limits, opens_at

MOST_GROUPS: Final = 1000
"""How many groups of a queue and type are looked at; or a page more."""

Held = Literal["group", "type", "gate"]


class Pressure(NamedTuple):
    """What limits hold back, of all types that have some."""

    gates: Mapping[str, float]
    """In how many seconds each gate has room; 0 where it has."""
    groups: Mapping[str, int]
    """Of how many groups jobs wait, by type: of types that limit the runs of each group."""
    held_back: Mapping[tuple[str, Held], int]
    """How many due jobs are held back, by type and by what. One may be counted under each."""


NO_PRESSURE: Final = Pressure({}, {}, {})


async def measure_pressure(
    store: JobReader, limits: Limits, lanes: Sequence[LaneCounts], now: datetime
) -> Pressure:
    """Count what is held back. Reads nothing where no type has limits."""
    gates = {flow.gate.name: flow.gate for flow in limits.all_holding if flow.gate}
    states = await store.gates(list(gates)) if gates else []
    seconds = {
        state.name: max(0.0, (opens_at(gates[state.name], state, now) - now).total_seconds())
        for state in states
    }
    groups: Counter[str] = Counter()
    held: dict[tuple[str, Held], int] = {}
    for flow in limits.all_holding:
        own = [lane for lane in lanes if lane.job_type == flow.job_type]
        due = sum(lane.queued - lane.scheduled for lane in own)
        if flow.gate is not None:
            held[flow.job_type, "gate"] = due if seconds[flow.gate.name] else 0
        if flow.running_in_all is not None:
            is_full = sum(lane.running for lane in own) >= flow.running_in_all
            held[flow.job_type, "type"] = due if is_full else 0
        if flow.running is not None:
            groups[flow.job_type], waiting = await _full(store, flow, own)
            held[flow.job_type, "group"] = min(due, waiting)
    return Pressure(seconds, groups, held)


async def _full(store: JobReader, flow: TypeFlow, lanes: Sequence[LaneCounts]) -> tuple[int, int]:
    """Of how many groups jobs wait, and how many of these jobs are of groups that are full."""
    waiting: Counter[tuple[str, str]] = Counter()
    running: Counter[tuple[str, str]] = Counter()
    for lane in lanes:
        if not lane.queued and not lane.running:
            continue
        async for one in _groups(store, lane):
            running[one.tenant_id, one.group] += one.running
            if one.oldest_due_at is not None:
                waiting[one.tenant_id, one.group] += one.waiting
    full = [group for group in waiting if running[group] >= (flow.running or 0)]
    return len(waiting), sum(waiting[group] for group in full)


async def _groups(store: JobReader, lane: LaneCounts) -> AsyncIterator[GroupState]:
    """Give the groups of a lane, page by page: a store may give fewer than it was asked for."""
    seen, after = 0, ""
    while seen < MOST_GROUPS:
        page = await store.groups(
            lane.queue, lane.job_type, tenant_id=None, limit=MOST_GROUPS, after=after
        )
        for one in page.items:
            yield one
        seen += len(page.items)
        if not (after := page.next):
            return
