"""The worker: claimer, executor, lease keeper and completer, put together."""

import asyncio
import logging
import math
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any, Final, assert_never

from windlass.contract.clock import Clock
from windlass.contract.outcome import Outcome, Released, Success, TypeDisabled
from windlass.contract.schedule import Schedule
from windlass.contract.snapshot import Run, RunRef
from windlass.contract.status import Event
from windlass.contract.store import JobStore
from windlass.contract.submission import NewJob
from windlass.contract.version import __version__
from windlass.contract.wakeup import Hint, Wakeup
from windlass.manager.admission import Admission
from windlass.manager.event_reader import CONSUMER_LEASE, DeclaredConsumer
from windlass.manager.maintenance import Chore
from windlass.manager.manager import Ending, JobManager, Settled
from windlass.manager.observer import Observer, Unobserved, tell
from windlass.manager.sessions import Session, new_session_id, register, unregister
from windlass.manager.switches import Switches
from windlass.worker.active import ActiveRun, Cause
from windlass.worker.claimer import SWITCHES_SECONDS, Claimer
from windlass.worker.completer import Completer
from windlass.worker.consumers import Consumers
from windlass.worker.deadlines import Deadlines
from windlass.worker.executor import Executor, RunHook
from windlass.worker.lease_keeper import LeaseKeeper
from windlass.worker.numberer import Numberer
from windlass.worker.processes import ProcessPool
from windlass.worker.registry import HandlerRegistry
from windlass.worker.reporter import Reporter
from windlass.worker.run_port import StoreRunPort
from windlass.worker.schedules import ScheduleTask
from windlass.worker.settings import WorkerSettings
from windlass.worker.slots import Slots
from windlass.worker.tracer import RunTracer
from windlass.worker.upkeep import maintain_for_ever
from windlass.worker.wear import is_worn_out

_log = logging.getLogger("windlass.worker")

_SHUTDOWN_GRACE_SECONDS: Final = 5.0
_REGISTER_EVERY_SECONDS: Final = 20.0
# So many that handlers run while the store writes (with 2 a no-op drain on Redis takes 5 % longer)
# and no more, since a crash runs them again.
_UNWRITTEN_PER_SLOT: Final = 3
# Who waits repeats itself well within this time.
_WATCHED_SECONDS: Final = 5.0
_LOOKS_WITHIN: Final = timedelta(seconds=10)


class Worker:
    """Run jobs until told to stop."""

    def __init__(
        self,
        store: JobStore,
        registry: HandlerRegistry,
        settings: WorkerSettings,
        *,
        clock: Clock,
        wakeup: Wakeup,
        hooks: tuple[RunHook, ...] = (),
        tracer: RunTracer | None = None,
        observer: Observer | None = None,
        chores: Sequence[Chore] = (),
        consumers: Sequence[DeclaredConsumer] = (),
        schedules: Sequence[Schedule] = (),
        max_depth_of: Callable[[str], int | None] = lambda job_type: None,
        state: Any = None,
    ) -> None:
        """`chores` are what the maintenance does beside its own."""
        self._store = store
        self._chores = chores
        self._registry = registry
        self._settings = settings
        self._slots = Slots(settings.queues)
        self._is_open = False
        self._clock = clock
        self._wakeup = wakeup
        self._hooks = hooks
        self._tracer = tracer
        self._observer = observer or Unobserved()
        self._declared_consumers = consumers
        self._declared_schedules = schedules
        self._max_depth_of = max_depth_of
        self._state = state
        self._reporter = Reporter(clock)
        self._manager = JobManager(store, policy_for=registry.policy_for, observer=self._observer)
        self._stop_asked = asyncio.Event()
        self._active: dict[RunRef, ActiveRun] = {}
        self._nothing_active = asyncio.Event()
        self._nothing_active.set()
        self._quarantine: asyncio.Task[None] | None = None
        self._ended = 0
        self._watched_until = -math.inf
        self._started_at = clock.now()
        self.session_id = new_session_id()
        self.counts: Counter[str] = Counter()
        """What this worker did: a number per final status, and `discarded` for lost runs."""

    # -- living -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until `stop`; then drain, give back what is left, and let everything go."""
        await self._open()
        self._consumers.start()
        self._schedules.start()
        background = [asyncio.create_task(self._claimer.claim_for_ever())]
        background.append(asyncio.create_task(self._register_for_ever()))
        if self._settings.maintain_every is not None:
            background.append(asyncio.create_task(self._maintain(self._settings.maintain_every)))
        stop = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait({stop, *background}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop()  # what is still being claimed goes back
            stop.cancel()
            if self._quarantine is not None:
                background.append(self._quarantine)
            for task in background:
                task.cancel()
            results = await asyncio.gather(*background, return_exceptions=True)
            drain = self._settings.drain.total_seconds()
            await self._schedules.stop()
            await asyncio.gather(self._drain(), self._consumers.stop(drain))
            await self._close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    def stop(self) -> None:
        """Claim nothing more, let running jobs end within the drain time, then give them back."""
        self._stop_asked.set()

    def stop_now(self) -> None:
        """Do not wait any longer for running jobs."""
        self.stop()
        self._stop_runs(Cause.SHUTDOWN)
        if self._is_open:
            self._consumers.stop_now()

    @property
    def is_draining(self) -> bool:
        return self._stop_asked.is_set()

    def is_consuming(self, within: timedelta | None = None) -> bool:
        """Whether it has looked for work lately; health means this, not being alive.

        A worker without a free slot need not look. Callable from any thread.
        """
        if not self._is_open or self.is_draining:
            return False
        if within is None:
            within = max(_LOOKS_WITHIN, 5 * self._settings.poll)
        age = monotonic() - self._claimer.looked_at
        return age <= within.total_seconds() or not self._claimer.has_room

    @property
    def slots(self) -> Mapping[str, tuple[int, int]]:
        """How many slots each queue has, and how many are free. Callable from any thread."""
        total = self._settings.queues
        return {queue: (total[queue], free) for queue, free in self._slots.without_a_run.items()}

    async def _open(self) -> None:
        self._switches = Switches(self._store)
        self._processes = ProcessPool()
        self._threads = ThreadPoolExecutor(self._slots.total, thread_name_prefix="windlass-job")
        self._completer = Completer(
            self._manager,
            lease_seconds=self._settings.lease.total_seconds(),
            told=self._told,
            most_unwritten=_UNWRITTEN_PER_SLOT * self._slots.total,
        )
        self._numberer = Numberer(self._store, told=self._tell_who_waits)
        self._consumers = Consumers(
            self._store,
            self._declared_consumers,
            self.session_id,
            clock=self._clock,
            longest_wait=self._longest_wait,
            ask=lambda: self._wakeup.notify(Hint.WATCHED),
            number=self._numberer.soon,
            lease=min(CONSUMER_LEASE, self._settings.lease),
            is_closed=self._is_closed,
        )
        self._schedules = ScheduleTask(
            self._store,
            self._manager,
            self.session_id,
            declared=self._declared_schedules,
            admission=Admission(self._store, self._switches, max_depth_of=self._max_depth_of),
            wakeup=self._wakeup,
            observer=self._observer,
        )
        self._deadlines = Deadlines()
        self._executor = Executor(
            self._registry,
            StoreRunPort(self._store, self._manager, logged=self._tell_of_events),
            clock=self._clock,
            threads=self._threads,
            processes=self._processes,
            deadlines=self._deadlines,
            hooks=self._hooks,
            tracer=self._tracer,
            state=self._state,
        )
        self._keeper = LeaseKeeper(
            self._manager,
            self.session_id,
            self._settings.lease,
            on_lost=lambda run: self._stop_run(run, Cause.LOST),
            on_cancel=lambda run: self._stop_run(run, Cause.CANCEL),
        )
        self._claimer = Claimer(
            self._manager,
            self._registry,
            self._slots,
            self._switches,
            self.session_id,
            lease=self._settings.lease,
            longest_wait=self._longest_wait,
            keeps_up=self._completer.keeps_up,
            start=self._start,
        )
        try:
            await self._register()
            await self._consumers.begin()
            await self._keeper.start()
            await self._wakeup.open(self._on_hint)
            await self._schedules.begin()
            self._is_open = True
        except BaseException:
            await self._close()
            raise

    async def _is_closed(self) -> bool:
        await self._switches.refresh(max_age_seconds=SWITCHES_SECONDS)
        return self._switches.closed is not None

    def _on_hint(self, hint: Hint) -> None:
        match hint:
            case Hint.WORK:
                self._claimer.wake()
            case Hint.CANCEL:
                self._keeper.beat_now()
            case Hint.SWITCHED:
                self._switches.doubt()
                self._claimer.wake()
            case Hint.WATCHED:
                self._be_watched()
            case Hint.ENDED:
                self._consumers.wake()
            case Hint.SCHEDULED:
                self._schedules.wake()
            case _:
                assert_never(hint)

    async def _drain(self) -> None:
        if not self._nothing_active.is_set():
            most = self._settings.drain.total_seconds()
            _log.info("waiting up to %g s for %d running jobs", most, len(self._active))
            await self._wait_for_runs(self._settings.drain.total_seconds())
        self._stop_runs(Cause.SHUTDOWN)
        await self._wait_for_runs(_SHUTDOWN_GRACE_SECONDS)
        # What is left are threads that do not listen. The process ends, so they end with it.
        left = [Ending(active.run_as_known, Released()) for active in self._active.values()]
        if left:
            await self._manager.settle(left)
            self._numberer.soon()

    async def _wait_for_runs(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nothing_active.wait()

    async def _close(self) -> None:
        await self._completer.drained()
        await self._numberer.finish()
        self._deadlines.close()
        await self._keeper.stop()
        await self._wakeup.close()
        await self._processes.close()
        self._threads.shutdown(wait=False)
        try:
            await unregister(self._store, self.session_id)
        except Exception as error:
            _log.warning("could not sign off: %s", error)

    # -- running ----------------------------------------------------------------------------------

    def _start(self, runs: list[Run]) -> None:
        """Start claimed runs. One suspect at a time, and nothing beside it; the others go back."""
        if self.is_draining or self._claimer.is_held_back:  # since this claim was asked for
            self._give_back(runs)
            return
        for run in runs:
            self._slots.take(run.job.queue)
        logged = self._registry.logging(Event.STARTED)
        if logged and any(run.job.job_type in logged for run in runs):
            self._tell_of_events()
        plain = [run for run in runs if not run.is_suspect]
        self._launch(plain)
        if len(plain) < len(runs):
            suspects = [run for run in runs if run.is_suspect]
            self._claimer.hold_back()
            self._quarantine = asyncio.create_task(self._run_alone(suspects[0], suspects[1:]))

    async def _run_alone(self, suspect: Run, others: list[Run]) -> None:
        """A suspect may be what kills workers; whoever runs beside it would crash with it."""
        try:
            await self._until_alone(suspect, others)
        except asyncio.CancelledError:
            self._end(suspect, Released())
            raise
        try:
            if self._keeper.holds(suspect.ref):
                self._launch([suspect])
            else:
                self._slots.give_back(suspect.job.queue)
                self._discard(suspect)
            await self._nothing_active.wait()
        finally:
            self._claimer.go_on()

    async def _until_alone(self, suspect: Run, others: list[Run]) -> None:
        """Give the others back, and wait until nothing runs; with the lease, however long."""
        self._keeper.hold((run.ref, math.inf) for run in (suspect, *others))
        for run in others:
            self._end(run, Released())
        await self._completer.drained()
        await self._nothing_active.wait()

    def _give_back(self, runs: list[Run]) -> None:
        """Give back what may not be started any more."""
        for run in runs:
            self._slots.take(run.job.queue)
            self._end(run, Released())

    def _launch(self, runs: list[Run]) -> None:
        now = asyncio.get_running_loop().time()
        grace = self._settings.deadline_grace
        started = [active for run in runs if (active := self._executor.resolve(run))]
        self._keeper.hold(
            (active.ref, now + (active.handler.timeout + grace).total_seconds())
            for active in started
        )
        for active in started:
            self._active[active.ref] = active
            active.task = asyncio.create_task(self._execute(active))
        if started:
            self._nothing_active.clear()

    async def _execute(self, active: ActiveRun) -> None:
        outcome: Outcome | None
        active.has_begun = True
        if active.cause is not None:  # told to stop before its first turn
            outcome = active.outcome_of(asyncio.CancelledError())
        elif active.run.job.job_type in self._switches.disabled_types:
            outcome = TypeDisabled()
        else:
            outcome = await self._executor.run(active)
        if (settled := active.context.settled) is not None:
            self.counts[Event.COMPLETED] += 1
            ending = Ending(active.run, outcome or Success(), active.seconds)
            tell(self._observer.settled, [ending], [settled])
            self._reporter.completed_itself(active.run, outcome)
            self._slots.give_back(active.run.job.queue)
            self._forget([active.ref])
            self._wakeup.notify()
            self._tell_of_events()
        elif outcome is None or active.cause is Cause.LOST:
            self._slots.give_back(active.run.job.queue)
            self._discard(active.run)
            self._forget([active.ref])
        else:
            self._end(active.run_as_known, outcome, active.seconds)

    def _end(self, run: Run, outcome: Outcome, seconds: float | None = None) -> None:
        """Make the slot free at once; the lease is kept until the end is written."""
        self._slots.give_back(run.job.queue)
        self._completer.add(Ending(run, outcome, seconds))

    def _told(self, answers: Sequence[tuple[Ending, Settled | None]]) -> None:
        follow_ups: tuple[NewJob, ...] = ()
        for ending, settled in answers:
            if settled is not None and settled.accepted:
                self.counts[settled.transition.event] += 1
                self._reporter.ended(ending.run, settled.transition)
                follow_ups = follow_ups or settled.transition.follow_ups
            else:
                self._discard(ending.run)
        if follow_ups:
            self._wakeup.notify(job_id=follow_ups[0].job.job_id)
        self._tell_of_events()
        self._forget([ending.run.ref for ending, _ in answers])
        self._ended += len(answers)
        if is_worn_out(self._settings, ended=self._ended):
            _log.info("stopping to be started anew after %d runs", self._ended)
            self.stop()

    def _be_watched(self) -> None:
        """From now on tell; and once at the beginning, for what ended just before."""
        now = asyncio.get_running_loop().time()
        if now >= self._watched_until:
            self._wakeup.notify(Hint.ENDED)
        self._watched_until = now + _WATCHED_SECONDS

    def _tell_of_events(self) -> None:
        """Have them numbered, and tell who waits."""
        self._tell_who_waits()
        self._numberer.soon()

    def _tell_who_waits(self) -> None:
        """Only while somebody does: on a server, every hint has its cost."""
        if asyncio.get_running_loop().time() < self._watched_until:
            self._wakeup.notify(Hint.ENDED)

    def _discard(self, run: Run) -> None:
        self.counts["discarded"] += 1
        self._reporter.discarded(run)

    def _forget(self, refs: Sequence[RunRef]) -> None:
        self._keeper.let_go(refs)
        for ref in refs:
            self._active.pop(ref, None)
        if not self._active:
            self._nothing_active.set()

    def _stop_run(self, ref: RunRef, cause: Cause) -> None:
        if active := self._active.get(ref):
            active.stop(cause)

    def _stop_runs(self, cause: Cause) -> None:
        for active in list(self._active.values()):
            active.stop(cause)

    def _longest_wait(self) -> timedelta:
        """How long an idle look may be put off: what has become due by itself sends no hint."""
        return self._settings.poll * (2 if self._wakeup.is_listening else 1)

    # -- in the background ------------------------------------------------------------------------

    async def _register_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_REGISTER_EVERY_SECONDS)
            try:
                await self._register()
            except Exception as error:
                _log.warning("could not register this session: %s", error)

    async def _register(self) -> None:
        await register(
            self._store,
            Session(
                session_id=self.session_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                version=__version__,
                started_at=self._started_at,
                last_seen_at=self._clock.now(),
                queues=self._settings.queues,
                job_types=self._registry.job_types,
                consumers=self._consumers.names,
                schedules=self._schedules.declared_keys,
                schedules_mark=self._schedules.mark,
            ),
        )

    async def _maintain(self, every: timedelta) -> None:
        await maintain_for_ever(
            self._store,
            self.session_id,
            every=every,
            lease=self._settings.lease,
            observer=self._observer,
            chores=self._chores,
            requeued=self._claimer.wake,
        )
