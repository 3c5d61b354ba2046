"""Views of limits: what is made of those that are stored, and of what is sent to change them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from gantline.api.limit_documents import (
    DeclaredLimits,
    GateDocument,
    GroupDocument,
    LimitDocument,
    LimitsToSet,
)
from gantline.contract.errors import InvalidInput
from gantline.contract.flow import Gate, GateState, GroupState, TypeFlow
from gantline.contract.store import JobReader
from gantline.flow.limit import make_gate, rate_text, read_rate
from gantline.flow.limits import Limits, opens_at
from gantline.flow.rules import Override, Rule


def override_of(asked: LimitsToSet, *, before: TypeFlow) -> Override:
    """What is set, of a type that has these limits; raise InvalidInput."""
    gate: Gate | UnsetType | None = UNSET
    if isinstance(asked.rate, str):
        name = asked.gate or (before.gate.name if before.gate else before.job_type)
        gate = make_gate(name, read_rate(asked.rate), asked.burst or None)
    elif asked.burst is not UNSET or asked.gate is not UNSET:
        if before.gate is None or asked.rate is None:
            raise InvalidInput(
                f"The type {before.job_type!r} has no rate, so it has neither burst nor gate.",
                next_step="Give it a rate too.",
            )
        name, burst = asked.gate or before.gate.name, asked.burst or before.gate.burst
        gate = make_gate(name, before.gate.per_second, burst)
    elif asked.rate is None:
        gate = None
    found = Override(running=asked.running, running_in_all=asked.running_in_all, gate=gate)
    if not found:
        raise InvalidInput("No limit is named.", next_step="Name running, runningInAll or rate.")
    return found


def limit_document(job_type: str, limits: Limits, *, shows_who: bool = True) -> LimitDocument:
    rule = limits.rules.get(job_type, Rule())
    holding = limits.holding(job_type) or TypeFlow(job_type=job_type)
    override = rule.override
    return LimitDocument(
        job_type=job_type,
        **_fields(holding),
        set=_set_fields(override) if override else [],
        set_by=rule.by or None if override and shows_who else None,
        set_at=rule.at if override else None,
        declared=[
            DeclaredLimits(first_seen_at=one.first_seen, **_fields(one.flow))
            for one in reversed(rule.declared)
        ],
    )


def limit_documents(limits: Limits, *, shows_who: bool = True) -> list[LimitDocument]:
    """Of all types that have limits, or had some that an operator has taken away."""
    return [limit_document(name, limits, shows_who=shows_who) for name in sorted(limits.rules)]


async def gate_documents(store: JobReader, limits: Limits, now: datetime) -> list[GateDocument]:
    types: dict[Gate, list[str]] = {}
    for flow in limits.all_holding:
        if flow.gate is not None:
            types.setdefault(flow.gate, []).append(flow.job_type)
    gates = sorted(types, key=lambda gate: gate.name)
    states = await store.gates([gate.name for gate in gates]) if gates else []
    return [_gate(*pair, types[pair[0]], now) for pair in zip(gates, states, strict=True)]


def _gate(gate: Gate, state: GateState, job_types: Sequence[str], now: datetime) -> GateDocument:
    until = opens_at(gate, state, now)
    is_closed = until > now
    return GateDocument(
        gate=gate.name,
        rate=rate_text(gate.per_second),
        burst=gate.burst,
        job_types=list(job_types),
        closed=is_closed,
        opens_at=until if is_closed else None,
        throttled=is_closed and until == state.closed_until,
    )


def group_document(queue: str, job_type: str, state: GroupState) -> GroupDocument:
    return GroupDocument(queue=queue, job_type=job_type, **msgspec.structs.asdict(state))


def _fields(flow: TypeFlow) -> dict[str, Any]:
    gate = flow.gate
    return {
        "running": flow.running,
        "running_in_all": flow.running_in_all,
        "rate": None if gate is None else rate_text(gate.per_second),
        "burst": None if gate is None else gate.burst,
        "gate": None if gate is None else gate.name,
    }


def _set_fields(override: Override) -> list[str]:
    names = {"running": "running", "running_in_all": "runningInAll", "gate": "rate"}
    return [names[field] for field in override.as_set()]
