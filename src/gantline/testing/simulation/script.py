"""What happens in a run, drawn from its seed: the settings, what clients do, and what goes wrong.

A script is data: a run that broke a rule can be stored, repeated, and shortened step by step.
"""

from random import Random
from typing import Final, Literal, get_args

import msgspec

from gantline.testing.simulation.application import JOB_TYPES, QUEUES, End, Plan
from gantline.testing.simulation.network import Chances

StoreKind = Literal["memory", "sqlite"]

_TENANTS: Final = ("default", "acme")
_KEYS: Final = ("k1", "k2", "k3")
_GENTLE_EVERY: Final = 5


class _Step(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    at: float
    """Seconds since the beginning."""


class Submit(_Step, frozen=True, kw_only=True):
    job_type: str
    plan: Plan
    count: int = 1
    priority: int | None = None
    delay: float = 0.0
    key: str = ""
    tenant: str = "default"
    over_http: bool = False


class Act(_Step, frozen=True, kw_only=True):
    """An operator acts on jobs that were submitted before: the n-th, and those after it."""

    what: Literal["cancel", "redrive", "delete"]
    first: int
    count: int = 1


class Switch(_Step, frozen=True, kw_only=True):
    """Something is switched off for a time."""

    what: Literal["pause queue", "pause type", "disable type", "close store"]
    name: str = ""
    seconds: float


class Recur(_Step, frozen=True, kw_only=True):
    """A schedule is made, and removed after a time."""

    name: str
    every: float
    seconds: float


class Wait(_Step, frozen=True, kw_only=True):
    """A client waits for a job to end."""

    which: int
    seconds: float


class Trouble(_Step, frozen=True, kw_only=True):
    """Something goes wrong with a worker, the store or the clock."""

    what: Literal["crash", "deploy", "freeze", "block", "cut off", "freeze store", "jump"]
    worker: int = 0
    seconds: float = 0.0


Step = Submit | Act | Switch | Recur | Wait | Trouble


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run depends on."""

    seed: int
    store: StoreKind
    workers: int
    slots: int
    lease: float
    drain: float = 10.0
    retention: float | None = None
    is_gentle: bool = False
    """Nothing happens to processes, to the store or to the clock, but that calls fail and workers
    are stopped in order: so no run may be lost."""
    chances: Chances
    steps: tuple[Step, ...]
    faults: tuple[tuple[str, int], ...] | None = None
    """Which calls fail, by process and number; None: as the chances say."""


def draw_script(seed: int, store: StoreKind, *, steps: int = 60) -> Script:
    """Draw one from a seed."""
    random = Random(f"{seed}/script")  # noqa: S311  # no secret
    seconds = random.choice((30.0, 120.0, 300.0))
    drawn = [_draw_step(random, seconds, index) for index in range(steps)]
    script = Script(
        seed=seed,
        store=store,
        workers=random.randint(1, 4),
        slots=random.choice((1, 2, 5, 20)),
        lease=random.choice((5.0, 10.0, 30.0)),
        retention=random.choice((None, None, 5.0, 60.0)),
        chances=Chances(
            fault=random.choice((0.0, 0.005, 0.02, 0.1)),
            hint_lost=random.choice((0.0, 0.1, 1.0)),
            hint_doubled=random.choice((0.0, 0.1)),
            latency_seconds=random.choice((0.0, 0.001, 0.01, 0.2)),
        ),
        steps=tuple(sorted(drawn, key=lambda step: step.at)),
    )
    return _made_gentle(script) if seed % _GENTLE_EVERY == 0 else script


def _made_gentle(script: Script) -> Script:
    """The same without all that may rightly cost a run its lease."""
    chances = msgspec.structs.replace(
        script.chances, fault=min(script.chances.fault, 0.02), has_late_effects=False
    )
    # A worker that has to stop may not wait for ever for calls that fail.
    may_stop = chances.fault == 0.0
    steps = tuple(
        step
        for step in script.steps
        if not isinstance(step, Trouble) or (step.what == "deploy" and may_stop)
    )
    return msgspec.structs.replace(script, is_gentle=True, chances=chances, steps=steps)


def _draw_step(random: Random, seconds: float, index: int) -> Step:
    at = round(random.uniform(0.0, seconds), 3)
    kind = random.random()
    if kind < 0.45:
        return _draw_submit(random, at)
    if kind < 0.62:
        return Act(
            at=at,
            what=random.choice(("cancel", "cancel", "redrive", "redrive", "delete")),
            first=random.randrange(200),
            count=random.choice((1, 1, 5)),
        )
    if kind < 0.69:
        return _draw_switch(random, at)
    if kind < 0.73:
        every = random.choice((1.0, 5.0, 20.0))
        return Recur(at=at, name=f"s{index}", every=every, seconds=random.uniform(5.0, 60.0))
    if kind < 0.77:
        return Wait(at=at, which=random.randrange(200), seconds=random.uniform(1.0, 60.0))
    what = random.choice(get_args(Trouble.__annotations__["what"]))
    longest = 90.0 if random.random() < 0.2 else 10.0
    span = random.uniform(-200.0, 200.0) if what == "jump" else random.uniform(0.1, longest)
    return Trouble(at=at, what=what, worker=random.randrange(4), seconds=round(span, 3))


def _draw_submit(random: Random, at: float) -> Submit:
    key = random.choice(_KEYS) if random.random() < 0.2 else ""
    plan = draw_plan(random)
    return Submit(
        at=at,
        job_type=random.choice(JOB_TYPES),
        plan=plan,
        # It takes three crashes and as many leases to find one that crashes its worker.
        count=1 if key or plan.may_crash else random.choice((1, 1, 3, 20)),
        priority=random.choice((None, 0, 1, 3)),
        delay=random.choice((0.0, 0.0, 0.0, random.uniform(0.0, 40.0))),
        key=key,
        tenant=random.choice(_TENANTS),
        over_http=random.random() < 0.3,
    )


def draw_plan(random: Random, *, depth: int = 0) -> Plan:
    length = random.choice((1, 1, 1, 2, 3))
    ends = tuple(_draw_end(random) for _ in range(length))
    follow_ups = 0 if depth or random.random() < 0.85 else random.randint(1, 3)
    return Plan(
        ends=ends,
        seconds=random.choice((0.0, 0.0, 0.01, 0.5, 3.0, random.uniform(0.0, 20.0))),
        progress=random.choice((0, 0, 0, 2)),
        follow_ups=tuple(draw_plan(random, depth=1) for _ in range(follow_ups)),
        once=random.choice(("", "", "", "o1")),
        swallows_cancel=random.random() < 0.1,
    )


def _draw_end(random: Random) -> End:
    ends: tuple[End, ...] = ("retry", "fail", "snooze", "error", "transaction", "transaction")
    if random.random() < 0.01:
        return "crash"
    return random.choice(ends) if random.random() < 0.35 else "return"


def _draw_switch(random: Random, at: float) -> Switch:
    what = random.choice(get_args(Switch.__annotations__["what"]))
    name = random.choice(sorted(set(QUEUES.values())) if "queue" in what else JOB_TYPES)
    return Switch(at=at, what=what, name=name, seconds=round(random.uniform(0.5, 30.0), 3))
