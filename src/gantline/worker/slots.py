"""Slots: how many runs a process may have at once, per queue, per limited type and in all."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from gantline.contract.query import LaneRequest
from gantline.contract.snapshot import Run
from gantline.runtime import monotonic
from gantline.worker.settings import WorkerSettings

# A backlog in one queue must not keep the jobs of another waiting.
_IN_ONE_LANE_SECONDS: Final = 1.0

Lane = tuple[str, str]
"""A queue and the name of a type."""


class TypeLimit:
    """How many runs of one handler there may be at once, whatever name and queue they come by.

    A claim asks for them in one lane, as long as it finds as many as it asks for, and for a second
    at most; then in the next. So no claim can bring more than there may be, wherever the jobs are.
    """

    __slots__ = ("_found_nothing", "_turn", "_turned_at", "concurrency", "free", "names")

    def __init__(self, names: tuple[str, ...], concurrency: int) -> None:
        self.names = names
        self.concurrency = self.free = concurrency
        self._turn = 0
        self._turned_at = monotonic()
        self._found_nothing = 0

    def lane(self, queues: Sequence[str]) -> Lane:
        """Where to ask next."""
        which = self._turn % (len(queues) * len(self.names))
        return queues[which % len(queues)], self.names[which // len(queues)]

    def found(self, *, all_that_was_asked_for: bool) -> None:
        now = monotonic()
        if not all_that_was_asked_for or now - self._turned_at >= _IN_ONE_LANE_SECONDS:
            self._turn += 1
            self._turned_at = now
        self._found_nothing = 0 if all_that_was_asked_for else self._found_nothing + 1

    def was_asked_everywhere(self, queues: int) -> bool:
        return self.free <= 0 or self._found_nothing >= queues * len(self.names)

    def ask_again(self) -> None:
        self._found_nothing = 0

    def give_up(self) -> None:
        self._found_nothing = sys.maxsize


class Slots:
    """Free slots by queue. Claims are made into free slots only, and within the limits of types."""

    def __init__(self, settings: WorkerSettings, limits: Sequence[TypeLimit] = ()) -> None:
        self._free = dict(settings.queues)
        self._kept = dict.fromkeys(self._free, 0)
        every_slot = sum(self._free.values())
        self._total = self._left = min(settings.slots or every_slot, every_slot)
        """How many runs there may be at once, and how many more there may be now."""
        batch = settings.claim_batch or every_slot
        self._most = {queue: min((one + 1) // 2, batch) for queue, one in self._free.items()}
        self._turn = 0
        self._unasked = {*self._free}
        """Queues that no claim has asked since the last wait, because others had the slots."""
        self._limits = {name: limit for limit in limits for name in limit.names}
        self._changed = asyncio.Event()
        self._reserved: set[str] = set()
        self.reserved_is_free = asyncio.Event()
        """Set when a slot of a reserved queue has become free."""

    @property
    def without_a_run(self) -> Mapping[str, int]:
        """Slots in which nothing runs, those that are kept for a claim included."""
        kept = self._kept.copy()
        left = self._left + sum(kept.values())
        return {queue: min(free + kept[queue], left) for queue, free in self._free.items()}

    @property
    def are_full(self) -> bool:
        return self._left <= 0 or not any(self._free.values())

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self._free)

    @property
    def total(self) -> int:
        return self._total

    @property
    def are_half_free(self) -> bool:
        return 2 * self._left >= self._total

    def requests(
        self,
        job_types: tuple[str, ...],
        paused: frozenset[str],
        logged: tuple[str, ...] = (),
    ) -> list[LaneRequest]:
        """What a claim may ask for now: free slots, at most half of all that the queue has."""
        shut = paused | self._reserved
        queues = [queue for queue, free in self._free.items() if free > 0 and queue not in shut]
        limited = self._limited(queues) if self._limits and queues else {}
        requests = []
        # Each in its turn: the slots may not be for all.
        left, first = self._left, self._turn % max(1, len(queues))
        for queue in queues[first:] + queues[:first]:
            at_most = {kind: most for (name, kind), most in limited.items() if name == queue}
            kinds = job_types
            if self._limits:
                kinds = tuple(
                    kind for kind in job_types if kind not in self._limits or at_most.get(kind)
                )
            limit = min(self._free[queue], self._most[queue], left)
            if kinds and limit > 0:
                left -= limit
                requests.append(LaneRequest(queue, kinds, limit, logged, tuple(at_most.items())))
        self._turn += bool(requests)
        self._unasked &= {*queues} - {request.queue for request in requests}
        return requests

    def request_suspects(
        self,
        queue: str,
        job_types: tuple[str, ...],
        logged: tuple[str, ...],
        group: tuple[int, ...],
        turn: int,
    ) -> LaneRequest | None:
        """What a claim of suspects may ask for in this queue; of a limited type by one name at a
        time, each in its turn."""
        limits = [limit for limit in set(self._limits.values()) if limit.free > 0]
        at_most = {limit.names[turn % len(limit.names)]: limit.free for limit in limits}
        kinds = tuple(kind for kind in job_types if kind not in self._limits or kind in at_most)
        most = min(self._free[queue], self._most[queue], self._left)
        if not kinds or most <= 0:
            return None
        return LaneRequest(queue, kinds, most, logged, tuple(at_most.items()), group)

    def _limited(self, queues: Sequence[str]) -> dict[Lane, int]:
        """How many of each limited type a claim may take, and from where."""
        limits = set(self._limits.values())
        return {limit.lane(queues): limit.free for limit in limits if limit.free > 0}

    def found(self, requests: Sequence[LaneRequest], runs: Sequence[Run]) -> None:
        """Note what a claim has brought, to know where to ask next."""
        if runs:
            self._unasked = {*self._free}
        for request in requests:
            for kind, most in request.at_most:
                count = sum(
                    run.job.job_type == kind and run.job.queue == request.queue for run in runs
                )
                full = count >= min(most, request.limit)
                self._limits[kind].found(all_that_was_asked_for=full)

    @property
    def was_asked_everywhere(self) -> bool:
        """Whether every queue was asked since the last wait, and for limited types every lane."""
        if self._unasked:
            return False
        limits = set(self._limits.values())
        return all(limit.was_asked_everywhere(len(self._free)) for limit in limits)

    def ask_again(self) -> None:
        self._unasked = {*self._free}
        for limit in set(self._limits.values()):
            limit.ask_again()

    def found_nothing_to_ask(self) -> None:
        """A claim that cannot ask for anything has asked everywhere."""
        self._unasked.clear()
        for limit in set(self._limits.values()):
            limit.give_up()

    # -- a slot for suspects ----------------------------------------------------------------------

    def reserve_full(self) -> None:
        """Keep the next slot of each full queue for suspects: other jobs would take every one."""
        is_full = self._left <= 0
        self._reserved = {queue for queue, free in self._free.items() if is_full or free <= 0}
        self.reserved_is_free.clear()

    def release(self) -> None:
        """Other jobs may have what is free."""
        self._reserved.clear()
        self._changed.set()

    @property
    def is_reserved(self) -> bool:
        return bool(self._reserved)

    @contextmanager
    def kept_for(self, requests: Sequence[LaneRequest]) -> Iterator[None]:
        """Keep the slots that a claim has asked for until it is answered."""
        for request in requests:
            self._keep(request, 1)
        try:
            yield
        finally:
            for request in requests:
                self._keep(request, -1)
            self._changed.set()

    def _keep(self, request: LaneRequest, sign: int) -> None:
        self._left -= sign * request.limit
        self._free[request.queue] -= sign * request.limit
        self._kept[request.queue] += sign * request.limit
        for kind, most in request.at_most:
            self._limits[kind].free -= sign * most

    def take(self, queue: str, job_type: str) -> None:
        self._left -= 1
        self._free[queue] -= 1
        if limit := self._limits.get(job_type):
            limit.free -= 1

    def give_back(self, queue: str, job_type: str) -> bool:
        """Make a slot free; say whether more may wait for it: its queue or its type was full."""
        was_full = self._left <= 0 or self._free[queue] <= 0
        self._left += 1
        self._free[queue] += 1
        limit = self._limits.get(job_type)
        if limit is not None:
            limit.free += 1
        self._changed.set()
        if queue in self._reserved:
            self.reserved_is_free.set()
        return was_full or limit is not None

    async def changed(self) -> None:
        """Wait until a slot becomes free."""
        self._changed.clear()
        await self._changed.wait()
