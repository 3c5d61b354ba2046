"""The end of a run: nothing goes wrong any more, and all that was accepted comes to its end."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.domain_event import read_emitted
from gantline.contract.job import Job
from gantline.contract.query import JobFilter
from gantline.contract.snapshot import JobSnapshot, LogEntry
from gantline.contract.status import Event, JobStatus
from gantline.contract.store import JobStore
from gantline.contract.webhook import OUTCOMES
from gantline.manager.switches import Switches
from gantline.moving.closing import reopen
from gantline.testing.simulation.application import QUEUES, WORKED, Journal, Plan
from gantline.testing.simulation.clients import Clients, insist
from gantline.testing.simulation.network import LATEST_EFFECT_SECONDS, Network
from gantline.testing.simulation.workers import Workers
from gantline.testing.simulation.world import World

_ENDS_WITHIN_SECONDS: Final = 1800.0
"""After the last fault, and after each end, so soon another one must come until all have ended."""
_LIVE: Final = frozenset(status for status in JobStatus if not status.is_terminal)
_CLIENTS_SECONDS: Final = 120.0
_TAKEN_WITHIN_SECONDS: Final = 30.0
"""After its lease, the run of a process that is gone must have been taken over."""
_QUIET_WITHIN_SECONDS: Final = 60.0
"""After the last job has ended, a worker must have nothing to complain about."""


class Resting:
    """Brings a run to its end, and notes what does not come to it."""

    def __init__(
        self, world: World, network: Network, clients: Clients, workers: Workers, journal: Journal
    ) -> None:
        self._world = world
        self._network = network
        self._clients = clients
        self._workers = workers
        self._journal = journal
        self.violations: list[str] = []

    async def calm_down(self, truth: JobStore) -> None:
        """Nothing goes wrong from now on, and nothing is switched off."""
        await self._clients.wait(_CLIENTS_SECONDS)
        self._world.note("calm")
        self._network.calm_down()
        for process in self._world.processes:
            process.frozen_until = process.main.blocked_until = 0.0
        await asyncio.sleep(LATEST_EFFECT_SECONDS)  # a pause may be under way that nobody waits for
        switches = Switches(truth)
        await insist(lambda: reopen(truth))
        for queue in sorted(set(QUEUES.values())):
            await insist(partial(switches.pause_queue, queue, paused=False))
        for job_type in QUEUES:
            await insist(partial(switches.pause_type, job_type, paused=False))
            await insist(partial(switches.disable_type, job_type, disabled=False))
        if left := await self._clients.wait(_ENDS_WITHIN_SECONDS):
            self.violations.append(f"{left} calls of the client never end")

    async def end_all(self, truth: JobStore, lease: float) -> None:
        """All that was accepted ends, and then nobody has anything to do."""
        began = last_end = self._world.now
        live: list[JobSnapshot] = []
        undelivered: list[str] = []
        reported = 0
        while self._world.now < last_end + _ENDS_WITHIN_SECONDS:
            before, live = len(live), await _find(truth, _LIVE)
            reported_before, reported = reported, self._journal.reported()
            if len(live) < before or reported > reported_before:  # a backlog may take its time
                last_end = self._world.now
            if not live:
                undelivered = await self._undelivered(truth, await _find(truth))
                if not undelivered:
                    await self._come_to_rest()
                    return
            if self._world.now > began + lease + _TAKEN_WITHIN_SECONDS:
                self._look_for_orphans(live, lease + _TAKEN_WITHIN_SECONDS)
            await asyncio.sleep(5.0)
        self.violations += undelivered
        for job in live[:5]:
            log = await truth.history(job.job.job_id, tenant_id=None)
            self.violations.append(
                f"{job.job.job_type} {job.job.job_id} is {job.status} for ever; run {job.run}; "
                f"log {[(row.event, row.reason) for row in log]}; "
                f"workers say {self._workers.complaints()}"
            )

    async def _come_to_rest(self) -> None:
        until = self._world.now + _QUIET_WITHIN_SECONDS
        while complaints := self._workers.complaints():
            if self._world.now > until:
                self.violations += complaints
                return
            await asyncio.sleep(1.0)

    def _look_for_orphans(self, live: Sequence[JobSnapshot], most: float) -> None:
        for job in live:
            if job.run is not None and self._workers.seconds_gone(job.run.session) > most:
                said = f"job {job.job.job_id} is still Running in {job.run.session}, which is gone"
                if said not in self.violations:
                    self.violations.append(said)

    async def _undelivered(self, truth: JobStore, jobs: Sequence[JobSnapshot]) -> list[str]:
        """Events that no consumer was given, and outcomes that no receiver was."""
        heard, listened_to = {*self._journal.heard}, self._clients.listened_to
        missing: list[str] = []
        for job in jobs:
            if job.job.job_type not in QUEUES:
                continue
            name = str(job.job.job_id)
            for row in await truth.history(job.job.job_id, tenant_id=None):
                kind = f"job.{row.event}"
                if (name, row.version) not in heard:
                    missing.append(f"{name}: {kind} was never given to the consumer")
                missing += self._emitted_wrongly(job.job, row)
        # Also of jobs that were pruned since.
        for name, kind in sorted(self._journal.ends_heard - {*self._journal.delivered}):
            if UUID(name) in listened_to and kind in OUTCOMES:
                missing.append(f"{name}: {kind} was never delivered")
        return missing

    def _emitted_wrongly(self, job: Job, row: LogEntry) -> Iterator[str]:
        """A run has emitted what its handler did if it completed, and else nothing."""
        plan = msgspec.json.decode(job.payload, type=Plan)
        emits = row.event is Event.COMPLETED and plan.emits and job.job_type != "thread"
        found = [(one.type, bytes(one.payload)) for one in read_emitted(row.emitted)]
        if found != ([(WORKED, b"%d" % row.fence)] if emits else []):
            yield f"{job.job_id}: {row.event} of run {row.fence} has emitted {found}"
        if emits and (str(job.job_id), row.version) not in self._journal.emitted_heard:
            yield f"{job.job_id}: {WORKED} was never given to the consumer"


async def _find(store: JobStore, statuses: frozenset[JobStatus] = frozenset()) -> list[JobSnapshot]:
    """In one page: the memory store looks at all of its jobs for each."""
    page = await store.find(JobFilter(tenant_id=None, statuses=statuses), limit=sys.maxsize)
    return list(page.items)
