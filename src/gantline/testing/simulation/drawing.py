"""Drawing a script from its seed, as a profile says."""

from random import Random
from typing import Final, get_args

import msgspec

from gantline.flow.limit import Limit
from gantline.testing.simulation.application import JOB_TYPES, QUEUES, End, Plan
from gantline.testing.simulation.network import Chances
from gantline.testing.simulation.profiles import PROFILES, Profile, Span
from gantline.testing.simulation.script import (
    Act,
    Recur,
    Script,
    Step,
    StoreKind,
    Stream,
    Submit,
    Switch,
    Trouble,
    Wait,
)

STEPS: Final = 60
_TENANTS: Final = ("default", "acme")
_EXPIRING: Final = 0.15
"""The share of submits whose jobs expire."""
_GROUPS: Final = ("g1", "g2", "g3")
_GROUPED: Final = 0.4
"""The share of submits and streams whose jobs have a group."""
_THROTTLED: Final = 0.1
"""The share of submits whose jobs are throttled at first."""
_RATES: Final = ("1/s", "5/s", "50/s")
_STREAMED_PLANS: Final = 10
_STREAMED_SECONDS: Final = ((0.0, 0.0), (0.0, 0.01), (0.01, 0.05))
_STREAMED_SLOTS: Final = 2
"""So few that jobs of streams wait for them: then each claim finds something."""


def draw_script(seed: int, store: StoreKind, *, steps: int = STEPS, streams: int = 0) -> Script:
    """Draw one from a seed. Streams are added to what the seed is without them."""
    drawing = _Drawing(seed)
    script = drawing.script(seed, store, steps)
    return drawing.with_streams(script, streams) if streams else script


def _throttled(plan: Plan) -> Plan:
    return msgspec.structs.replace(plan, ends=("throttle", *plan.ends[1:]))


class _Drawing:
    def __init__(self, seed: int) -> None:
        self._random = Random(f"{seed}/script")  # noqa: S311  # no secret
        # Apart, so that what is known of a seed stays as it is.
        self._expiries = Random(f"{seed}/expiries")  # noqa: S311  # no secret
        self._flow = Random(f"{seed}/flow")  # noqa: S311  # no secret
        self._profile: Profile = PROFILES[seed % len(PROFILES)]

    def script(self, seed: int, store: StoreKind, steps: int) -> Script:
        choice, profile = self._random.choice, self._profile
        seconds = choice(profile.seconds)
        drawn = [self._step(seconds, index) for index in range(steps)]
        return Script(
            seed=seed,
            store=store,
            workers=choice(profile.workers),
            slots=choice(profile.slots),
            slots_in_all=choice(profile.slots_in_all),
            lease=choice(profile.lease),
            drain=choice(profile.drain),
            retention=choice(profile.retention),
            is_gentle=profile.is_gentle,
            limits=self._limits(),
            chances=Chances(
                fault=choice(profile.fault),
                hint_lost=choice(profile.hint_lost),
                hint_doubled=choice((0.0, 0.1)),
                latency_seconds=choice(profile.latency),
                has_late_effects=not profile.is_gentle,
            ),
            steps=tuple(sorted(drawn, key=lambda step: step.at)),
        )

    def with_streams(self, script: Script, count: int) -> Script:
        """Add clients that keep its workers busy from the first step to the last. More steps take
        longer then: for the workers to come to work between what goes wrong."""
        longer = max(1.0, len(script.steps) / STEPS)
        steps = [msgspec.structs.replace(one, at=round(longer * one.at, 3)) for one in script.steps]
        streams = [self._stream(steps[-1].at) for _ in range(count)]
        slots = min(script.slots, _STREAMED_SLOTS)
        return msgspec.structs.replace(script, slots=slots, steps=(*streams, *steps))

    def _stream(self, seconds: float) -> Stream:
        random = self._random
        plans = [self._plan() for _ in range(_STREAMED_PLANS)]
        return Stream(
            at=0.0,
            job_type=random.choice(JOB_TYPES),
            plans=tuple(self._streamed(plan) for plan in plans),
            tenant=random.choice(_TENANTS),
            group=self._group(),
            seconds=seconds,
        )

    def _streamed(self, plan: Plan) -> Plan:
        """The same in a moment, and without a crash: each is repeated often."""
        return msgspec.structs.replace(
            plan,
            ends=tuple("return" if end == "crash" else end for end in plan.ends),
            seconds=self._within(_STREAMED_SECONDS),
            follow_ups=tuple(map(self._streamed, plan.follow_ups)),
        )

    def _step(self, seconds: float, index: int) -> Step:
        random, profile = self._random, self._profile
        at = round(random.uniform(0.0, seconds), 3)
        odds = msgspec.structs.asdict(profile.odds)
        (kind,) = random.choices(list(odds), list(odds.values()))
        match kind:
            case "submit":
                return self._submit(at)
            case "act":
                what, first = random.choice(profile.acts), random.randrange(200)
                return Act(at=at, what=what, first=first, count=random.choice(profile.acted_on))
            case "switch":
                return self._switch(at)
            case "recur":
                name, every = f"s{index}", random.choice(profile.every)
                return Recur(
                    at=at, name=name, every=every, seconds=random.uniform(*profile.recur_seconds)
                )
            case "wait":
                return Wait(at=at, which=random.randrange(200), seconds=random.uniform(1.0, 60.0))
            case _:
                return self._trouble(at)

    def _submit(self, at: float) -> Submit:
        random, profile = self._random, self._profile
        number = random.randrange(profile.keys) if random.random() < profile.keyed else None
        key = "" if number is None else f"k{number}"
        plan = self._plan()
        submit = Submit(
            at=at,
            # A key is one of a type and a tenant.
            job_type=random.choice(JOB_TYPES) if number is None else JOB_TYPES[number],
            plan=plan,
            # It takes three crashes and as many leases to find one that crashes its worker.
            count=1 if key or plan.may_crash else random.choice(profile.counts),
            priority=random.choice((None, 0, 1, 3)),
            delay=random.choice((0.0, 0.0, 0.0, random.uniform(0.0, 40.0))),
            key=key,
            tenant=_TENANTS[0] if key else random.choice(_TENANTS),
            over_http=random.random() < 0.3,
        )
        if self._expiries.random() < _EXPIRING:
            expires = submit.delay + self._expiries.uniform(0.5, 20.0)
            submit = msgspec.structs.replace(submit, expires=expires)
        if not submit.over_http:
            submit = msgspec.structs.replace(submit, group=self._group())
        if self._flow.random() < _THROTTLED:
            submit = msgspec.structs.replace(submit, plan=_throttled(submit.plan))
        return submit

    def _group(self) -> str:
        return self._flow.choice(_GROUPS) if self._flow.random() < _GROUPED else ""

    def _limits(self) -> tuple[tuple[str, tuple[Limit, ...]], ...]:
        """Limits of some types, on every second seed. Two of them share a gate."""
        flow = self._flow
        if flow.random() < 0.5:
            return ()
        limits: dict[str, tuple[Limit, ...]] = {}
        rate = Limit(rate=flow.choice(_RATES), burst=flow.choice((1, 3)), gate="shared")
        for name in flow.sample(JOB_TYPES, 2):
            running = Limit(running=flow.choice((1, 2, 3)), per=flow.choice(("group", "type")))
            limits[name] = flow.choice(((running,), (rate,), (running, rate)))
        return tuple(limits.items())

    def _plan(self, *, depth: int = 0) -> Plan:
        random, profile = self._random, self._profile
        length = random.choice((1, 1, 1, 2, 3))
        follow_ups = 0 if depth or random.random() < 0.85 else random.randint(1, 3)
        return Plan(
            ends=tuple(self._end() for _ in range(length)),
            seconds=self._within(profile.handler_seconds),
            progress=random.choice((0, 0, 0, 2)),
            follow_ups=tuple(self._plan(depth=1) for _ in range(follow_ups)),
            once=random.choice(("", "", "", "o1")),
            swallows_cancel=random.random() < profile.swallows,
        )

    def _end(self) -> End:
        random, profile = self._random, self._profile
        if random.random() < profile.crash:
            return "crash"
        return random.choice(profile.ends) if random.random() < profile.other_end else "return"

    def _switch(self, at: float) -> Switch:
        random = self._random
        what = random.choice(get_args(Switch.__annotations__["what"]))
        name = random.choice(sorted(set(QUEUES.values())) if "queue" in what else JOB_TYPES)
        return Switch(at=at, what=what, name=name, seconds=round(random.uniform(0.5, 30.0), 3))

    def _trouble(self, at: float) -> Trouble:
        random, profile = self._random, self._profile
        what = random.choice(profile.mishaps)
        is_of_the_clock = what in ("jump", "reboot")
        spans = profile.jump_seconds if is_of_the_clock else profile.mishap_seconds
        return Trouble(
            at=at,
            what=what,
            worker=random.randrange(4),
            seconds=self._within(spans),
            verb=random.choice(profile.refused) if what == "refuse" else "",
        )

    def _within(self, spans: tuple[Span, ...]) -> float:
        first, last = self._random.choice(spans)
        return round(self._random.uniform(first, last), 3)
