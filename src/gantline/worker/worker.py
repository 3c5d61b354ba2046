"""The worker: what runs jobs in a process, put together; its life, and its health."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, assert_never

from gantline.consumers.consumers import Consumers
from gantline.consumers.event_reader import CONSUMER_LEASE, DeclaredConsumer
from gantline.contract.capabilities import StorageSettings
from gantline.contract.clock import Clock
from gantline.contract.errors import Forbidden
from gantline.contract.flow import TypeFlow
from gantline.contract.store import JobStore
from gantline.contract.version import __version__
from gantline.contract.wakeup import Hint, Wakeup
from gantline.flow.limits import Limits
from gantline.manager.maintenance import Chore
from gantline.manager.manager import JobManager
from gantline.manager.observer import Observer
from gantline.manager.reaper import declare_crash_budgets
from gantline.manager.sessions import Session, new_session_id, register, unregister
from gantline.runtime import exit_process, monotonic, process
from gantline.schedules.schedule import Schedule
from gantline.schedules.task import ScheduleTask
from gantline.worker.active_run import RunTracer
from gantline.worker.announcer import Announcer
from gantline.worker.claimer import SWITCHES_SECONDS, Claimer
from gantline.worker.context import StoreRunPort
from gantline.worker.deadlines import Deadlines
from gantline.worker.executor import Executor, RunHook
from gantline.worker.handler import HandlerRegistry
from gantline.worker.lease_keeper import EXIT_STUCK
from gantline.worker.processes import ProcessPool
from gantline.worker.recycling import is_worn_out
from gantline.worker.run_log import Reporter
from gantline.worker.runs import Runs
from gantline.worker.settings import WorkerSettings
from gantline.worker.slots import Slots, TypeLimit
from gantline.worker.standstill import Standstill
from gantline.worker.take_over import TakeOver
from gantline.worker.threads import HandlerThreads
from gantline.worker.upkeep import maintain_for_ever

_log = logging.getLogger("gantline.worker")

_REGISTER_EVERY_SECONDS: Final = 20.0
_SHORT_DRAIN_SECONDS: Final = 0.2
# How long after the drain a stop waits for the store. Shorter than the supervisor's grace.
_LAST_WRITES_SECONDS: Final = 4.0
_LAST_HINTS_SECONDS: Final = 1.0


class Worker:
    """Run jobs until asked to stop."""

    def __init__(
        self,
        store: JobStore,
        manager: JobManager,
        registry: HandlerRegistry,
        settings: WorkerSettings,
        *,
        clock: Clock,
        wakeup: Wakeup,
        hooks: tuple[RunHook, ...] = (),
        tracer: RunTracer | None = None,
        observer: Observer | None = None,
        chores: Sequence[Chore] = (),
        storage: StorageSettings,
        limits: Limits,
        flows: Sequence[TypeFlow] = (),
        consumers: Sequence[DeclaredConsumer] = (),
        schedules: Sequence[Schedule] = (),
        state: Any = None,
        find_type: Callable[[str], Any] = lambda name: None,
        admit: Callable[[], Awaitable[str]] | None = None,
        exit_process: Callable[[int], object] = exit_process,
    ) -> None:
        """`chores` are what the maintenance does beside its own; `find_type` gives job types.
        `flows` are the limits that its code declares.

        `admit` is asked at every registration for the id of this worker's key; Forbidden ends it.
        """
        self._store = store
        self._chores = chores
        self._storage = storage
        self._limits = limits
        self._flows = flows
        self._registry = registry
        self._settings = settings
        self._slots = Slots(settings, _limits(registry))
        self._is_open = False
        self._clock = clock
        self._wakeup = wakeup
        self._hooks = hooks
        self._tracer = tracer
        self._observer = observer or Observer()
        self._declared_consumers = consumers
        self._declared_schedules = schedules
        self._state = state
        self._find_type = find_type
        self._admit = admit
        self._manager = manager
        self._switches = manager.switches
        self._stop_asked = asyncio.Event()
        self._give_up_at = math.inf
        """When a stop no longer waits for the store, on the monotonic clock."""
        self._limit: asyncio.Timeout | None = None
        self._main: asyncio.Task[None] | None = None
        self._was_cancelled = False
        self._exit = exit_process
        self._exit_code: int | None = None
        self._ended = 0
        self._started_at = clock.now()
        self.session_id = new_session_id()

    # -- living -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until `stop`; then drain, give back what is left, and let everything go."""
        self._main = asyncio.current_task()
        await self._open()
        if not self._is_open:  # a stop was asked for meanwhile
            return
        self._consumers.start()
        self._schedules.start()
        background = [
            asyncio.create_task(work)
            for work in (
                self._claimer.claim_for_ever(),
                self._register_for_ever(),
                self._end_if_hopeless(),
                self._take_over.watch_for_ever(),
            )
        ]
        if self._settings.maintain_every is not None:
            background.append(asyncio.create_task(self._maintain(self._settings.maintain_every)))
        stop = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait({stop, *background}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._was_cancelled = not self.is_draining
            raise
        finally:
            self.stop()  # what is still being claimed goes back
            stop.cancel()
            for task in background:
                task.cancel()
            await self._runs.end_quarantine()
            await self._close(
                self._drain(),
                self._consumers.stop(self._settings.drain.total_seconds()),
                self._schedules.stop(),
                asyncio.gather(*background, return_exceptions=True),
            )
            results = await asyncio.gather(*background, return_exceptions=True)
        if self._exit_code is not None:
            self._exit(self._exit_code)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def stop(self) -> None:
        """Claim nothing more, let running jobs end within the drain time, then give them back.

        It takes the drain time and a few seconds, whatever the store does. What cannot be written
        by then is left to the leases.
        """
        if not self.is_draining:
            drain = self._settings.drain.total_seconds()
            self._give_up_at = monotonic() + drain + _LAST_WRITES_SECONDS
        self._stop_asked.set()
        if self._is_open:
            self._runs.give_back_what_comes()
        else:  # what it declares is still stored, where the store answers
            self._limit_to(_LAST_WRITES_SECONDS)

    def stop_now(self) -> None:
        """Do not wait any longer for running jobs, and for the store a few seconds only."""
        self.stop()
        self._give_up_at = min(self._give_up_at, monotonic() + _LAST_WRITES_SECONDS)
        self._limit_to(self._seconds_left)
        if self._is_open:
            self._runs.stop_now()
            self._consumers.stop_now()

    @property
    def _seconds_left(self) -> float:
        return max(0.0, self._give_up_at - monotonic())

    def _limit_to(self, seconds: float) -> None:
        if self._limit is not None:
            with suppress(RuntimeError):  # it has been reached just now
                self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    @property
    def is_draining(self) -> bool:
        return self._stop_asked.is_set()

    def trouble(self, within: timedelta | None = None) -> str | None:
        """Why it does not run what is due although it should; None while all is well. From any
        thread."""
        if not self._is_open:
            return "The worker is not running yet, or no longer."
        if self.is_draining:
            return "It is stopping."
        return self._standstill.cause(within)

    @property
    def has_stuck_handlers(self) -> bool:
        """Whether handlers go on whose runs are over."""
        return self._runs.has_stuck_handlers

    @property
    def counts(self) -> Counter[str]:
        """What this worker did: a number per final status, and `discarded` for lost runs."""
        return self._runs.counts if self._is_open else Counter()

    @property
    def slots(self) -> Mapping[str, tuple[int, int]]:
        """How many slots each queue has, and how many are free. Callable from any thread."""
        total = self._settings.queues
        return {queue: (total[queue], free) for queue, free in self._slots.without_a_run.items()}

    async def _open(self) -> None:
        self._switches.invalidate()  # what the application has read may be old
        self._limits.invalidate()
        self._assemble()
        try:
            async with asyncio.timeout(None) as self._limit:  # which a stop sets
                await self._take_over.open()
                await declare_crash_budgets(self._store, self._registry.crash_budgets)
                await self._limits.declare(self._flows)
                await self._register()
                await self._consumers.begin()
                await self._runs.keeper.start()
                await self._wakeup.open(self._on_hint)
                await self._schedules.begin()
                self._is_open = True
        except BaseException as error:
            was_asked_to_stop = self.is_draining and isinstance(error, TimeoutError)
            self.stop_now()
            await self._close()
            if not was_asked_to_stop:
                raise

    def _assemble(self) -> None:
        """Make the parts, which belong to the running event loop."""
        self._processes = ProcessPool()
        self._threads = HandlerThreads()
        self._announcer = Announcer(self._store, self._wakeup)
        self._consumers = Consumers(
            self._store,
            self._declared_consumers,
            self.session_id,
            clock=self._clock,
            longest_wait=self._longest_wait,
            ask=lambda: self._wakeup.notify(Hint.WATCHED),
            number=self._announcer.number,
            lease=min(CONSUMER_LEASE, self._settings.lease),
            is_closed=self._is_closed,
        )
        self._schedules = ScheduleTask(
            self._store,
            self._manager,
            self.session_id,
            declared=self._declared_schedules,
            wakeup=self._wakeup,
            observer=self._observer,
        )
        self._runs = Runs(
            self._manager,
            self._registry,
            self._slots,
            self._switches,
            self._limits,
            self._settings,
            self.session_id,
            clock=self._clock,
            announcer=self._announcer,
            observer=self._observer,
            reporter=Reporter(self._clock),
            make_executor=self._make_executor,
            on_ended=self._count,
            is_loop_ending=self._is_loop_ending,
            exit_process=self._exit,
        )
        self._claimer = Claimer(
            self._manager,
            self._registry,
            self._slots,
            self._switches,
            self._limits,
            self.session_id,
            lease=self._settings.lease,
            longest_wait=self._longest_wait,
            keeps_up=self._runs.completer.keeps_up,
            start=self._runs.start,
            register=self._register,
            suspects=self._runs.suspects,
        )
        self._runs.claimed_by(self._claimer)
        self._standstill = Standstill(
            self._store, self._registry, self._settings, self._runs, self._claimer
        )
        self._take_over = TakeOver(
            self._store,
            self.session_id,
            lease=self._settings.lease,
            observer=self._observer,
            runs_ended=self._runs_ended,
        )

    def _make_executor(self, deadlines: Deadlines) -> Executor:
        return Executor(
            self._registry,
            StoreRunPort(
                self._store,
                self._manager,
                self._find_type,
                self._announcer.events,
                audits=any(one.of_audit for one in self._declared_consumers),
            ),
            threads=self._threads,
            processes=self._processes,
            deadlines=deadlines,
            hooks=self._hooks,
            tracer=self._tracer,
            state=self._state,
        )

    async def _is_closed(self) -> bool:
        await self._switches.refresh(max_age_seconds=SWITCHES_SECONDS)
        return self._switches.closed is not None

    def _on_hint(self, hint: Hint) -> None:
        match hint:
            case Hint.WORK:
                self._claimer.wake()
            case Hint.CANCEL:
                self._runs.keeper.beat_now()
            case Hint.SWITCHED:
                self._switches.invalidate()
                self._limits.invalidate()
                self._claimer.wake()
            case Hint.WATCHED:
                self._announcer.watched()
            case Hint.ENDED:
                self._consumers.wake()
            case Hint.SCHEDULED:
                self._schedules.wake()
            case _:
                assert_never(hint)

    async def _close(self, *before: Awaitable[object]) -> None:
        """Write what is left once all of `before` is done, and let everything go.

        All that may wait for the store has one deadline together.
        """
        is_cut = False
        try:
            async with asyncio.timeout(self._seconds_left) as self._limit:
                await asyncio.gather(*before)
                await self._runs.completer.drained()
                await self._announcer.finish()
                await self._wakeup.close()
                await self._sign_off()
        except TimeoutError:
            is_cut = True
        finally:
            self._limit = None
            left = await self._runs.close()
            if is_cut:
                _log.warning(
                    "the store does not answer: stopping without it; runs left to their leases: %d",
                    left,
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_HINTS_SECONDS):
                    await self._wakeup.close()
            await self._processes.close()
            self._threads.close()
            self._take_over.close()

    async def _sign_off(self) -> None:
        try:
            if self._runs.are_torn_down:
                await self._store.expire_session(self.session_id)
            await unregister(self._store, self.session_id)
        except Exception as error:
            _log.warning("could not sign off: %s", error)

    def _is_loop_ending(self) -> bool:
        """Other code ends all tasks of the loop, this worker's own among them, unasked."""
        cancelling = self._main is not None and self._main.cancelling() > 0
        return self._was_cancelled or (cancelling and not self.is_draining)

    def _count(self, ended: int) -> None:
        self._ended += ended
        if is_worn_out(self._settings, ended=self._ended):
            _log.info("stopping to be started again after %d runs", self._ended)
            self.stop()

    def _longest_wait(self) -> timedelta:
        """How long an idle look may be put off: what has become due by itself sends no hint."""
        return self._settings.poll * (2 if self._wakeup.is_listening else 1)

    # -- in the background ------------------------------------------------------------------------

    async def _register_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_REGISTER_EVERY_SECONDS)
            await self._register_again()

    async def _register_again(self) -> None:
        try:
            await self._register()
        except Forbidden:
            raise
        except Exception as error:
            _log.warning("could not register this session: %s", error)

    async def _drain(self) -> None:
        """Where it takes a while, be registered meanwhile as one that drains."""
        draining, seconds = asyncio.create_task(self._runs.drain()), _SHORT_DRAIN_SECONDS
        try:
            while not (await asyncio.wait([draining], timeout=seconds))[0]:
                seconds = _REGISTER_EVERY_SECONDS
                with suppress(Forbidden):
                    await self._register_again()
            await draining
        finally:
            draining.cancel()

    async def _register(self) -> None:
        """Raise Forbidden where the installation requires a key that this worker does not have."""
        key_id = await self._admit() if self._admit else ""
        host, pid = process()
        await register(
            self._store,
            Session(
                session_id=self.session_id,
                host=host,
                pid=pid,
                version=__version__,
                started_at=self._started_at,
                last_seen_at=self._clock.now(),
                queues=self._settings.queues,
                slots=self._slots.total,
                concurrency=tuple((one.names, one.concurrency) for one in _limits(self._registry)),
                job_types=self._registry.job_types,
                consumers=self._consumers.names,
                schedules=self._schedules.declared_keys,
                schedules_mark=self._schedules.mark,
                no_handler_grace_seconds=None
                if self._settings.maintain_every is None
                else self._storage.no_handler_grace.total_seconds(),
                draining=self.is_draining,
                trouble=self._standstill.cause() or "",
                key_id=key_id,
            ),
        )

    def _runs_ended(self) -> None:
        """Jobs of ended workers wait again, or made room for others, here and elsewhere."""
        self._claimer.wake()
        self._claimer.wake_for_suspects()
        self._announcer.work()
        self._announcer.events()

    async def _end_if_hopeless(self) -> None:
        """End the process, for its supervisor to start another; what still can, ends first."""
        await self._standstill.wait_until_hopeless()
        self._exit_code = EXIT_STUCK
        self.stop()

    async def _maintain(self, every: timedelta) -> None:
        await maintain_for_ever(
            self._store,
            self._switches,
            self.session_id,
            every=every,
            lease=self._settings.lease,
            observer=self._observer,
            chores=self._chores,
            runs_ended=self._runs_ended,
            storage=self._storage,
        )


def _limits(registry: HandlerRegistry) -> list[TypeLimit]:
    handlers = [(one.job_types, one.concurrency) for one in registry.handlers]
    return [TypeLimit(names, most) for names, most in handlers if most is not None]
