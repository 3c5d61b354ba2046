"""Limits: those of all types as they are stored, read as switches are; and how they are changed."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from gantline.contract.errors import InvalidInput, StoreMisconfigured
from gantline.contract.flow import Gate, GateState, TypeFlow
from gantline.contract.query import LaneRequest
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.snapshot import Run
from gantline.contract.store import JobStore
from gantline.flow.rules import LIMITS, Override, Rule, all_holding, in_words
from gantline.manager.records import LastRead
from gantline.runtime import jittered, monotonic, now

_log = logging.getLogger("gantline.worker")

_READ_SECONDS: Final = 5.0
"""How old limits may be; a change comes with a hint, where hints come at all."""
_ROUNDS: Final = 20
_SHORTEST_WAIT: Final = 0.001
_CLOCK_ERROR: Final = timedelta(milliseconds=10)
"""How far the store's clock may be from where this process takes it to be."""
_CLOCK_SECONDS: Final = 60.0
"""How long the distance between the store's clock and that of this process is remembered."""


class Limits:
    """The limits that hold, as last read."""

    def __init__(self, store: JobStore, *, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when some were changed here, to notify the workers."""
        self._store = store
        self._changed = changed
        self.rules: dict[str, Rule] = {}
        self._holding: dict[str, TypeFlow] = {}
        self._store_ahead = timedelta(0)
        self._compared_at: float | None = None
        self._records = LastRead(store, LIMITS, self._keep)
        self.invalidate = self._records.invalidate

    async def refresh(self, *, max_age_seconds: float = _READ_SECONDS) -> None:
        await self._records.refresh(max_age_seconds=max_age_seconds)

    def _keep(self, records: Sequence[Record]) -> None:
        self.rules = {one.key: self._read(one) for one in records}
        self._holding = all_holding(self.rules)
        self._counted = {
            name
            for name, flow in self._holding.items()
            if flow.running is not None or flow.running_in_all is not None
        }
        """Types of which so many may run at once."""
        self._gates = {flow.gate.name for flow in self._holding.values() if flow.gate}

    def _read(self, record: Record) -> Rule:
        """What a record says; where it cannot be read, what was known before."""
        try:
            return msgspec.json.decode(record.value, type=Rule)
        except msgspec.DecodeError as error:
            _log.error(
                "the limits of %s cannot be read, so the last known hold until they are set or "
                "cleared: %s",
                *(record.key, error),
            )
            return self.rules.get(record.key, Rule())

    # -- what holds -------------------------------------------------------------------------------

    def holding(self, job_type: str) -> TypeFlow | None:
        """The limits of a type; None where it has none."""
        return self._holding.get(job_type)

    @property
    def all_holding(self) -> Sequence[TypeFlow]:
        return [self._holding[name] for name in sorted(self._holding)]

    def applied_to(self, requests: Sequence[LaneRequest]) -> Sequence[LaneRequest]:
        """The requests of a claim, with the limits that it must hold to."""
        if not self._holding:
            return requests
        return [self._applied_to_one(request) for request in requests]

    def _applied_to_one(self, request: LaneRequest) -> LaneRequest:
        held = [self._holding[kind] for kind in request.job_types if kind in self._holding]
        return msgspec.structs.replace(request, flow=tuple(held)) if held else request

    def frees_a_place(self, ended: Sequence[Run]) -> bool:
        """Whether the end of one of these runs makes room for another job."""
        counted = self._counted  # none, in most applications
        return bool(counted) and any(run.job.job_type in counted for run in ended)

    def gate_to_close(self, job_type: str, named: str) -> str:
        """Which gate a throttled run of a type closes: the one that it names, else the type's own.

        One that no type has cannot be closed, and a warning says so.
        """
        flow = self._holding.get(job_type)
        own = flow.gate.name if flow and flow.gate else ""
        if named and named not in self._gates:
            _log.warning(
                "a run of %s closes the gate %r, which no type has; closed is %s",
                *(job_type, named, repr(own) if own else "none"),
            )
            return own
        return named or own

    async def shortened(self, wait: float, job_types: Collection[str], *, asked_at: float) -> float:
        """How long to wait for work after a claim at `asked_at` found none, at most `wait` seconds.

        Less where a gate has room earlier, or has got it since the claim. Room for half of its
        burst, so that a fleet at a fast gate does not look at each start.
        """
        gates = {
            flow.gate.name: flow.gate
            for kind in job_types
            if (flow := self._holding.get(kind)) is not None and flow.gate is not None
        }
        if not gates:
            return wait
        try:
            at_store, states = await asyncio.gather(self._now(), self._store.gates(list(gates)))
        except Exception:  # the claim after the wait will say what is wrong
            return wait
        asked = at_store - timedelta(seconds=monotonic() - asked_at) - _CLOCK_ERROR
        for state in states:
            gate = gates[state.name]
            opens_at = room_at(gate, state.next_at, starts=(gate.burst + 1) // 2)
            at = max((one for one in (opens_at, state.closed_until) if one), default=asked)
            if at > asked:
                # Never before it has room, which would cost a claim; and little after, which would
                # cost as much of the rate.
                until = (at - at_store).total_seconds() * jittered(1.01, by=0.01)
                wait = min(wait, max(_SHORTEST_WAIT, until))
        return wait

    async def _now(self) -> datetime:
        """The time of the store, which is not asked each time."""
        began = monotonic()
        if self._compared_at is None or began - self._compared_at > _CLOCK_SECONDS:
            self._store_ahead = await self._store.ping() - now()
            self._compared_at = began
        return now() + self._store_ahead

    # -- changing them ----------------------------------------------------------------------------

    async def declare(self, flows: Sequence[TypeFlow]) -> None:
        """Store what code declares; say where something else holds. Raise StoreMisconfigured."""
        if not flows:
            return
        self._refuse_unless_held(flow.job_type for flow in flows)
        at = await self._store.ping()
        for flow in flows:
            await self._change(flow.job_type, partial(Rule.with_declared, flow=flow, now=at))
        await self.refresh(max_age_seconds=0)
        for flow in flows:
            self._say_what_holds(flow)

    def _say_what_holds(self, declared: TypeFlow) -> None:
        name, rule = declared.job_type, self.rules.get(declared.job_type, Rule())
        held = self._holding.get(name, TypeFlow(job_type=name))
        if held == declared:
            return
        if rule.override is not None:
            why = f"{rule.by or 'an operator'} has set them"
        elif rule.newest(name) != declared:
            why = "a newer version of the code declares them"
        else:
            why = "another type declares its gate with another rate"
        _log.warning(
            "the limits of %s are %s, for %s; this worker declares %s",
            *(name, in_words(held), why, in_words(declared)),
        )

    async def set(self, job_type: str, changes: Override, *, by: str) -> None:
        """Have these limits hold over those declared, until they are cleared.

        Raise StoreMisconfigured; InvalidInput for what no limit can be.
        """
        self._refuse_unless_held([job_type])
        changes = changes.checked()
        at = await self._store.ping()

        def change(rule: Rule) -> Rule:
            override = (rule.override or Override()).with_changes(changes)
            return rule.with_override(override, by=by, at=at)

        await self._change(job_type, change)
        await self.refresh(max_age_seconds=0)

    async def clear(self, job_type: str, *, by: str, declared: bool = False) -> None:
        """Have what is declared hold again; or forget that too, until a worker declares it."""
        at = await self._store.ping()
        if declared:
            await self._store.write_records([RecordWrite(LIMITS, job_type, None)])
            self._changed()
        else:
            await self._change(job_type, partial(Rule.without_override, by=by, at=at))
        await self.refresh(max_age_seconds=0)

    def _refuse_unless_held(self, job_types: Iterable[str]) -> None:
        if not self._store.capabilities.limits:
            raise StoreMisconfigured(
                f"This store cannot hold to limits, as those of {', '.join(sorted(job_types))}.",
                next_step="Use another store, or leave limits= out.",
            )

    async def _change(self, job_type: str, change: Callable[[Rule], Rule]) -> None:
        for _ in range(_ROUNDS):
            found = await self._store.read_records(LIMITS, prefix=job_type, limit=1)
            record = found[0] if found and found[0].key == job_type else None
            before = self._read(record) if record else Rule()
            after = change(before)
            if after == before:
                return
            write = RecordWrite(
                LIMITS,
                job_type,
                msgspec.json.encode(after),
                expected=record.version if record else 0,
            )
            (answer,) = await self._store.write_records([write])
            if isinstance(answer, Applied):
                self._changed()
                return
        raise InvalidInput(
            f"The limits of {job_type!r} change all the time.", next_step="Try again."
        )


def opens_at(gate: Gate, state: GateState, now: datetime) -> datetime:
    """When a gate has room for a start, at the earliest now."""
    instants = (room_at(gate, state.next_at, starts=1), state.closed_until)
    return max([now, *(at for at in instants if at is not None)])


def room_at(gate: Gate, next_at: datetime | None, *, starts: int) -> datetime | None:
    """When a gate has room for so many starts, of its `next_at`; None: it was never used."""
    if next_at is None:
        return None
    return next_at - timedelta(seconds=(gate.burst - starts) / gate.per_second)
