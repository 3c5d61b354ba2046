"""One run of a model: its actors are tasks, of which one moves, from a store call to the next."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec

from gantline.contract.errors import StoreUnavailable
from gantline.contract.policy import Policy
from gantline.contract.retry import Backoff
from gantline.contract.status import ON_REQUEST
from gantline.contract.store import JobStore
from gantline.contract.submission import DedupeKey
from gantline.manager.manager import JobManager
from gantline.manager.switches import Switches
from gantline.runtime import Machine, hosted_by
from gantline.testing.clock import FakeClock
from gantline.testing.conformance.bench import StoreHarness
from gantline.testing.faults import AnswerLost, Crash
from gantline.testing.model.expected import Call, Hidden
from gantline.testing.model.invariants import Broken
from gantline.testing.model.state import State, observe

T = TypeVar("T")

POLICY: Final = Policy(events=ON_REQUEST, retry=Backoff(attempts=2))
"""Every event is logged, so that a log accounts for every change."""

# Nobody writes what these read, so when they are called makes no difference.
_NO_STEP: Final = frozenset({"read_records", "write_records"})
# To lose the answer of a read is to read later.
_CHANGES: Final = frozenset({"insert", "claim", "renew", "apply", "delete"})

acting: ContextVar["Player"] = ContextVar("acting")


Program = Callable[["Desk"], Coroutine[Any, Any, None]]


class Fate(StrEnum):
    """What becomes of a call."""

    ANSWERED = ""
    REPEATED = "answer lost, sent again"
    """By the store's own client: the same call comes once more, later."""
    LOST = "answer lost"
    """The caller sees StoreUnavailable; the call took effect."""
    DEAD = "dead before it"
    """The process ended, and the call was never made."""


class Choice(tuple[int, str]):
    """Which actor moves, and how: a Fate, or one of the options that the actor offers."""

    __slots__ = ()


@dataclass(frozen=True)
class Actor:
    """A small program over the real manager; it does one thing after the other."""

    name: str
    program: Program
    fates: frozenset[Fate] = frozenset()
    """What may become of its calls, beside that they are answered."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Who acts on one store, on which jobs."""

    name: str
    begin: Program
    """Done before anything is explored."""
    actors: tuple[Actor, ...]
    job_ids: tuple[UUID, ...]
    key: DedupeKey
    """The one key that all jobs of the model have."""
    faults: int = 0
    """How many calls may go wrong in one run."""

    def __str__(self) -> str:
        return self.name


@dataclass
class Player:
    """An actor in a run."""

    index: int
    actor: Actor
    ids: int = 0
    verb: str = ""
    options: tuple[str, ...] = ()
    turn: asyncio.Future[str] | None = None
    """Set while it waits to be moved."""
    seen: list[str] = field(default_factory=list)
    """All that was answered to it: where it stands follows from this alone."""


class Desk:
    """What a program works with."""

    def __init__(self, world: "World", store: JobStore, name: str) -> None:
        self._world = world
        self.name = name
        self.store = store
        self.manager = JobManager(
            store,
            policy_for=lambda job_type: POLICY,
            jitter=lambda: 0.0,
            switches=_NoSwitches(store),
        )

    async def repeat(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until the store answers, as worker, reaper and clients do."""
        while True:
            try:
                return await call()
            except StoreUnavailable:
                pass

    async def choose(self, options: Sequence[str]) -> str:
        """Let every option be explored."""
        return options[0] if len(options) == 1 else await self._world.park("", tuple(options))

    async def let_time_pass(self, span: timedelta) -> None:
        await self._world.park("time passes")
        self._world.clock.advance(span)


class World:
    """A store and the actors on it, from the beginning."""

    def __init__(self, model: Model, harness: StoreHarness, store: JobStore) -> None:
        self.model = model
        self.harness = harness
        self.clock: FakeClock = harness.clock
        self.store = store
        self.hidden = Hidden()
        """As it was before the last call."""
        self.call: Call | None = None
        """The last one that took effect."""
        self.steps: list[str] = []
        self._host = StandingHost(harness.clock)
        self.faults = 0
        self._players = [Player(index, actor) for index, actor in enumerate(model.actors)]
        self._tasks: list[asyncio.Task[None]] = []
        self._moved: asyncio.Future[None] | None = None

    @classmethod
    async def begin(cls, model: Model, harness: StoreHarness) -> "World":
        world = cls(model, harness, await harness.open())
        with hosted_by(world._host):
            seen = cast("JobStore", _Seen(world.store, world._remember))
            await model.begin(Desk(world, seen, "begin"))
            for player in world._players:
                await world._start(player)
        return world

    async def _start(self, player: Player) -> None:
        gated = cast("JobStore", _Seen(self.store, self._gate))
        desk = Desk(self, gated, player.actor.name)

        async def run() -> None:
            acting.set(player)
            await player.actor.program(desk)

        task = asyncio.create_task(run())
        task.add_done_callback(lambda done: self._stop_moving())
        self._tasks.append(task)
        await self._until_moved()

    # -- moving -----------------------------------------------------------------------------------

    def choices(self) -> list[Choice]:
        """All that can happen next. A choice of one's own depends on nobody: it comes at once."""
        waiting = [player for player in self._players if player.turn is not None]
        for player in waiting:
            if player.options:
                return [Choice((player.index, option)) for option in player.options]
        return [Choice((player.index, fate)) for player in waiting for fate in self._fates(player)]

    def _fates(self, player: Player) -> list[Fate]:
        may_fail = self.faults < self.model.faults
        return [
            fate
            for fate in Fate
            if fate is Fate.ANSWERED
            or (may_fail and fate in player.actor.fates and _can_have(player.verb, fate))
        ]

    def _describe(self, choice: Choice) -> str:
        index, how = choice
        player = self._players[index]
        what = player.verb or "chooses"
        return f"{player.actor.name}: {what}{f' ({how})' if how else ''}"

    async def step(self, choice: Choice) -> None:
        """Let one actor go on to its next call, or to its end."""
        index, how = choice
        player = self._players[index]
        turn, player.turn = player.turn, None
        assert turn is not None  # choices() names only those that wait
        self.steps.append(self._describe(choice))
        if self.call is not None:
            self.hidden.learn(self.call)
            self.call = None
        self.faults += how in (Fate.REPEATED, Fate.LOST, Fate.DEAD)
        with hosted_by(self._host):
            turn.set_result(how)
            await self._until_moved()
        task = self._tasks[index]
        failed = task.exception() if task.done() else None
        if isinstance(failed, Broken):
            raise failed
        if failed is not None and not isinstance(failed, Crash):
            raise Broken(f"{player.actor.name} failed: {failed!r}") from failed

    async def _until_moved(self) -> None:
        self._moved = asyncio.get_running_loop().create_future()
        await self._moved

    def _stop_moving(self) -> None:
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)

    async def park(self, verb: str, options: tuple[str, ...] = ()) -> str:
        """Wait to be moved."""
        player = acting.get()
        player.verb, player.options = verb, options
        player.turn = asyncio.get_running_loop().create_future()
        self._stop_moving()
        how = await player.turn
        player.options = ()
        player.seen.append(f"{verb} {how}")
        return how

    async def _remember(self, call: Call, send: Callable[[], Awaitable[Any]]) -> Any:
        answer = await send()
        self.hidden.learn(Call(call.verb, call.args, call.kwargs, answer))
        return answer

    async def _gate(self, call: Call, send: Callable[[], Awaitable[Any]]) -> Any:
        if call.verb in _NO_STEP:
            return await send()
        while True:
            how = await self.park(call.verb)
            if how == Fate.DEAD:
                raise Crash(call.verb)
            answer = await send()
            self.call = Call(call.verb, call.args, call.kwargs, answer)
            if how == Fate.LOST:
                raise AnswerLost(call.verb)
            if how == Fate.ANSWERED:
                acting.get().seen.append(as_text(answer))
                return answer

    # -- looking ----------------------------------------------------------------------------------

    async def observe(self) -> State:
        model = self.model
        return await observe(
            self.store, now=self.clock.now(), job_ids=list(model.job_ids), key=model.key
        )

    def key(self, state: State) -> bytes:
        """Equal for two runs from which the same can follow: the store is the same, and every actor
        was answered the same so far."""
        digest = blake2b(state.digest(), digest_size=16)
        for player, task in zip(self._players, self._tasks, strict=True):
            how_far = (player.seen, player.verb, player.options, task.done())
            digest.update(repr(how_far).encode())
        digest.update(bytes([self.faults]))
        return digest.digest()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.harness.close()


class _NoSwitches(Switches):
    """Nothing is paused or closed in a model, so nothing is read."""

    async def refresh(self, *, max_age_seconds: float = 1.0) -> None:
        """Leave them."""


class _Seen:
    """Stands for a store, and passes each verb with its arguments through `around`."""

    def __init__(
        self,
        store: JobStore,
        around: Callable[[Call, Callable[[], Awaitable[Any]]], Awaitable[Any]],
    ) -> None:
        self._store = store
        self._around = around

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(verb):
            return verb

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._around(Call(name, args, kwargs, None), lambda: verb(*args, **kwargs))

        return call


def as_text(answer: Any) -> str:
    """Equal for equal answers. The kinds too: most refusals have no fields."""
    kinds = [type(one).__name__ for one in answer] if isinstance(answer, list) else []
    return f"{kinds} {msgspec.json.encode(answer)!r}"


def _can_have(verb: str, fate: Fate) -> bool:
    return fate is Fate.DEAD or verb in _CHANGES


class StandingHost(Machine):
    """Time stands still, and an id says who made it: so one schedule is always the same run."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._nobody = Player(-1, Actor("nobody", _do_nothing))

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def random(self) -> float:
        return 0.0

    def random_bytes(self, count: int) -> bytes:
        made = bytearray()
        while len(made) < count:
            player = acting.get(self._nobody)
            player.ids += 1
            made += (((player.index + 2) << 32) | player.ids).to_bytes(16, "big")
        return bytes(made[:count])


async def _do_nothing(desk: Desk) -> None:
    """The program of nobody."""
