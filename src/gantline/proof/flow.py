"""Rules for limits and gates: what claims that bring them have started is never more than allowed.

Only what certainly ran, or certainly was started, is counted; and of limits only runs that were
started under one, since a store need not count others.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gantline.contract.flow import TypeFlow
from gantline.proof.call import Call, StartedRun
from gantline.proof.facts import ClaimFacts, Facts

_SAME_SECONDS: Final = 1e-3
"""Instants of a store's clock may be rounded to this."""


class _Counted(NamedTuple):
    """Of what a limit counts the runs; of a group, or of all of a type."""

    job_type: str
    group: tuple[str, str] | None = None

    def __str__(self) -> str:
        of = f" of the group {self.group[1]!r} of {self.group[0]}" if self.group else ""
        return f"{self.job_type}{of}"


class _Current:
    """Runs of which it is known between which positions they certainly ran."""

    def __init__(self) -> None:
        self._later: list[tuple[int, int]] = []
        self._begun: list[int] = []
        """Where those end that have begun."""

    def add(self, begin: int, end: int) -> None:
        heapq.heappush(self._later, (begin, end))

    def count(self, call: Call) -> int:
        """How many ran all the while; asked for call by call, in the order of their beginning."""
        while self._later and self._later[0][0] < call.first:
            self._begun.append(heapq.heappop(self._later)[1])
        self._begun = [end for end in self._begun if end > call.first]
        return sum(end > call.last for end in self._begun)


def check_flow(facts: Facts) -> None:
    """Judge all claims that bring limits or gates."""
    flowing = [
        (claims[0], flows)
        for claims in facts.claims.values()
        # Of one that is repeated it is not known when its runs were started.
        if len(claims) == 1 and claims[0].call.is_certain and (flows := _flows_of(claims[0]))
    ]
    flowing.sort(key=lambda one: one[0].call.first)
    current: dict[_Counted, _Current] = defaultdict(_Current)
    for claim, flows in flowing:
        _check_limits(facts, claim, flows, current)
    if not facts.clears:  # gates began anew
        _check_gates(facts, flowing)


def _flows_of(claim: ClaimFacts) -> dict[str, list[TypeFlow]]:
    found: dict[str, list[TypeFlow]] = defaultdict(list)
    for request in claim.claim.requests:
        for flow in request.flow:
            found[flow.job_type].append(flow)
    return found


def _check_limits(
    facts: Facts,
    claim: ClaimFacts,
    flows: dict[str, list[TypeFlow]],
    current: dict[_Counted, _Current],
) -> None:
    limited = [run for run in claim.runs if any(map(_is_limit, flows.get(run.job_type, ())))]
    counted = {run.token: tuple(_counted(run)) for run in limited}
    for what, started in Counter(one for some in counted.values() for one in some).items():
        most = _most(what, flows[what.job_type])
        running = started + current[what].count(claim.call)
        if most is not None and running > most:
            message = f"{running} runs of {what} at once, where the claim allows {most}"
            facts.broke("limit", message, claim.call)
    for run in limited:
        ends = facts.jobs[run.job_id].ends_of(facts.runs[run.token])
        end = min([*(one.first for one in ends), facts.cleared_first])
        for what in counted[run.token]:
            current[what].add(claim.call.last, end)


def _is_limit(flow: TypeFlow) -> bool:
    return flow.running is not None or flow.running_in_all is not None


def _counted(run: StartedRun) -> Iterator[_Counted]:
    yield _Counted(run.job_type)
    yield _Counted(run.job_type, (run.tenant_id, run.group))


def _most(what: _Counted, flows: Iterable[TypeFlow]) -> int | None:
    """The widest of what several requests of a claim say."""
    limits = [flow.running if what.group else flow.running_in_all for flow in flows]
    known = [limit for limit in limits if limit is not None]
    return max(known) if len(known) == len(limits) else None


# -- gates --------------------------------------------------------------------------------------


class _Starts:
    """What went through a gate, at which time of the store's clock, and the widest of its rates."""

    def __init__(self) -> None:
        self.at: list[tuple[float, int]] = []
        self.calls: list[Call] = []
        self.per_second = 0.0
        self.burst_seconds = 0.0

    @property
    def burst(self) -> float:
        return self.per_second * (self.burst_seconds + _SAME_SECONDS)


def _check_gates(
    facts: Facts, flowing: Iterable[tuple[ClaimFacts, dict[str, list[TypeFlow]]]]
) -> None:
    starts: dict[str, _Starts] = defaultdict(_Starts)
    for claim, flows in flowing:
        for run in claim.runs:
            gates = {flow.gate for flow in flows.get(run.job_type, ())}
            if len(gates) != 1 or run.due_at is None or run.waited_seconds is None:
                continue
            for gate in filter(None, gates):
                seen = starts[gate.name]
                seen.at.append((run.due_at + run.waited_seconds, len(seen.calls)))
                seen.calls.append(claim.call)
                seen.per_second = max(seen.per_second, gate.per_second)
                seen.burst_seconds = max(seen.burst_seconds, gate.burst / gate.per_second)
    for name, seen in starts.items():
        _check_rate(facts, name, seen)


def _check_rate(facts: Facts, name: str, starts: _Starts) -> None:
    """In any window from one start to another: at most rate times its length, and burst."""
    least, begin = float("inf"), starts.calls[0]
    for count, (at, index) in enumerate(sorted(starts.at)):
        due = count - starts.per_second * at
        if due < least:
            least, begin = due, starts.calls[index]
        if due - least + 1 > starts.burst + 1e-6:
            over = due - least + 1 - starts.burst
            message = f"the gate {name} let {over:.2f} through too many"
            facts.broke("gate", message, begin, starts.calls[index])
            return
