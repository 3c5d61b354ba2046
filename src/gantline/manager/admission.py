"""Admission: whether a job may be submitted now, by the switches and the depth caps."""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from gantline.contract.errors import JobTypeDisabled, QueueFull
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.manager.switches import Switches
from gantline.runtime import monotonic

_COUNTS_MAX_AGE_SECONDS: Final = 1.0
_MOST_TENANTS_KNOWN: Final = 10_000
_TYPE: Final = "of type {!r} may wait"
_QUEUE: Final = "may wait in the queue {!r}"
_DUE: Final = ("may wait", "")
_LATER: Final = ("may wait for later", "")

TakeBack = Callable[[], None]
_Waiting = Counter[tuple[str, str]]
"""How many jobs wait: by type, by queue and in all. Those that are not due yet, in all."""


class DepthCaps(NamedTuple):
    """How many jobs may wait; None: any number."""

    of_type: int | None = None
    of_type_per_tenant: int | None = None
    of_tenant: int | None = None
    """Whatever their type; and as many again that are not due yet."""


_NO_CAPS: Final = DepthCaps()
CapsOf = Callable[[str, str], DepthCaps]
"""Of a type, as its declaration says, and of a tenant."""


def no_caps(job_type: str, tenant_id: str) -> DepthCaps:
    return _NO_CAPS


class Lane(NamedTuple):
    """What jobs have in common that are counted together."""

    job_type: str
    queue: str
    tenant_id: str
    is_later: bool
    """They are not due yet, so they do not wait."""

    @classmethod
    def of(cls, new: NewJob) -> "Lane":
        job = new.job
        return cls(job.job_type, job.queue, job.tenant_id, bool(new.delay))

    def add(self, jobs: int, waiting: _Waiting) -> None:
        due = ((_TYPE, self.job_type), (_QUEUE, self.queue), _DUE)
        for counted in (_LATER,) if self.is_later else due:
            waiting[counted] += jobs


class _Depth:
    """What waits of one tenant, or of all, as the store counted it, and what passed here since."""

    def __init__(self, store: JobStore, tenant_id: str | None) -> None:
        self._store = store
        self.tenant_id = tenant_id
        self._read_at: float | None = None
        self.known = _Waiting()
        self.being_read: dict[int, _Waiting] = {}
        """By identity, for two that are being read may be equal."""
        self.passed = 0
        """How many jobs, since the store was asked."""

    async def refresh(self) -> None:
        """Ask the store, unless it has answered within a second."""
        before, now = self._read_at, monotonic()
        if before is not None:
            if now - before < _COUNTS_MAX_AGE_SECONDS:
                return
            self._read_at = now  # callers meanwhile use what is known
        waiting = _Waiting()
        self.being_read[id(waiting)] = waiting  # what passes meanwhile may not be in it
        try:
            for lane in await self._store.counts(tenant_id=self.tenant_id):
                due = Lane(lane.job_type, lane.queue, "", is_later=False)
                due.add(lane.queued - lane.scheduled, waiting)
                waiting[_LATER] += lane.scheduled
        except BaseException:
            self._read_at = before
            raise
        finally:
            del self.being_read[id(waiting)]
        self.known, self._read_at, self.passed = waiting, now, 0


class _Cap(NamedTuple):
    depth: _Depth
    counted: tuple[str, str]
    most: int

    @property
    def is_far(self) -> bool:
        """What a tenant may have is meant for misuse, and so large that the store need not be asked
        before a hundredth of it has passed here."""
        return self.counted in (_DUE, _LATER) and self.depth.passed < self.most // 100

    def refuses(self, lane: Lane, jobs: int) -> bool:
        # Jobs that are not due yet fill no cap of a type or a queue; a full one takes none of them.
        more = 1 if lane.is_later and self.counted is not _LATER else jobs
        return self.depth.known[self.counted] + more > self.most

    def refusal(self) -> QueueFull:
        number = "1 job" if self.most == 1 else f"{self.most} jobs"
        whose = "" if self.depth.tenant_id is None else " of a tenant"
        words, name = self.counted
        return QueueFull(
            f"{number}{whose} {words.format(name)}, and no more.", next_step="Try again later."
        )


class Admission:
    """Asks the store at most once a second; in between it counts what passes here itself.

    So a cap is not exact: in that second every process may fill it by itself, and what is just
    being stored while the store counts may come on top, or be counted twice.
    """

    def __init__(
        self,
        store: JobStore,
        switches: Switches,
        *,
        caps_of: CapsOf = no_caps,
    ) -> None:
        self._caps_of = caps_of
        self._switches = switches
        self._depth = lru_cache(_MOST_TENANTS_KNOWN)(lambda tenant_id: _Depth(store, tenant_id))

    async def check(self, lane: Lane, *, jobs: int = 1) -> TakeBack | None:
        """Raise StoreClosed, JobTypeDisabled or QueueFull; count what passes, if anything is
        capped. What is returned is to be called for each that is not stored after all."""
        await self._switches.refuse_if_closed()
        job_type = lane.job_type
        if job_type in self._switches.disabled_types:
            raise JobTypeDisabled(
                f"The job type {job_type!r} is switched off.",
                next_step=f"Try again later, or switch it on: gantline type enable {job_type}.",
            )
        caps = self._caps(lane)
        if not caps:
            return None
        for cap in caps:
            if not cap.is_far or cap.refuses(lane, jobs):
                await cap.depth.refresh()
        for cap in caps:
            if cap.refuses(lane, jobs):
                raise cap.refusal()
        counts: list[_Waiting] = []
        for depth in {cap.depth for cap in caps}:
            depth.passed += jobs
            counts += [depth.known, *depth.being_read.values()]
        for waiting in counts:
            lane.add(jobs, waiting)

        def take_back() -> None:
            for waiting in counts:
                lane.add(-1, waiting)

        return take_back

    def _caps(self, lane: Lane) -> list[_Cap]:
        """Those that hold for a job; for most there are none."""
        caps, switches = self._caps_of(lane.job_type, lane.tenant_id), self._switches
        in_queue = switches.depth_caps.get(lane.queue)
        in_queue_per_tenant = switches.tenant_depth_caps.get(lane.queue)
        if in_queue is in_queue_per_tenant is None and caps == _NO_CAPS:
            return []
        found = (
            (None, (_TYPE, lane.job_type), caps.of_type),
            (None, (_QUEUE, lane.queue), in_queue),
            (lane.tenant_id, (_TYPE, lane.job_type), caps.of_type_per_tenant),
            (lane.tenant_id, (_QUEUE, lane.queue), in_queue_per_tenant),
            (lane.tenant_id, _LATER if lane.is_later else _DUE, caps.of_tenant),
        )
        return [
            _Cap(self._depth(whose), counted, most)
            for whose, counted, most in found
            if most is not None
        ]
