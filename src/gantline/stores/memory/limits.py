"""Limits and gates: what a claim may start of each type and group, counted over what runs."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from gantline.contract.clock import from_micros, to_micros
from gantline.contract.flow import Gate, GateState, TypeFlow
from gantline.contract.query import LaneRequest
from gantline.stores.memory.entry import Entry, Group

_KEPT: Final = timedelta(days=1)


class Gates:
    """When each gate lets something through: by its rate, and because it was closed.

    Its rate is one instant, at which the next would start if all had come evenly (GCRA). It is at
    most `burst` intervals ahead. In nanoseconds, so that it loses nothing.
    """

    def __init__(self) -> None:
        self._next_at: dict[str, int] = {}
        self._closed_until: dict[str, datetime] = {}

    def is_open(self, gate: Gate, now: datetime) -> bool:
        """Whether one more may start."""
        until = self._closed_until.get(gate.name)
        if until is not None and until > now:
            return False
        latest = to_micros(now) * 1000 + gate.burst * _interval(gate)
        return self._due(gate, now) + _interval(gate) <= latest

    def use(self, gate: Gate, now: datetime) -> None:
        self._next_at[gate.name] = self._due(gate, now) + _interval(gate)

    def _due(self, gate: Gate, now: datetime) -> int:
        return max(self._next_at.get(gate.name, 0), to_micros(now) * 1000)

    def close(self, name: str, until: datetime) -> None:
        self._closed_until[name] = max(until, self._closed_until.get(name, until))

    def prune(self, now: datetime) -> None:
        """Forget gates of which nobody has heard for a day: they are open."""
        long_ago = now - _KEPT
        due = to_micros(long_ago) * 1000
        self._next_at = {name: at for name, at in self._next_at.items() if at > due}
        closed = self._closed_until.items()
        self._closed_until = {name: until for name, until in closed if until > long_ago}

    def state(self, name: str) -> GateState:
        due = self._next_at.get(name)
        return GateState(
            name,
            self._closed_until.get(name),
            None if due is None else from_micros(-(-due // 1000)),
        )


def _interval(gate: Gate) -> int:
    return math.ceil(1e9 / gate.per_second)


class Allowance:
    """What a request may still start of each type and group."""

    def __init__(
        self, request: LaneRequest, running: Iterable[Entry], gates: Gates, now: datetime
    ) -> None:
        self._request = request
        self._now = now
        self._gates = gates
        self._at_most = dict(request.at_most)
        self._flows = {flow.job_type: flow for flow in request.flow}
        self.is_bounded = bool(self._at_most or self._flows)
        """Whether anything but the number of jobs is limited."""
        self._running: defaultdict[tuple[str, Group | None], int] = defaultdict(int)
        if self._flows:
            for entry in running:
                self._count(entry)

    def types(self, group: Group) -> Sequence[str]:
        """The types of which one more of this group may start."""
        at_most, flows = self._at_most, self._flows
        return [
            kind
            for kind in self._request.job_types
            if at_most.get(kind, 1) > 0 and (kind not in flows or self._allows(flows[kind], group))
        ]

    def _allows(self, flow: TypeFlow, group: Group) -> bool:
        of_group = self._running[flow.job_type, group]
        in_all = self._running[flow.job_type, None]
        return (
            (flow.running is None or of_group < flow.running)
            and (flow.running_in_all is None or in_all < flow.running_in_all)
            and (flow.gate is None or self._gates.is_open(flow.gate, self._now))
        )

    def use(self, entry: Entry) -> None:
        """Count a job that the request starts."""
        if not self.is_bounded:
            return
        kind = entry.job.job_type
        if kind in self._at_most:
            self._at_most[kind] -= 1
        if flow := self._flows.get(kind):
            self._count(entry)
            if flow.gate:
                self._gates.use(flow.gate, self._now)

    def _count(self, entry: Entry) -> None:
        kind = entry.job.job_type
        self._running[kind, None] += 1
        self._running[kind, entry.group] += 1
