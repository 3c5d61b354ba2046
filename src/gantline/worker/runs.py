"""Runs: what this process runs, from the claim that brought it to the end that is written."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from gantline.contract.classify import not_started
from gantline.contract.clock import Clock
from gantline.contract.outcome import Outcome, Released, Success, TypeDisabled
from gantline.contract.snapshot import Run, RunRef
from gantline.contract.status import Event
from gantline.contract.submission import NewJob
from gantline.flow.limits import Limits
from gantline.manager.manager import Ending, JobManager, Settled
from gantline.manager.observer import Observer, notify
from gantline.manager.switches import Switches
from gantline.runtime import monotonic
from gantline.worker.active_run import ActiveRun, Cause
from gantline.worker.announcer import Announcer
from gantline.worker.claimer import Claimer
from gantline.worker.completer import Completer
from gantline.worker.deadlines import Deadlines
from gantline.worker.executor import Executor
from gantline.worker.handler import HandlerRegistry
from gantline.worker.lease_keeper import LeaseKeeper, dump_stacks
from gantline.worker.run_log import Reporter, labels_of
from gantline.worker.settings import WorkerSettings
from gantline.worker.slots import Slots
from gantline.worker.suspects import Suspects, runs_alone

_log = logging.getLogger("gantline.worker")

# Shorter than the supervisor's grace, so that what does not listen is given back before the kill.
_SHUTDOWN_GRACE_SECONDS: Final = 3.0
_HURRIED_GRACE_SECONDS: Final = 0.3
# So many that handlers run while the store writes (with 2 a no-op drain on Redis takes 5 % longer)
# and no more, since a crash runs them again.
_UNWRITTEN_PER_SLOT: Final = 3
# A claim that is under way could bring back what is given back.
_LAST_CLAIM_SECONDS: Final = 1.0
# How long a suspect that is to run alone waits for the others to end.
_ALONE_AFTER_SECONDS: Final = 30.0


class Runs:
    """Start what is claimed, stop what has to stop, write how it ended; each slot is given back."""

    def __init__(
        self,
        manager: JobManager,
        registry: HandlerRegistry,
        slots: Slots,
        switches: Switches,
        limits: Limits,
        settings: WorkerSettings,
        session_id: str,
        *,
        clock: Clock,
        announcer: Announcer,
        observer: Observer,
        reporter: Reporter,
        make_executor: Callable[[Deadlines], Executor],
        on_ended: Callable[[int], None],
        is_loop_ending: Callable[[], bool],
        exit_process: Callable[[int], object],
    ) -> None:
        """`on_ended` is called with how many ends were written. `is_loop_ending`: whether the
        event loop is being ended by code that did not ask the worker to stop."""
        self._registry = registry
        self._slots = slots
        self._switches = switches
        self._limits = limits
        self._settings = settings
        self._stop_seconds = 2 * settings.deadline_grace.total_seconds()
        self._clock = clock
        self._announcer = announcer
        self._observer = observer
        self._reporter = reporter
        self._on_ended = on_ended
        self._is_loop_ending = is_loop_ending
        self._loop = asyncio.get_running_loop()
        self._claimer: Claimer
        self._is_draining = False
        self._hurry = asyncio.Event()
        self._active: dict[RunRef, ActiveRun] = {}
        self._nothing_active = asyncio.Event()
        self._nothing_active.set()
        self._parked: dict[RunRef, Run] = {}
        """Runs whose handlers were stopped because nobody knew whether their lease still lasts."""
        self._stuck: dict[RunRef, ActiveRun] = {}
        """Runs that are over while their handlers go on; they only hold a slot."""
        self.suspects = Suspects(slots.total)
        self._quarantine: asyncio.Task[None] | None = None
        self._quarantine_over = asyncio.Event()
        self.alone_since: float | None = None
        """Since when a suspect runs alone, or waits for that; on the monotonic clock."""
        self.are_torn_down = False
        """The event loop was ended by code that did not ask the worker to stop. What ran is
        counted as crashed: a job may have done it, and would do it again."""
        self.counts: Counter[str] = Counter()
        self.completer = Completer(
            manager,
            on_written=self._on_written,
            most_unwritten=_UNWRITTEN_PER_SLOT * slots.total,
        )
        self.keeper = LeaseKeeper(
            manager,
            session_id,
            settings.lease,
            every=settings.renew_every,
            on_lost=self._lose,
            on_cut_off=lambda run: self._stop(run, Cause.CUT_OFF),
            on_confirmed=self._unpark,
            on_cancel=lambda run: self._stop(run, Cause.CANCEL),
            exit_process=exit_process,
        )
        self._deadlines = Deadlines(grace=settings.deadline_grace, overran=self._abandon)
        self._executor = make_executor(self._deadlines)

    def claimed_by(self, claimer: Claimer) -> None:
        """Know who brings runs, to hold it back and to wake it."""
        self._claimer = claimer

    @property
    def has_stuck_handlers(self) -> bool:
        return bool(self._stuck)

    @property
    def stuck(self) -> tuple[set[str], set[str]]:
        """The queues and the types of which nothing can run any more. Callable from any thread."""
        stuck = list(self._stuck.values())
        by_queue = Counter(active.run.job.queue for active in stuck)
        by_handler = Counter(active.handler.job_type for active in stuck)
        queues, all_are = self._settings.queues, len(stuck) >= self._slots.total
        limited = [handler for handler in self._registry.handlers if handler.concurrency]
        return (
            {queue for queue, most in queues.items() if all_are or by_queue[queue] >= most},
            {
                name
                for handler in limited
                if by_handler[handler.job_type] >= (handler.concurrency or 0)
                for name in handler.job_types
            },
        )

    # -- running ----------------------------------------------------------------------------------

    def start(self, runs: list[Run], asked_at: float) -> None:
        """Start what a claim has brought that was sent at this moment."""
        for run in runs:
            self._slots.take(run.job.queue, run.job.job_type)
        if self._is_draining:  # since this claim was sent
            for run in runs:
                self._end(run, Released())
            return
        logged = self._registry.logging(Event.STARTED)
        if logged and any(run.job.job_type in logged for run in runs):
            self._announcer.events()
        self.suspects.add(runs)
        if runs_alone(runs[0].crashes, self._slots.total):  # then it is the only one
            self._claimer.hold_back()
            self._quarantine = asyncio.create_task(self._run_alone(runs[0], asked_at))
        else:
            self._hold(runs, asked_at)
            self._launch(runs)

    async def _run_alone(self, suspect: Run, asked_at: float) -> None:
        """Run a suspect with nothing beside it: if the worker crashes now, it is this job's fault.

        The others are waited for, with the lease; but not for ever: then it runs beside them, and a
        crash is not held against it.
        """
        self._hold([suspect], asked_at, wait=_ALONE_AFTER_SECONDS)
        self.alone_since = monotonic()
        self._quarantine_over.clear()
        try:
            await self._claimer.is_quiet.wait()
            await self._wait_for(self._nothing_active, _ALONE_AFTER_SECONDS)
        except asyncio.CancelledError:
            self._end(suspect, Released())
            raise
        try:
            self._launch([suspect])
            await self._quarantine_over.wait()
        finally:
            self.alone_since = None
            self._claimer.go_on()

    def _hold(self, runs: Sequence[Run], asked_at: float, *, wait: float = 0.0) -> None:
        now = monotonic() + wait
        until = {kind: now + self._longest(kind) for kind in {run.job.job_type for run in runs}}
        self.keeper.hold([(run.ref, until[run.job.job_type]) for run in runs], asked_at=asked_at)

    def _longest(self, job_type: str) -> float:
        """How long after its start a run is renewed at most. It is ended before that."""
        handler = self._registry.find(job_type)
        timeout = 0.0 if handler is None else handler.timeout.total_seconds()
        return timeout + self._stop_seconds

    def _launch(self, runs: Sequence[Run]) -> None:
        """Call the handlers of runs whose leases last; the others wait until that is known."""
        certain = self.keeper.certain([run.ref for run in runs])
        now = self._clock.now()
        for run in runs:
            try:
                if run.ref not in certain:
                    self._park(run)
                elif (active := self._executor.resolve(run, now)) is None:
                    self._end(run, Released())  # not a type that was asked for
                else:
                    self._active[active.ref] = active
                    self._nothing_active.clear()
                    active.task = self._loop.create_task(self._execute(active))
            except Exception as error:  # of this one: the others shall start
                _log.exception("job %s cannot be started", run.job.job_id, extra=labels_of(run))
                self._end(run, not_started(error))

    async def _execute(self, active: ActiveRun) -> None:
        outcome: Outcome | None
        active.has_begun = True
        if active.cause is not None:  # stopped before its first turn
            outcome = active.outcome_of(asyncio.CancelledError())
        elif active.run.job.job_type in self._switches.disabled_types:
            outcome = TypeDisabled()
        else:
            try:
                outcome = await self._executor.run(active)
            except BaseException as error:
                # GeneratorExit, raised by a task that the handler awaits, comes down to this.
                outcome = active.outcome_of(error)
        active.is_over = True  # also where no handler was called
        if self._stuck.pop(active.ref, None) is not None:
            if not self._is_draining:  # else the end of the loop has cancelled its task
                _log.info("a handler returned after its run was over", extra=labels_of(active.run))
            self._free_slot(active.run)
        elif (settled := active.context.settled) is not None:
            self.counts[Event.COMPLETED] += 1
            ending = Ending(active.run, outcome or Success(), active.seconds)
            notify(self._observer.settled, [ending], [settled])
            self._reporter.completed_itself(active.run, outcome)
            self._free_slot(active.run)
            self._forget([active.ref])
            self._announcer.work()
            self._announcer.events()
            self._free_places([active.run])
        elif active.was_cancelled_by_nobody and self._is_loop_ending():
            self.are_torn_down = True
            self._free_slot(active.run)
            self._discard(active.run)
            self._forget([active.ref])
        elif outcome is None:
            self._park(active.run)
        else:
            self._end(active.run_as_known, outcome, active.seconds)

    def _park(self, run: Run) -> None:
        """Keep a run until it is known whether its lease lasts; then it goes on, or is lost."""
        self._active.pop(run.ref, None)
        if self._is_draining:
            self._end(run, Released())
        else:
            self._parked[run.ref] = run
            if not self.keeper.has(run.ref):
                self._lose(run.ref)
            elif self.keeper.certain([run.ref]):
                self._unpark(run.ref)
        if not self._active:
            self._nothing_active.set()

    def _unpark(self, ref: RunRef) -> None:
        """The lease of a run is confirmed: call its handler again, in the same run."""
        if run := self._parked.pop(ref, None):
            _log.info(
                "starting job %s again: its lease lasts", run.job.job_id, extra=labels_of(run)
            )
            self.keeper.extend(ref, monotonic() + self._longest(run.job.job_type))
            self._launch([run])

    def _lose(self, ref: RunRef) -> None:
        """Another worker has the run, or will have it. Whatever the handler does, it is over."""
        if run := self._parked.pop(ref, None):
            self._free_slot(run)
            self._discard(run)
            self._forget([ref])
        elif (active := self._active.get(ref)) and not active.is_over:
            active.stop(Cause.LOST)
            self._discard(active.run)
            self._leave_stuck(active)

    def _abandon(self, active: ActiveRun) -> None:
        """A handler that goes on after its time is up and it was asked to stop."""
        if active.is_over or active.ref not in self._active:
            return
        _log.error(
            "the handler of job %s does not stop; its run is ended without it",
            *(active.run.job.job_id,),
            extra=labels_of(active.run),
        )
        outcome = active.outcome_of(asyncio.CancelledError())
        active.cause = Cause.LOST
        self._leave_stuck(active)
        if outcome is not None:
            self.completer.add(Ending(active.run_as_known, outcome))

    def _leave_stuck(self, active: ActiveRun) -> None:
        self._stuck[active.ref] = active
        self._no_longer_active([active.ref])

    def _end(self, run: Run, outcome: Outcome, seconds: float | None = None) -> None:
        """Make the slot free at once; the lease is kept until the end is written."""
        self._free_slot(run)
        self.completer.add(Ending(run, outcome, seconds))

    def _free_slot(self, run: Run) -> None:
        if self._slots.give_back(run.job.queue, run.job.job_type):
            self._claimer.wake()

    def _on_written(self, answers: Sequence[tuple[Ending, Settled | None]]) -> None:
        follow_ups: tuple[NewJob, ...] = ()
        for ending, settled in answers:
            if settled is not None and settled.accepted:
                self.counts[settled.transition.event] += 1
                self._reporter.ended(ending.run, settled.transition)
                follow_ups = follow_ups or settled.transition.follow_ups
            else:
                self._discard(ending.run)
        if follow_ups:
            self._announcer.work(follow_ups[0].job.job_id)
        self._free_places([ending.run for ending, _ in answers])
        self._announcer.events()
        self._forget([ending.run.ref for ending, _ in answers])
        self._on_ended(len(answers))

    def _free_places(self, runs: Sequence[Run]) -> None:
        """Where their types have limits, others may start now: here, or where there is a slot."""
        if self._limits.frees_a_place(runs):
            self._claimer.wake()
            self._announcer.work()

    def _discard(self, run: Run) -> None:
        self.counts["discarded"] += 1
        self._reporter.discarded(run)

    def _forget(self, refs: Sequence[RunRef]) -> None:
        self.keeper.forget(refs)
        self._no_longer_active(refs)

    def _no_longer_active(self, refs: Sequence[RunRef]) -> None:
        for ref in refs:
            self._active.pop(ref, None)
        if not self._active:
            self._nothing_active.set()
        if self.suspects:
            self.suspects.remove(refs)
            if not self.suspects:
                self._quarantine_over.set()
                self._claimer.wake_for_suspects()

    def _stop(self, ref: RunRef, cause: Cause) -> None:
        if active := self._active.get(ref):
            active.stop(cause)

    def stop_all(self, cause: Cause, *, at_once: bool = False) -> None:
        for active in list(self._active.values()):
            active.stop(cause, at_once=at_once)

    # -- stopping ---------------------------------------------------------------------------------

    def give_back_what_comes(self) -> None:
        """The worker is to stop: what a claim still brings is not started any more."""
        self._is_draining = True

    def stop_now(self) -> None:
        """Do not wait any longer for what runs."""
        self._hurry.set()
        self.stop_all(Cause.SHUTDOWN, at_once=True)

    async def end_quarantine(self) -> None:
        if self._quarantine is not None:
            self._quarantine.cancel()
            await asyncio.gather(self._quarantine, return_exceptions=True)

    async def drain(self) -> None:
        """Let what runs end within the drain time; stop what is left, and give it back."""
        self._is_draining = True
        if not self._nothing_active.is_set() and not self.are_torn_down:
            most = self._settings.drain.total_seconds()
            _log.info("waiting up to %g s for %d running jobs", most, len(self._active))
            waits = [asyncio.create_task(self._nothing_active.wait())]
            waits.append(asyncio.create_task(self._hurry.wait()))
            await asyncio.wait(waits, timeout=most, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        await self._wait_for(self._claimer.is_quiet, _LAST_CLAIM_SECONDS)
        for run in list(self._parked.values()):
            self._end(run, Released())
        self._parked.clear()
        self.stop_all(Cause.SHUTDOWN)
        grace = _HURRIED_GRACE_SECONDS if self._hurry.is_set() else _SHUTDOWN_GRACE_SECONDS
        await self._wait_for(self._nothing_active, grace)
        # What is left are handlers that do not stop. The process ends, so they end with it.
        left = [active for active in self._active.values() if not active.is_over]
        for active in left:
            _log.error(
                "the handler of job %s does not stop; the job is given back without it",
                *(active.run.job.job_id,),
                extra=labels_of(active.run),
            )
            self._leave_stuck(active)
            self.completer.add(Ending(active.run_as_known, Released()))
        if left:
            dump_stacks()

    async def _wait_for(self, event: asyncio.Event, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    async def close(self) -> int:
        """Write nothing more; return how many runs are left to their leases."""
        left = await self.completer.give_up()
        self._deadlines.close()
        await self.keeper.stop()
        return left
