"""Rules: which limits of a type hold, from what its code has declared and an operator has set.

One record a type, in LIMITS. Of what code declares, that which was first seen last holds: so a
worker of an older version that starts again changes nothing. What an operator has set holds over
it, limit by limit, until it is cleared.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from gantline.contract.bounds import Count, held_as
from gantline.contract.flow import Gate, TypeFlow
from gantline.flow.limit import make_gate, rate_text

LIMITS: Final = "limits"
_MOST_KEPT: Final = 20
"""Of what code has declared; of more, those that were seen first are forgotten."""


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What code declares, and since when the store knows that."""

    hash: str
    first_seen: datetime
    flow: TypeFlow


class Override(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator has set. Not set: as declared; None: no such limit."""

    running: int | UnsetType | None = UNSET
    running_in_all: int | UnsetType | None = UNSET
    gate: Gate | UnsetType | None = UNSET

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not UNSET for name in self.__struct_fields__)

    def checked(self) -> "Override":
        """Itself; raise InvalidInput for what no limit can be."""
        for name, value in self.as_set().items():
            if isinstance(value, Gate):
                make_gate(value.name, value.per_second, value.burst)
            else:
                held_as(name, value, Count | None)
        return self

    def over(self, flow: TypeFlow) -> TypeFlow:
        """The same limits, but for those that are set."""
        return msgspec.structs.replace(flow, **self.as_set())

    def with_changes(self, changes: "Override") -> "Override":
        """These, and of the rest what was set before."""
        return msgspec.structs.replace(self, **changes.as_set())

    def as_set(self) -> dict[str, int | Gate | None]:
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in given.items() if value is not UNSET}


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is said about the limits of a type."""

    declared: tuple[Declared, ...] = ()
    """In the order in which they were first seen."""
    override: Override | None = None
    by: str = ""
    at: datetime | None = None

    def newest(self, job_type: str) -> TypeFlow:
        """What code declares; the newest, where several versions of it have run."""
        return self.declared[-1].flow if self.declared else TypeFlow(job_type=job_type)

    def holding(self, job_type: str) -> TypeFlow:
        """The limits that hold, without regard to what other types say of the same gate."""
        flow = self.newest(job_type)
        return flow if self.override is None else self.override.over(flow)

    def with_declared(self, *, flow: TypeFlow, now: datetime) -> "Rule":
        """With this declaration, unless it is known already."""
        digest = hash_of(flow)
        if any(one.hash == digest for one in self.declared):
            return self
        new = Declared(hash=digest, first_seen=now, flow=flow)
        kept = self.declared[-_MOST_KEPT + 1 :]
        return msgspec.structs.replace(self, declared=(*kept, new))

    def with_override(self, override: Override, *, by: str, at: datetime) -> "Rule":
        return msgspec.structs.replace(self, override=override or None, by=by, at=at)

    def without_override(self, *, by: str, at: datetime) -> "Rule":
        if self.override is None:
            return self
        return msgspec.structs.replace(self, override=None, by=by, at=at)


def hash_of(flow: TypeFlow) -> str:
    return hashlib.blake2b(msgspec.json.encode(flow), digest_size=8).hexdigest()


def is_limited(flow: TypeFlow) -> bool:
    return flow.running is not None or flow.running_in_all is not None or flow.gate is not None


def all_holding(rules: Mapping[str, Rule]) -> dict[str, TypeFlow]:
    """The limits that hold, of all types that have some, each gate with the rate that holds.

    Of a gate that several types name with different rates the slowest holds; but what an operator
    has set goes before what is declared.
    """
    flows = {name: rule.holding(name) for name, rule in rules.items()}
    gates: dict[str, tuple[bool, float, int]] = {}
    for name, flow in flows.items():
        if (gate := flow.gate) is not None:
            override = rules[name].override
            is_declared = override is None or override.gate is UNSET
            this = (is_declared, gate.per_second, gate.burst)
            gates[gate.name] = min(this, gates.get(gate.name, this))
    found = {}
    for name, flow in flows.items():
        if flow.gate is not None:
            _, per_second, burst = gates[flow.gate.name]
            flow = msgspec.structs.replace(flow, gate=Gate(flow.gate.name, per_second, burst))
        if is_limited(flow):
            found[name] = flow
    return found


def in_words(flow: TypeFlow) -> str:
    """The limits of a type, for people."""
    parts = []
    if flow.running is not None:
        parts.append(f"{flow.running} running per group")
    if flow.running_in_all is not None:
        parts.append(f"{flow.running_in_all} running in all")
    if (gate := flow.gate) is not None:
        parts.append(f"{rate_text(gate.per_second)} by gate {gate.name}, burst {gate.burst}")
    return "; ".join(parts) or "no limits"
