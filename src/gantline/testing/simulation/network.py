"""What lies between a process and its store, and between processes: where messages are delayed,
lost, doubled or come late."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec

from gantline.contract.errors import StoreUnavailable
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint, OnHint
from gantline.testing.faults import AnswerLost, Call, intercepted
from gantline.testing.simulation.world import Process, SimulatedLoop, World

_PATIENCE_SECONDS: Final = 10.0
"""After how long without an answer a caller gives up, as the drivers of real stores do."""


LATEST_EFFECT_SECONDS: Final = 20.0
_SLOWEST_SECONDS: Final = 3.0
WRITES: Final = ("insert", "claim", "renew", "progress", "apply", "delete", "write_records")
"""What fails where a store can only be read."""


class Fault(StrEnum):
    """What may happen to one call of a store."""

    REFUSED = "refused"
    """An error; the call had no effect."""
    LOST = "answer lost"
    """An error; the call had its effect."""
    LATE = "late effect"
    """An error now; the call has its effect later."""
    SLOW = "slow"
    """The request or the answer takes seconds."""


class Chances(msgspec.Struct, frozen=True):
    """How likely what is."""

    fault: float = 0.02
    """That something happens to a call."""
    hint_lost: float = 0.05
    hint_doubled: float = 0.05
    latency_seconds: float = 0.001
    """The mean of one way."""
    has_late_effects: bool = True
    """A call that failed may have its effect later: also one that was repeated since."""


class Network:
    """The ways of one world. While it is `calm`, nothing goes wrong."""

    def __init__(self, world: World, chances: Chances, *, is_remote: bool) -> None:
        """`is_remote`: whether the store is a server of its own, to which a request may be under
        way whose sender is gone."""
        self.world = world
        self.chances = chances
        self.is_remote = is_remote
        self.is_calm = False
        self.server = world.start("server") if is_remote else None
        self.cut_off_until: dict[str, float] = {}
        """By the name of the process."""
        self.slow_until: dict[str, float] = {}
        """By the name of the process, whose answers take long."""
        self.refused_until: dict[str, float] = {}
        """By the verb."""
        self.listeners: dict[OnHint, SimulatedLoop] = {}
        self.calls: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter()
        self.allowed: set[tuple[str, int]] | None = None
        """Which faults may happen, by process and number of the call; None: all."""
        self.happened: list[tuple[str, int]] = []
        self._serving: set[asyncio.Task[None]] = set()

    def calm_down(self) -> None:
        """Let nothing go wrong from now on."""
        self.is_calm = True
        self.slow_until.clear()
        self.refused_until.clear()

    # -- to the store -----------------------------------------------------------------------------

    def connect(self, process: Process, store: JobStore) -> JobStore:
        """The store as this process sees it."""

        async def around(verb: str, call: Call) -> Any:
            return await self._exchange(process, verb, call)

        return intercepted(store, around)

    async def _exchange(self, process: Process, verb: str, call: Call) -> Any:
        self.calls[verb] += 1
        self.world.sign(f"{process.name} {verb}")
        fault = self._draw(process)
        await self._travel(process)
        await self._wait_while_cut_off(process, verb)
        if self.refused_until and self.refused_until.get(verb, 0.0) > self.world.now:
            raise StoreUnavailable(f"The simulation refuses every {verb}.")
        if fault is not None:
            self.world.note(f"{process.name} {verb}: {fault}")
        match fault:
            case Fault.REFUSED:
                raise StoreUnavailable(f"The simulation refused {verb}.")
            case Fault.LATE if self.server is not None and self.chances.has_late_effects:
                seconds = process.random.uniform(0.0, LATEST_EFFECT_SECONDS)
                self.server.main.call_later(seconds, self._do_later, call)
                await asyncio.sleep(process.random.uniform(0.0, _PATIENCE_SECONDS))
                raise StoreUnavailable(f"The simulation delays {verb}.")
            case Fault.SLOW:
                slow = process.random.uniform(0.1, 5.0)
                way = process.random.choice((0.0, 1.0))
                await asyncio.sleep(slow * way)
            case _:
                pass
        answer = await self._served(call, verb)
        if fault is Fault.SLOW:
            await asyncio.sleep(slow * (1.0 - way))
        if self.slow_until and self.slow_until.get(process.name, 0.0) > self.world.now:
            await asyncio.sleep(process.random.uniform(0.0, _SLOWEST_SECONDS))
        await self._travel(process)
        await self._wait_while_cut_off(process, verb)
        if fault is Fault.LOST:
            raise AnswerLost(f"The simulation lost the answer to {verb}.")
        return answer

    async def _served(self, call: Call, verb: str) -> Any:
        """Where the store is a server, its own process does it: also when the caller is gone."""
        if self.server is None:
            return await call()
        loop = asyncio.get_running_loop()
        answered = loop.create_future()

        async def serve() -> None:
            try:
                result = await call()
            except BaseException as error:
                loop.call_soon_threadsafe(_answer, answered, None, error)
            else:
                loop.call_soon_threadsafe(_answer, answered, result, None)

        self.server.main.call_soon(lambda: self._begin(serve()))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await answered
        except TimeoutError:
            raise StoreUnavailable(f"The server does not answer to {verb}.") from None

    def _begin(self, serving: Any) -> None:
        assert self.server is not None
        task = self.server.main.create_task(serving)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    def _do_later(self, call: Call) -> None:
        async def serve() -> None:
            with suppress(Exception):
                await call()

        self._begin(serve())

    def _draw(self, process: Process) -> Fault | None:
        if self.is_calm:
            return None
        self._numbers[process.name] += 1
        number = self._numbers[process.name]
        if not self.chances.fault:
            return None
        # Of its own, so that a script without some of its steps has the same faults elsewhere.
        chance = Random(f"{self.world.seed}/{process.name}/{number}")  # noqa: S311  # no secret
        if chance.random() >= self.chances.fault:
            return None
        if self.allowed is not None and (process.name, number) not in self.allowed:
            return None
        self.happened.append((process.name, number))
        fault = chance.choice(list(Fault))
        self.faults[fault] += 1
        return fault

    async def _travel(self, process: Process) -> None:
        if self.chances.latency_seconds:
            await asyncio.sleep(process.random.expovariate(1 / self.chances.latency_seconds))

    async def _wait_while_cut_off(self, process: Process, verb: str) -> None:
        left = self.cut_off_until.get(process.name, 0.0) - self.world.now
        if left > 0 and not self.is_calm:
            await asyncio.sleep(min(left, _PATIENCE_SECONDS))
            if left > _PATIENCE_SECONDS:
                raise StoreUnavailable(f"The simulation cuts {process.name} off from {verb}.")

    # -- between processes ------------------------------------------------------------------------

    def notify(self, process: Process, hint: Hint) -> None:
        for listener, loop in list(self.listeners.items()):
            if not loop.process.is_alive:
                del self.listeners[listener]
                continue
            times = 1
            if not self.is_calm:
                chance = process.random.random()
                if chance < self.chances.hint_lost:
                    self.faults["hint lost"] += 1
                    times = 0
                elif chance < self.chances.hint_lost + self.chances.hint_doubled:
                    self.faults["hint doubled"] += 1
                    times = 2
            for _ in range(times):
                loop.call_later(process.random.expovariate(500.0), listener, hint)


def _answer(answered: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if not answered.done():
        if error is None:
            answered.set_result(result)
        else:
            answered.set_exception(error)


class SimulatedWakeup:
    """Hints over the network of the world."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._own: OnHint | None = None
        self._process: Callable[[], Process] = lambda: network.world.current

    async def open(self, on_hint: OnHint | None) -> None:
        if on_hint is not None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimulatedLoop)
            self._network.listeners[on_hint] = loop
            self._own = on_hint

    def notify(self, hint: Hint = Hint.WORK, *, job_id: UUID | None = None) -> None:
        self._network.notify(self._process(), hint)

    @property
    def is_listening(self) -> bool:
        return self._own is not None

    async def close(self) -> None:
        if self._own is not None:
            self._network.listeners.pop(self._own, None)
            self._own = None
