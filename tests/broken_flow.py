"""Stores that break one promise of flow control each: of turns, limits or gates.

Each is the memory store with one thing taken out; its docstring says what goes wrong in the field.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from gantline.contract.clock import later
from gantline.contract.flow import Gate, GroupPage, TypeFlow
from gantline.contract.query import LaneRequest
from gantline.contract.results import ApplyResult
from gantline.contract.snapshot import Run
from gantline.contract.status import Event, JobStatus, Reason
from gantline.contract.stored import Stored, StoredJob
from gantline.contract.transition import RunGuard, Transition
from gantline.stores.memory import MemoryStore
from gantline.stores.memory.entry import Entry, Group
from gantline.stores.memory.limits import Allowance, Gates
from gantline.stores.memory.turns import PLAIN, Heaps, Rotation, Turns
from gantline.stores.ranks import RANKS

Member = TypeVar("Member")

# -- turns --------------------------------------------------------------------------------------


class NoTurns(MemoryStore):
    """One tenant submits a million jobs, and all others wait for the last of them."""

    def _heaps_of(self, queue: str, rank: int, group: Group) -> Heaps:
        return super()._heaps_of(queue, rank, PLAIN)


class GroupsBeforeTenants(MemoryStore):
    """A tenant that splits its work over ten groups gets ten times as much as others."""

    def _heaps_of(self, queue: str, rank: int, group: Group) -> Heaps:
        if group == PLAIN:
            return super()._heaps_of(queue, rank, PLAIN)
        return super()._heaps_of(queue, rank, ("all", "/".join(group)))


class GroupsWithoutTenants(MemoryStore):
    """Two tenants that name their groups alike have one turn, and wait for each other."""

    def _heaps_of(self, queue: str, rank: int, group: Group) -> Heaps:
        return super()._heaps_of(queue, rank, ("all", group[1]) if group[1] else group)


class PlainJobsBeforeGroups(MemoryStore):
    """Jobs with a group wait until there are none without."""

    def _take_crashed(
        self, request: LaneRequest, crashes: int, limit: int, now: datetime
    ) -> list[Entry]:
        turns, self._turns = self._turns, {}
        plain = super()._take_crashed(request, crashes, limit, now)
        self._turns = turns
        return plain + super()._take_crashed(request, crashes, limit - len(plain), now)


class _Ordered(MemoryStore):
    """With a rotation of another kind."""

    rotation: type[Rotation[Any]]

    def _heaps_of(self, queue: str, rank: int, group: Group) -> Heaps:
        heaps = super()._heaps_of(queue, rank, group)
        if turns := self._turns.get((queue, rank)):
            _retype(turns._tenants, self.rotation)
        return heaps


def _retype(tenants: Rotation[Rotation[Heaps]], kind: type[Rotation[Any]]) -> None:
    tenants.__class__ = kind
    for _, groups in tenants:
        groups.__class__ = kind


class _NewFirst(Rotation[Member]):
    def deal(self, draw: Callable[[str, Member], Iterator[Entry]]) -> Iterator[Entry]:
        for entry in super().deal(draw):
            self._last_was_new = False
            yield entry


class NewGroupsAlwaysFirst(_Ordered):
    """Who makes a new group for each job is always served, and nobody else."""

    rotation = _NewFirst


class _NewLast(Rotation[Member]):
    def deal(self, draw: Callable[[str, Member], Iterator[Entry]]) -> Iterator[Entry]:
        self._last_was_new = True
        for entry in super().deal(draw):
            self._last_was_new = True
            yield entry


class NewGroupsLast(_Ordered):
    """A tenant's first job waits until all others had their turn, however many they are."""

    rotation = _NewLast


class _Sticking(Rotation[Member]):
    def deal(self, draw: Callable[[str, Member], Iterator[Entry]]) -> Iterator[Entry]:
        for name, member in list(self):
            yield from draw(name, member)


class TurnsWithoutEnd(_Ordered):
    """Who has the turn keeps it as long as it has jobs."""

    rotation = _Sticking


class _Once(Rotation[Member]):
    def deal(self, draw: Callable[[str, Member], Iterator[Entry]]) -> Iterator[Entry]:
        return islice(super().deal(draw), len(self))


class ClaimsOneOfEach(_Ordered):
    """A worker with a hundred free slots gets one job of each group, and waits."""

    rotation = _Once


class _Forgetful(Rotation[Member]):
    def _put_last(self, name: str) -> None:
        """Who was served stays where it was."""


class TurnsForgotten(_Ordered):
    """Each claim begins with the same groups; those after them never come."""

    rotation = _Forgetful


class TurnsOverPriorities(MemoryStore):
    """Each priority gets its share: what is urgent waits for what is not."""

    def _take_crashed(
        self, request: LaneRequest, crashes: int, limit: int, now: datetime
    ) -> list[Entry]:
        if not self._turns:
            return super()._take_crashed(request, crashes, limit, now)
        allowance = self._allowance(request, now)
        draws = [self._draw(request.queue, rank, allowance, now) for rank in RANKS[crashes]]
        taken: list[Entry] = []
        while draws and len(taken) < limit:
            entry = next(draws[0], None)
            draws = draws[1:] if entry is None else [*draws[1:], draws[0]]
            taken += filter(None, [entry])
        return taken


class FloorsOfGroupsNotLowered(MemoryStore):
    """A job that is due sooner than the rest of its group waits for the rest."""

    def _reset(self) -> None:
        super()._reset()
        self._not_before: dict[Group, datetime] = {}

    def _is_current(self, waiting: tuple[datetime, int, int, UUID], rank: int) -> bool:
        is_current = super()._is_current(waiting, rank)
        run_at, *_, job_id = waiting
        if is_current and (group := self._jobs[job_id].group) != PLAIN:
            now = self._clock.now()
            if run_at > now and self._not_before.get(group, now) <= now:
                self._not_before[group] = run_at
        return is_current

    def _pop_first_due(self, heaps: list[Any], rank: int, now: datetime) -> Entry | None:
        for heap in heaps:
            while heap and not self._is_current(heap[0], rank):
                heap.pop(0)
        late = {group for group, until in self._not_before.items() if until > now}
        seen = [heap for heap in heaps if heap and self._jobs[heap[0][-1]].group not in late]
        return super()._pop_first_due(seen, rank, now)


class GroupsWaitForTheirLatest(MemoryStore):
    """A job for tomorrow holds up all others of its group."""

    def _pop_first_due(self, heaps: list[Any], rank: int, now: datetime) -> Entry | None:
        due = [
            heap
            for heap in heaps
            if not any(
                waiting[0] > now and self._is_grouped(waiting[-1])
                for waiting in heap
                if self._is_current(waiting, rank)
            )
        ]
        return super()._pop_first_due(due, rank, now)

    def _is_grouped(self, job_id: UUID) -> bool:
        return self._jobs[job_id].group != PLAIN


class TurnLostAtRetry(MemoryStore):
    """A job of a group that goes back to the queue is never claimed again."""

    def _enqueue(self, entry: Entry, run_at: datetime) -> None:
        if entry.version > 1 and entry.group != PLAIN:
            entry.run_at = run_at
        else:
            super()._enqueue(entry, run_at)


class GroupLostAtRetry(MemoryStore):
    """What is tried again stands in line with the jobs that have no group."""

    def _enqueue(self, entry: Entry, run_at: datetime) -> None:
        if entry.version > 1:
            entry.job = msgspec.structs.replace(entry.job, group="")
        super()._enqueue(entry, run_at)


class GroupLostOnTheWay(MemoryStore):
    """After a move to another store all jobs of a tenant are one group."""

    async def load(self, items: Sequence[Stored]) -> None:
        await super().load(
            [
                msgspec.structs.replace(item, job=msgspec.structs.replace(item.job, group=""))
                if isinstance(item, StoredJob)
                else item
                for item in items
            ]
        )


class SuspectsTakeTurns(MemoryStore):
    """Suspects of one group come before those that waited longer."""

    def _draw(self, queue: str, rank: int, allowance: Allowance, now: datetime) -> Iterator[Entry]:
        turns = self._turns.get((queue, rank))
        if turns is None or rank in RANKS[0]:
            return super()._draw(queue, rank, allowance, now)

        return turns.deal(lambda *group: self._draw_of((group,), rank, allowance, now))


class AheadWithoutTurns(MemoryStore):
    """A tenant with one job is told that a million are before it."""

    def _waiting_before(self, entry: Entry, run_at: datetime, job_types: Any) -> Iterator[UUID]:
        position = (entry.rank, run_at, entry.job.job_id)
        for one in self._jobs.values():
            is_asked_for = one.lane[0] == entry.lane[0] and one.job.job_type in job_types
            if is_asked_for and one.run_at and (one.rank, one.run_at, one.job.job_id) < position:
                yield one.job.job_id


class EndedGroupsShown(MemoryStore):
    """Groups of which all has ended are shown for ever."""

    def _active(self, queue: str, job_type: str) -> Iterator[Entry]:
        return (entry for entry in self._jobs.values() if entry.lane == (queue, job_type))


class GroupsOfOthersShown(MemoryStore):
    """A tenant sees the groups of all others."""

    async def groups(
        self, queue: str, job_type: str, *, tenant_id: str | None, limit: int, after: str = ""
    ) -> GroupPage:
        return await super().groups(queue, job_type, tenant_id=None, limit=limit, after=after)


class WaitingCountsAll(MemoryStore):
    """One look at how many wait reads a million jobs."""

    async def waiting(
        self, queue: str, job_type: str, *, tenant_id: str, group: str, at_most: int
    ) -> int:
        return await super().waiting(
            queue, job_type, tenant_id=tenant_id, group=group, at_most=10**6
        )


# -- limits -------------------------------------------------------------------------------------


class _Counting(MemoryStore):
    """With other runs counted than those that there are."""

    def _counted(self, request: LaneRequest, now: datetime) -> Iterable[Entry]:
        return self._running.values()

    def _allowance(self, request: LaneRequest, now: datetime) -> Allowance:
        return Allowance(request, self._counted(request, now), self._gates, now)


class LimitsIgnored(MemoryStore):
    """All jobs of a group run at once."""

    def _allowance(self, request: LaneRequest, now: datetime) -> Allowance:
        return super()._allowance(msgspec.structs.replace(request, flow=()), now)


class CountsBeforeOthers(_Counting):
    """Two workers count, then both start the last one that is allowed."""

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        seen = list(self._running.values())
        await asyncio.sleep(0)
        self._seen = seen
        return await super().claim(session, claim_id, requests, lease=lease)

    def _counted(self, request: LaneRequest, now: datetime) -> Iterable[Entry]:
        own = [one for one in self._running.values() if one not in self._seen]
        return [*self._seen, *own] if len(own) > 50 else self._seen


class LimitsPerQueue(_Counting):
    """Each queue may run as many as all together should."""

    def _counted(self, request: LaneRequest, now: datetime) -> Iterable[Entry]:
        return [entry for entry in self._running.values() if entry.job.queue == request.queue]


class LimitsPerPriority(MemoryStore):
    """Each priority may run as many as all together should."""

    def _take_crashed(
        self, request: LaneRequest, crashes: int, limit: int, now: datetime
    ) -> list[Entry]:
        taken: list[Entry] = []
        for rank in RANKS[crashes]:
            allowance = self._allowance(request, now)
            draw = self._draw(request.queue, rank, allowance, now)
            taken += islice(draw, max(0, limit - len(taken)))
        return taken


class LimitsOfTheTypePerGroup(MemoryStore):
    """Each group may run as many as all together should."""

    def _allowance(self, request: LaneRequest, now: datetime) -> Allowance:
        flows = [
            msgspec.structs.replace(flow, running=flow.running_in_all, running_in_all=None)
            if flow.running is None
            else flow
            for flow in request.flow
        ]
        return super()._allowance(msgspec.structs.replace(request, flow=tuple(flows)), now)


class _OncePerClaim(Allowance):
    def _count(self, entry: Entry) -> None:
        if entry.status is JobStatus.RUNNING:
            super()._count(entry)


class CountsOncePerClaim(MemoryStore):
    """One claim takes all that waits of a group which has one place."""

    def _allowance(self, request: LaneRequest, now: datetime) -> Allowance:
        return _OncePerClaim(request, self._running.values(), self._gates, now)


class PlacesEndWithLeases(_Counting):
    """A worker that hangs still calls the API, and so does its successor."""

    def _counted(self, request: LaneRequest, now: datetime) -> Iterable[Entry]:
        return [one for one in self._running.values() if one.lease and one.lease.until > now]


class _Permits(_Counting):
    """With a list of permits beside the leases, as counters elsewhere."""

    def _reset(self) -> None:
        super()._reset()
        self._permits: list[Entry] = []

    def _start(self, entry: Entry, *args: Any, **kwargs: Any) -> Run:
        self._permits.append(entry)
        return super()._start(entry, *args, **kwargs)

    def _counted(self, request: LaneRequest, now: datetime) -> Iterable[Entry]:
        return self._permits

    def _give_back(self, transition: Transition) -> None:
        entry = self._jobs[transition.job_id]
        same = [one for one in self._permits if one.group == entry.group]
        if same:
            self._permits.remove(entry if entry in same else same[0])

    def _apply(self, transition: Transition, now: datetime) -> ApplyResult:
        before = self._jobs[transition.job_id].status
        result = super()._apply(transition, now)
        entry = self._jobs[transition.job_id]
        if before is JobStatus.RUNNING and entry.status is not before:
            self._give_back(transition)
        return result


class PlacesGivenBackTwice(_Permits):
    """An end that is repeated, since its answer was lost, frees the place of another run."""

    def _apply(self, transition: Transition, now: datetime) -> ApplyResult:
        if self._jobs[transition.job_id].status.is_terminal:
            self._give_back(transition)
        return super()._apply(transition, now)


class PlacesGivenBackByZombies(_Permits):
    """A late end that is refused frees the place of the run that took over."""

    def _apply(self, transition: Transition, now: datetime) -> ApplyResult:
        entry, guard = self._jobs[transition.job_id], transition.guard
        token = entry.lease.token if entry.lease else None
        if isinstance(guard, RunGuard) and guard.token != token and not entry.status.is_terminal:
            self._give_back(transition)
        return super()._apply(transition, now)


class PlacesLostInCrashes(_Permits):
    """Each crash costs a place for ever."""

    def _give_back(self, transition: Transition) -> None:
        if transition.event is not Event.CRASHED:
            super()._give_back(transition)


class PlacesLostInRetries(_Permits):
    """What is tried again counts twice."""

    def _give_back(self, transition: Transition) -> None:
        if transition.to is not JobStatus.QUEUED or transition.event is Event.CRASHED:
            super()._give_back(transition)


class FullGroupsForgotten(MemoryStore):
    """A group that was full is not looked at again until somebody submits to it."""

    def _take_crashed(
        self, request: LaneRequest, crashes: int, limit: int, now: datetime
    ) -> list[Entry]:
        taken = super()._take_crashed(request, crashes, limit, now)
        running = Counter(one.group for one in [*self._running.values(), *taken])
        for flow in request.flow:
            for turns in self._turns.values():
                for group, _ in list(turns):
                    if flow.running is not None and running[group] >= flow.running:
                        _drop(turns, group)
        return taken


def _drop(turns: Turns, group: Group) -> None:
    tenant, name = group
    if group != PLAIN:
        turns._tenants.get(tenant, Rotation).remove(name)


class FullGroupsHideOthers(MemoryStore):
    """A group that is full holds up all that are to come after it."""

    def _draw(self, queue: str, rank: int, allowance: Allowance, now: datetime) -> Iterator[Entry]:
        groups = [one for (name, _), turns in self._turns.items() if name == queue for one in turns]
        if any(set(heaps) - set(allowance.types(group)) for group, heaps in groups):
            return iter(())
        return super()._draw(queue, rank, allowance, now)


class FullTypesHideOthers(MemoryStore):
    """What is due of a full type is looked at first, and no more than a claim can take."""

    def _take_crashed(
        self, request: LaneRequest, crashes: int, limit: int, now: datetime
    ) -> list[Entry]:
        allowed = self._allowance(request, now).types(PLAIN)
        full = [kind for kind in request.job_types if kind not in allowed]
        waiting = [one for one in self._jobs.values() if one.run_at and one.job.job_type in full]
        limit = limit if not request.flow or request.suspects else limit - len(waiting)
        return super()._take_crashed(request, crashes, limit, now)


class FirstLimitHolds(MemoryStore):
    """What an operator changes comes into force when everything was started anew."""

    def _reset(self) -> None:
        super()._reset()
        self._first: dict[str, TypeFlow] = {}

    def _allowance(self, request: LaneRequest, now: datetime) -> Allowance:
        flows = [self._first.setdefault(flow.job_type, flow) for flow in request.flow]
        return super()._allowance(msgspec.structs.replace(request, flow=tuple(flows)), now)


class LimitsRemembered(MemoryStore):
    """A limit that was removed holds on."""

    def _reset(self) -> None:
        super()._reset()
        self._last: tuple[TypeFlow, ...] = ()

    def _allowance(self, request: LaneRequest, now: datetime) -> Allowance:
        self._last = request.flow or self._last
        return super()._allowance(msgspec.structs.replace(request, flow=self._last), now)


class SuspectsWithoutLimits(MemoryStore):
    """What has crashed twice runs beside all others of its group."""

    def _take_crashed(
        self, request: LaneRequest, crashes: int, limit: int, now: datetime
    ) -> list[Entry]:
        if crashes:
            request = msgspec.structs.replace(request, flow=())
        return super()._take_crashed(request, crashes, limit, now)


class SuspectsUncounted(_Counting):
    """Beside what has crashed twice runs another of its group."""

    def _counted(self, request: LaneRequest, now: datetime) -> Iterable[Entry]:
        return [entry for entry in self._running.values() if entry.crashes < 2]


# -- gates --------------------------------------------------------------------------------------


class _Gated(MemoryStore):
    """With gates of another kind."""

    kind: type[Gates]

    def _reset(self) -> None:
        super()._reset()
        self._gates = self.kind()


class GatesIgnored(MemoryStore):
    """A rate holds nothing back."""

    def _allowance(self, request: LaneRequest, now: datetime) -> Allowance:
        flows = tuple(msgspec.structs.replace(flow, gate=None) for flow in request.flow)
        return super()._allowance(msgspec.structs.replace(request, flow=flows), now)


class GatesPerClaim(MemoryStore):
    """Each claim may start as many as all together should."""

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        self._gates._next_at.clear()
        return await super().claim(session, claim_id, requests, lease=lease)


class GatesPerType(MemoryStore):
    """Two types that call one API have its rate each."""

    def _allowance(self, request: LaneRequest, now: datetime) -> Allowance:
        flows = [
            msgspec.structs.replace(flow, gate=_own(flow.gate, flow.job_type))
            for flow in request.flow
        ]
        return super()._allowance(msgspec.structs.replace(request, flow=tuple(flows)), now)


def _own(gate: Gate | None, job_type: str) -> Gate | None:
    return gate and msgspec.structs.replace(gate, name=f"{gate.name}/{job_type}")


class _Windows(Gates):
    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[tuple[str, int]] = Counter()

    def is_open(self, gate: Gate, now: datetime) -> bool:
        return self._counts[gate.name, int(now.timestamp())] < gate.per_second

    def use(self, gate: Gate, now: datetime) -> None:
        self._counts[gate.name, int(now.timestamp())] += 1


class GatesInWindows(_Gated):
    """At each turn of the clock twice the rate is started at once."""

    kind = _Windows


class _Unbounded(Gates):
    def _due(self, gate: Gate, now: datetime) -> int:
        return self._next_at.get(gate.name, 0) or super()._due(gate, now)


class GatesSaveForEver(_Gated):
    """After a quiet night a whole night's rate is started at once."""

    kind = _Unbounded


class _Greedy(Gates):
    def is_open(self, gate: Gate, now: datetime) -> bool:
        is_open = super().is_open(gate, now)
        if not is_open:
            self._next_at[gate.name] = self._due(gate, now) + int(1e9 / gate.per_second)
        return is_open


class GatesCountRefusals(_Gated):
    """The more often workers look, the less is started."""

    kind = _Greedy


class _Halved(Gates):
    def use(self, gate: Gate, now: datetime) -> None:
        super().use(gate, now)
        super().use(gate, now)


class GatesAtHalfTheirRate(_Gated):
    """Half of what is paid for is used."""

    kind = _Halved


class _Overwritten(Gates):
    def close(self, name: str, until: datetime) -> None:
        self._closed_until[name] = until


class LastToCloseAGateDecides(_Gated):
    """A gate that was closed for an hour opens after a second."""

    kind = _Overwritten


class GatesStayOpen(MemoryStore):
    """What is throttled is tried again at once by all other runs."""

    def _write(self, transition: Transition, entry: Entry, now: datetime) -> None:
        super()._write(msgspec.structs.replace(transition, closes=""), entry, now)


class ClosesBeforeTheGuard(MemoryStore):
    """A worker that lost its run closes the gate for all."""

    def _apply(self, transition: Transition, now: datetime) -> ApplyResult:
        if transition.closes:
            self._gates.close(transition.closes, later(now, transition.delay))
        return super()._apply(transition, now)


class ClosesForEachSnooze(MemoryStore):
    """A job that only waits for something closes the gate of its type."""

    def _write(self, transition: Transition, entry: Entry, now: datetime) -> None:
        if transition.to is JobStatus.QUEUED:
            transition = msgspec.structs.replace(transition, closes="mail")
        super()._write(transition, entry, now)
        if transition.to is JobStatus.QUEUED:
            self._gates.close("mail", now)


class ThrottledCostsAnAttempt(MemoryStore):
    """A job dies of the rate of somebody else's API."""

    def _write(self, transition: Transition, entry: Entry, now: datetime) -> None:
        if transition.reason is Reason.THROTTLED:
            transition = msgspec.structs.replace(transition, attempt=transition.attempt + 1)
        super()._write(transition, entry, now)


class GatedJobsHavePlaces(_Counting):
    """What a gate keeps back counts as running, and nothing else of its group can start."""

    def _reset(self) -> None:
        super()._reset()
        self._kept: list[Entry] = []

    def _take_crashed(
        self, request: LaneRequest, crashes: int, limit: int, now: datetime
    ) -> list[Entry]:
        taken = super()._take_crashed(request, crashes, limit, now)
        gated = {flow.job_type for flow in request.flow if flow.gate}
        groups = {one.group for one in [*self._kept, *taken]}
        for one in self._jobs.values():
            if one.run_at and one.job.job_type in gated and one.group not in groups:
                self._kept.append(one)
        return taken

    def _counted(self, request: LaneRequest, now: datetime) -> Iterable[Entry]:
        return [*self._running.values(), *self._kept]


class GatesSurviveAClear(MemoryStore):
    """A store that was cleared for another to be moved there holds its jobs back."""

    async def clear(self) -> None:
        gates = self._gates
        await super().clear()
        self._gates = gates


# Each broken store, and one rule that must be among those that catch it.
BROKEN_FLOW: dict[type[MemoryStore], str] = {
    NoTurns: "turns.the_next_claim_has_the_one_of_a_group_beside_the_many_of_another",
    GroupsBeforeTenants: "turns.a_tenant_of_many_groups_gets_as_much_as_one_of_one",
    GroupsWithoutTenants: "turns.a_name_of_a_group_is_of_its_tenant",
    PlainJobsBeforeGroups: "turns.jobs_without_a_group_take_turns_with_groups_as_one",
    NewGroupsAlwaysFirst: "turns.new_ones_alone_never_keep_others_waiting",
    NewGroupsLast: "turns.a_new_group_is_in_the_next_claim_whatever_waits",
    TurnsWithoutEnd: "turns.a_claim_gives_each_of_few_groups_about_the_same",
    ClaimsOneOfEach: "turns.a_claim_is_full_where_other_groups_have_few",
    TurnsForgotten: "turns.over_many_claims_each_group_gets_about_the_same",
    TurnsOverPriorities: "turns.a_higher_priority_goes_first_over_all_turns",
    FloorsOfGroupsNotLowered: "turns.what_is_due_sooner_than_the_rest_of_its_group_is_found",
    GroupsWaitForTheirLatest: "turns.what_is_not_due_delays_no_other",
    TurnLostAtRetry: "turns.a_job_that_goes_back_to_the_queue_keeps_its_group",
    GroupLostAtRetry: "turns.a_job_that_goes_back_to_the_queue_keeps_its_group",
    GroupLostOnTheWay: "turns.a_job_that_goes_back_to_the_queue_keeps_its_group[moved]",
    SuspectsTakeTurns: "turns.suspects_of_groups_keep_their_order_without_turns",
    AheadWithoutTurns: "turns.ahead_are_of_each_other_group_as_many_as_of_its_own",
    EndedGroupsShown: "turns.groups_of_which_all_has_ended_are_not_shown",
    GroupsOfOthersShown: "turns.groups_are_shown_with_what_waits_and_runs_of_each",
    WaitingCountsAll: "turns.what_waits_of_a_group_is_counted_up_to_a_bound",
    LimitsIgnored: "limits.of_each_group_no_more_run_than_its_limit",
    CountsBeforeOthers: "limits.claims_at_once_never_start_more",
    LimitsPerQueue: "limits.a_limit_holds_over_the_queues",
    LimitsPerPriority: "limits.a_limit_holds_over_the_priorities",
    LimitsOfTheTypePerGroup: "limits.of_a_type_no_more_run_than_its_limit",
    CountsOncePerClaim: "limits.of_each_group_no_more_run_than_its_limit",
    PlacesEndWithLeases: "limits.an_expired_run_counts_until_it_is_taken_over",
    PlacesGivenBackTwice: "limits.an_end_that_is_repeated_makes_room_once",
    PlacesGivenBackByZombies: "limits.an_end_that_is_refused_makes_no_room",
    PlacesLostInCrashes: "limits.after_a_crash_at_any_point_as_many_may_start_as_before",
    PlacesLostInRetries: "limits.an_end_of_any_kind_makes_room_for_one[retried]",
    FullGroupsForgotten: "limits.of_each_group_no_more_run_than_its_limit",
    FullGroupsHideOthers: "limits.groups_at_their_limit_delay_no_other",
    FullTypesHideOthers: "limits.a_type_at_its_limit_delays_no_other",
    FirstLimitHolds: "limits.the_limit_that_a_claim_brings_is_the_one_that_holds",
    LimitsRemembered: "limits.a_claim_that_brings_no_limit_holds_to_none",
    SuspectsWithoutLimits: "limits.suspects_count_and_are_held_back_like_others",
    SuspectsUncounted: "limits.suspects_count_and_are_held_back_like_others",
    GatesIgnored: "gates.a_gate_lets_through_its_burst_and_then_its_rate",
    GatesPerClaim: "gates.in_no_time_a_gate_lets_through_more_than_its_rate_and_burst",
    GatesPerType: "gates.types_that_name_a_gate_share_it",
    GatesInWindows: "gates.in_no_time_a_gate_lets_through_more_than_its_rate_and_burst",
    GatesSaveForEver: "gates.what_a_gate_did_not_let_through_is_saved_up_to_its_burst",
    GatesCountRefusals: "gates.in_no_time_a_gate_lets_through_more_than_its_rate_and_burst",
    GatesAtHalfTheirRate: "gates.in_no_time_a_gate_lets_through_more_than_its_rate_and_burst",
    LastToCloseAGateDecides: "gates.a_gate_stays_closed_until_the_latest_of_those_who_closed_it",
    GatesStayOpen: "gates.a_throttled_run_closes_its_gate_for_all_types_that_name_it",
    ClosesBeforeTheGuard: "gates.an_end_that_is_refused_closes_no_gate",
    ClosesForEachSnooze: "gates.other_ends_close_no_gate",
    ThrottledCostsAnAttempt: "gates.a_throttled_run_goes_back_without_an_attempt",
    GatedJobsHavePlaces: "gates.what_a_gate_keeps_back_has_no_place_of_a_limit",
    GatesSurviveAClear: "gates.nothing_is_left_of_a_gate_after_a_clear",
}
