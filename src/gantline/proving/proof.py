"""A proof: an empty store, processes on it, faults for a time, then silence, and the verdict."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol, get_args

import msgspec

from gantline.contract.errors import InvalidInput, StoreUnavailable
from gantline.contract.query import LaneCounts
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.manager.cursors import lags
from gantline.proof.checker import check
from gantline.proof.history import read_histories
from gantline.proof.rest import read_rest
from gantline.proving.application import POLICIES
from gantline.proving.child import CALM, ChildSettings
from gantline.proving.faults import (
    KINDS,
    Fault,
    StoreFault,
    count_faults,
    plan_faults,
    read_faults,
)
from gantline.proving.fleet import Fleet, FleetSettings
from gantline.proving.judging import find_stalls, find_unheard, recovery_seconds
from gantline.proving.report import Judged, Recovery, Report
from gantline.proving.target import SCHEMA_LEFT, find_route, refuse_unless_empty, remove_file
from gantline.runtime import monotonic

_PROGRESS_SECONDS: Final = 5.0
_UNKNOWN: Final = 2**62
_REPORT: Final = "report.json"
_CALLS: Final = frozenset(get_args(StoreFault))


class Trouble(Protocol):
    """Faults that no seed draws, made to the processes, or to the server and its host."""

    eating: float
    """Which share of the jobs takes memory."""

    def command(self, settings: ChildSettings) -> Sequence[str]:
        """What starts a process."""
        ...

    def variables(self, process: str) -> Mapping[str, str]:
        """What a process, by its name, has in its environment beside ours."""
        ...

    async def make(self, fleet: Fleet) -> None:
        """Make the faults until this is cancelled, and undo what lasts of them then."""
        ...


class ProofSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is proven, and for how long."""

    seconds: float = 60.0
    seed: int
    workers: int = 4
    clients: int = 2
    lease: float = 3.0
    stall_seconds: float = 20.0
    """A due job that waits longer, while a worker could run it, is a stall."""
    settle_seconds: float = 90.0
    """After the faults: how long all may stand still before the rest is given up."""
    keep: Path | None = None
    """Where histories, logs and faults are kept; else they are removed."""
    wrap: str = ""
    """A function that changes the store, as module:name; for tests of the proof itself."""
    kinds: Collection[str] = KINDS
    """Which faults are made, of those that a seed draws."""
    trouble: "Trouble | None" = None
    """What is made beside them."""


class Progress(msgspec.Struct, frozen=True):
    """How far a proof is."""

    doing: str
    elapsed: float
    of: float
    """Seconds; 0 for what takes as long as it takes."""
    jobs: int
    ended: int
    faults: int


Notify = Callable[[Progress], None]


class Proof:
    """One proof on one store, which is open and empty."""

    def __init__(
        self, store: JobStore, url: str, settings: ProofSettings, *, label: str, notify: Notify
    ) -> None:
        self._store = store
        self._route = find_route(url)
        self._settings = settings
        self._label = label
        self._notify = notify
        self._began = 0.0
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """End the faults early; what was done is judged."""
        self._stop.set()

    async def run(self) -> Report:
        """Make faults for the time, let all jobs end, and judge."""
        keep = self._settings.keep
        if keep is None:
            with TemporaryDirectory(prefix="gantline-prove-") as folder:
                return await self._run(Path(folder))
        report = await self._run(keep)
        (keep / _REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(report.data)))
        return report

    async def _run(self, folder: Path) -> Report:
        settings = self._settings
        fleet = Fleet(
            FleetSettings(
                route=self._route,
                folder=folder,
                seed=settings.seed,
                lease=settings.lease,
                wrap=settings.wrap,
                loses_calls=not _CALLS.isdisjoint(settings.kinds),
                **_given_by(settings.trouble),
            ),
            workers=settings.workers,
            clients=settings.clients,
        )
        try:
            await fleet.start()
            seconds = await self._make_faults(fleet, folder)
            (folder / CALM).touch()
            await fleet.calm()
            await fleet.end("client")
            await self._until_all_ended(folder)
            await fleet.end("worker")
        finally:
            await fleet.close()
        return await self._judge(fleet, folder, seconds)

    async def _make_faults(self, fleet: Fleet, folder: Path) -> float:
        """Return for how long it was done."""
        self._began = monotonic()
        reporting = asyncio.create_task(
            self._report_for_ever("Making faults", folder, of=self._settings.seconds)
        )
        plan = plan_faults(
            self._settings.seed, lease=self._settings.lease, has_proxy=self._route.has_proxy
        )
        trouble = asyncio.create_task(self._make_trouble(fleet))
        try:
            for step in plan:
                until = min(step.at, self._settings.seconds)
                if await self._is_stopped(self._began + until - monotonic()):
                    break
                if step.at >= self._settings.seconds:
                    break
                if step.kind in self._settings.kinds:
                    fleet.harm(step)
        finally:
            await _cancel(reporting)
            await _cancel(trouble)
        return monotonic() - self._began

    async def _make_trouble(self, fleet: Fleet) -> None:
        if self._settings.trouble is not None:
            await self._settings.trouble.make(fleet)

    async def _is_stopped(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), max(0.0, seconds))
        return self._stop.is_set()

    async def _until_all_ended(self, folder: Path) -> None:
        """Wait until no job is live and all events are delivered, or nothing moves any more."""
        reporting = asyncio.create_task(self._report_for_ever("Letting all jobs end", folder))
        least, since = _UNKNOWN, monotonic()
        try:
            while left := await self._left_to_do():
                if left < least:
                    least, since = left, monotonic()
                elif monotonic() - since > self._settings.settle_seconds:
                    return
                await asyncio.sleep(0.5)
        finally:
            await _cancel(reporting)

    async def _left_to_do(self) -> int:
        """How many jobs are live, and how many events are still to be delivered."""
        try:
            live = _live(await self._store.counts(tenant_id=None))
            numbered = await self._store.sequence(limit=500)
            return live + numbered + sum((await lags(self._store)).values())
        except StoreUnavailable:  # whoever proves may restart the server
            return _UNKNOWN

    async def _report_for_ever(self, doing: str, folder: Path, *, of: float = 0.0) -> None:
        jobs = ended = 0
        while True:
            with suppress(StoreUnavailable):
                lanes = await self._store.counts(tenant_id=None)
                jobs = _total(lanes)
                ended = jobs - _live(lanes)
            elapsed = monotonic() - self._began
            self._notify(Progress(doing, elapsed, of, jobs, ended, count_faults(folder)))
            await asyncio.sleep(_PROGRESS_SECONDS)

    async def _judge(self, fleet: Fleet, folder: Path, seconds: float) -> Report:
        settings = self._settings
        rest = await read_rest(self._store)
        calls, faults = read_histories(folder), read_faults(folder)
        checked = check(
            calls,
            rest=rest,
            within=timedelta(seconds=settings.stall_seconds),
            policies=POLICIES,
        )
        judged = Judged.of(checked.violations)
        unended = [
            f"end of job {job_id}: it is still {job.status}"
            for job_id, job in rest.jobs.items()
            if not job.status.is_terminal
        ]
        unheard = [] if unended else find_unheard(folder, rest)
        stalls = find_stalls(calls, fleet.health.healthy_seconds, within=settings.stall_seconds)
        ended = Counter(str(job.status) for job in rest.jobs.values() if job.status.is_terminal)
        return Report(
            store=self._label,
            seed=settings.seed,
            minutes=round(seconds / 60, 2),
            interrupted=self._stop.is_set(),
            workers=settings.workers,
            clients=settings.clients,
            calls=checked.calls,
            unanswered=checked.unknown,
            jobs=len(rest.jobs) + judged.lost,
            ended=dict(sorted(ended.items())),
            faults=_by_kind(faults),
            no_connection_faults=self._route.why_none,
            lost=judged.lost,
            unended=len(unended),
            doubled=judged.doubled,
            events=sum(map(len, rest.logs.values())),
            events_missing=judged.events + len(unheard),
            stalls=len(stalls),
            others=judged.others,
            recovery=Recovery.of(recovery_seconds(calls, faults)),
            violations=(*map(str, checked.violations), *unended, *unheard, *stalls),
            ended_alone=tuple(fleet.ended_alone),
        )


async def prove(
    store: JobStore,
    url: str,
    settings: ProofSettings,
    *,
    label: str,
    notify: Notify,
    begun: Callable[[Proof], None] = lambda proof: None,
) -> tuple[Report, str]:
    """Open an empty store, prove it, leave it empty and closed; return what is left there too.

    `begun` is given the proof, by which it can be stopped early.
    """
    if settings.keep is not None:
        _refuse_used(settings.keep)
    file = store.capabilities.local_file
    is_new = file is not None and not file.exists()
    await store.open()
    try:
        await refuse_unless_empty(store, label)
        proof = Proof(store, url, settings, label=label, notify=notify)
        begun(proof)
        try:
            report = await proof.run()
        finally:
            await store.clear()
    finally:
        await store.close()
        left = remove_file(file) if file is not None and is_new else SCHEMA_LEFT
    return report, left


def _refuse_used(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidInput(f"{folder} holds files already.", next_step="Name an empty folder.")


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def _total(lanes: Iterable[LaneCounts]) -> int:
    return sum(getattr(lane, status.lower()) for lane in lanes for status in JobStatus)


def _live(lanes: Iterable[LaneCounts]) -> int:
    return sum(lane.queued + lane.running for lane in lanes)


def _by_kind(faults: Iterable[Fault]) -> dict[str, int]:
    counted = Counter(fault.kind for fault in faults)
    return {kind: counted[kind] for kind in (*KINDS, *sorted(counted.keys() - set(KINDS)))}


def _given_by(trouble: Trouble | None) -> dict[str, Any]:
    if trouble is None:
        return {}
    return {"variables": trouble.variables, "command": trouble.command, "eating": trouble.eating}
