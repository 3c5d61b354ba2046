"""Standstill: jobs are due that this worker could run, and it does not. Reported, and ended."""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from gantline.contract.store import JobStore
from gantline.runtime import monotonic
from gantline.worker.claimer import Claimer
from gantline.worker.handler import HandlerRegistry
from gantline.worker.lease_keeper import dump_stacks
from gantline.worker.runs import Runs
from gantline.worker.settings import WorkerSettings

_log = logging.getLogger("gantline.worker")

_LOOKS_WITHIN: Final = timedelta(seconds=10)


class Standstill:
    """What keeps a running worker from claiming."""

    def __init__(
        self,
        store: JobStore,
        registry: HandlerRegistry,
        settings: WorkerSettings,
        runs: Runs,
        claimer: Claimer,
    ) -> None:
        self._store = store
        self._registry = registry
        self._settings = settings
        self._runs = runs
        self._claimer = claimer

    def cause(self, within: timedelta | None = None) -> str | None:
        """Why it does not claim although it should; None while all is well. From any thread.

        A worker that has no free slot need not claim, as long as its runs will end.
        """
        now = monotonic()
        span = (
            max(_LOOKS_WITHIN, 5 * self._settings.poll) if within is None else within
        ).total_seconds()
        runs, claimer = self._runs, self._claimer
        if any(runs.stuck):
            return "All slots of a queue or a type are held by handlers that do not return."
        alone, held_up = runs.alone_since, runs.suspects.hold_up_since
        lagging = runs.completer.lagging_since
        if alone is not None and now - alone > span:
            return "A job that may have crashed workers runs alone."
        if held_up is not None and now - held_up > span:
            return "Jobs that may have crashed workers run few at a time; others of them may wait."
        if lagging is not None and now - lagging > span:
            return "What has ended cannot be written."
        if now - claimer.looked_at > span and claimer.has_room and lagging is None:
            return "It has not looked for work lately."
        return None

    async def wait_until_hopeless(self) -> None:
        """Return when jobs are due that this process can never run: handlers hold every slot."""
        every = self._settings.lease.total_seconds() / 2
        before: tuple[set[str], set[str]] = (set(), set())
        while True:
            await asyncio.sleep(every)
            now = self._runs.stuck
            queues, kinds = before[0] & now[0], before[1] & now[1]
            if (queues or kinds) and await self._is_due_in(queues, kinds):
                _log.critical(
                    "no slot of %s is free, since handlers do not return; ending this process",
                    " and ".join(sorted(queues | kinds)),
                )
                dump_stacks()
                return
            before = now

    async def _is_due_in(self, queues: set[str], kinds: set[str]) -> bool:
        try:
            lanes = await self._store.counts(tenant_id=None)
        except Exception as error:
            _log.warning("could not see whether jobs are due: %s", error)
            return False
        known = set(self._registry.job_types)
        return any(
            lane.oldest_due_at is not None
            and lane.job_type in known
            and lane.queue in self._settings.queues
            and (lane.queue in queues or lane.job_type in kinds)
            for lane in lanes
        )
