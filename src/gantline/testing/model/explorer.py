"""The explorer: every order in which the steps of a model's actors can happen, each checked."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from gantline.manager.manager import Ending
from gantline.manager.reaper import Reaper
from gantline.runtime import new_uuid
from gantline.testing.conformance.bench import StoreHarness
from gantline.testing.factories import register_sessions
from gantline.testing.model.actors import LEASE, ORDINARY, OUTCOMES, SUSPECTS
from gantline.testing.model.expected import check_call
from gantline.testing.model.invariants import Broken, check, check_state, check_step
from gantline.testing.model.state import State
from gantline.testing.model.world import Choice, Desk, Model, World

_DAY = timedelta(days=1)

Schedule = tuple[Choice, ...]


class Violation(AssertionError):
    """A schedule of a model breaks a promise."""

    def __init__(self, model: Model, steps: list[str], what: str, runs: int) -> None:
        lines = [f"{model}: {what}", *(f"  {n}. {step}" for n, step in enumerate(steps, start=1))]
        super().__init__("\n".join(lines))
        self.steps = steps
        self.what = what
        self.runs = runs


@dataclass(frozen=True)
class Explored:
    """What was looked at."""

    states: int
    """Different ones, of the store and of all actors together."""
    steps: int
    """Between them; each was checked."""
    ends: int
    """States in which nobody had anything left to do."""
    interleavings: int
    """Whole orders of all steps that these states stand for."""
    runs: int
    """From an empty store."""


async def explore(
    model: Model,
    make: Callable[[], StoreHarness],
    *,
    shortest_first: bool = False,
    merged: bool = True,
) -> Explored:
    """Go through all interleavings; raise Violation at the first that breaks a promise.

    A state that was reached before is not followed again: the store looks the same and every actor
    was answered the same, so the same follows. `shortest_first` needs many times as long, and the
    schedule that it finds is one of the shortest. Not `merged`, each interleaving is run alone.
    """
    exploration = _Exploration(model, make, shortest_first=shortest_first, merged=merged)
    await exploration.run()
    return exploration.explored()


class _Exploration:
    def __init__(
        self,
        model: Model,
        make: Callable[[], StoreHarness],
        *,
        shortest_first: bool,
        merged: bool,
    ) -> None:
        self._model = model
        self._make = make
        self._shortest_first = shortest_first
        self._merged = merged
        self._pending: deque[Schedule] = deque([()])
        self._next: dict[bytes, list[bytes]] = {}
        self._root = b""
        self._runs = self._steps = 0

    async def run(self) -> None:
        while self._pending:
            schedule = self._pending.popleft() if self._shortest_first else self._pending.pop()
            self._runs += 1
            world = await World.begin(self._model, self._make())
            try:
                await self._follow(world, schedule)
            except Broken as broken:
                raise Violation(self._model, world.steps, str(broken), self._runs) from broken
            finally:
                await world.close()

    async def _follow(self, world: World, schedule: Schedule) -> None:
        """Repeat what is known of a schedule, and go on until nothing is new."""
        for choice in schedule[:-1]:
            await world.step(choice)
        here = await self._look(world)
        at: _Point | None = here
        if schedule:
            at = await self._move(world, schedule[-1], here)
        else:
            self._root = here.key
            check_state(here.state)
        while at is not None:
            choices = world.choices()
            self._next[at.key] = []
            if not choices:
                await finish(world)
                return
            first = 0 if self._shortest_first else 1
            self._pending.extend((*schedule, choice) for choice in choices[first:])
            if self._shortest_first:
                return
            schedule = (*schedule, choices[0])
            at = await self._move(world, choices[0], at)

    async def _move(self, world: World, choice: Choice, at: "_Point") -> "_Point | None":
        """Make one step and judge it; None where it leads to what was seen before."""
        self._steps += 1
        await world.step(choice)
        to = await self._look(world)
        check_step(at.state, to.state)
        check_state(to.state)
        if world.call is not None:
            check_call(world.call, at.state, to.state, world.hidden)
        self._next[at.key].append(to.key)
        return None if to.key in self._next else to

    async def _look(self, world: World) -> "_Point":
        state = await world.observe()
        key = world.key(state)
        return _Point(state, key if self._merged else key + repr(world.steps).encode())

    def explored(self) -> Explored:
        return Explored(
            states=len(self._next),
            steps=self._steps,
            ends=sum(not ways for ways in self._next.values()),
            interleavings=_count_ways(self._root, self._next),
            runs=self._runs,
        )


@dataclass(frozen=True)
class _Point:
    state: State
    key: bytes


async def finish(world: World) -> None:
    """All actors are gone: what is live must still be found by a reaper or a worker, and end."""
    for _ in range(2):
        world.clock.advance(_DAY)
        await Reaper(world.store, jitter=lambda: 0.0).run_once()
    world.clock.advance(_DAY)
    desk = Desk(world, world.store, "heir")
    before = await world.observe()
    await register_sessions(desk.store, desk.name)
    for request in (ORDINARY, SUSPECTS):
        runs = await desk.manager.claim(desk.name, new_uuid(), [request], lease=LEASE)
        for settled in await desk.manager.settle(
            [Ending(run, OUTCOMES["success"]) for run in runs]
        ):
            check(settled.accepted, f"the heir was refused: {settled.result}")
    after = await world.observe()
    check_state(after)
    stuck = [job_id for job_id, job in after.jobs.items() if not job.status.is_terminal]
    check(not stuck, f"nobody finds {stuck}, which was {before.jobs}")


def _count_ways(root: bytes, following: dict[bytes, list[bytes]]) -> int:
    """Count the ways from the first state to any last one."""
    ways: dict[bytes, int] = {}
    stack = [root]
    while stack:
        key = stack[-1]
        open_ones = [after for after in following[key] if after not in ways]
        if open_ones:
            stack += open_ones
            continue
        stack.pop()
        ways[key] = sum(ways[after] for after in following[key]) or 1
    return ways[root]
