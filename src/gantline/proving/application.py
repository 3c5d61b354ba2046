"""The application under proof: jobs whose payload says what each attempt does."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

import msgspec

from gantline.app.gantline import Gantline
from gantline.app.job_type import JobType
from gantline.app.settings import JobDefaults
from gantline.contract.errors import Permanent, Retry, Snooze
from gantline.contract.job_event import JobEvent
from gantline.contract.policy import Policy
from gantline.contract.retry import Backoff
from gantline.contract.status import Event
from gantline.contract.store import JobStore
from gantline.contract.submission import SubmitOptions
from gantline.proving.faults import Chance
from gantline.worker.context import Context

End = Literal["return", "retry", "fail", "error", "snooze", "transaction"]
EAR: Final = "prove-ear"
HEARD: Final = ".heard"
QUEUES: Final = {"prove-one": 6, "prove-two": 4}
_KEYS: Final = 40
_TIMEOUT: Final = timedelta(minutes=1)
# Bites so large that one is refused while all that is small still finds its place.
_BITE: Final = 16 * 2**20
_BITES: Final = 16
_BITE_SECONDS: Final = 0.03
_RETRY: Final = Backoff(attempts=4, base=1.1, cap_seconds=1)
# Those that are killed do not die of it: a proof kills more than any fleet.
_MOST_CRASHES: Final = 1000
_HUNGRY_RUNS: Final = 2
_EVENTS: Final = ("submitted", "started", "progressed")
_RULES: Final = Policy(retry=_RETRY, max_crashes=_MOST_CRASHES)
POLICIES: Final[Mapping[str, Policy]] = {
    "prove.work": _RULES,
    "prove.limited": _RULES,
    "prove.watched": msgspec.structs.replace(_RULES, events=frozenset(map(Event, _EVENTS))),
    "prove.thread": _RULES,
}
"""For whoever judges: an application would take the settings of whoever runs the proof."""
_ENDS: Final[dict[End, int]] = {
    "return": 12,
    "retry": 3,
    "fail": 1,
    "error": 1,
    "snooze": 2,
    "transaction": 2,
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a job does: the ends of its attempts, the last one for all that follow."""

    ends: tuple[End, ...] = ("return",)
    seconds: float = 0.0
    progress: int = 0
    follow_ups: int = 0
    once: str = ""
    eats: bool = False
    """Its first two runs take memory without end; those that follow take none."""


class Ear:
    """A durable consumer: writes down which events it was given, before that is confirmed."""

    name = EAR

    def __init__(self, folder: Path, process: str) -> None:
        self._path = folder / (process + HEARD)
        self._file: int | None = None

    async def consume(self, events: Sequence[JobEvent]) -> None:
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
        heard = (f"{event.job.job_id} {event.entry.version}\n" for event in events)
        os.write(self._file, "".join(heard).encode())


def make_application(store: JobStore, ear: Ear) -> Gantline:
    """Declare all jobs on this store."""
    jobs = Gantline(
        store,
        defaults=JobDefaults(retry=_RETRY, max_crashes=_MOST_CRASHES),
    )

    async def act(plan: Plan, ctx: Context) -> int:
        if plan.once:
            await ctx.once(plan.once)
        for step in range(plan.progress):
            await ctx.progress(100 * step / plan.progress, f"step {step}")
        if plan.eats and ctx.fence <= _HUNGRY_RUNS:
            await _eat()
        await asyncio.sleep(plan.seconds)
        end = _end_of(plan, ctx)
        for _ in range(plan.follow_ups):
            ctx.follow_up(work, Plan(seconds=plan.seconds / 2))
        if end == "transaction" and jobs.store.capabilities.caller_transaction:
            async with ctx.transaction(ctx.fence):
                await asyncio.sleep(0)
        return ctx.fence

    @jobs.job("prove.work", queue="prove-one", timeout=_TIMEOUT)
    async def work(plan: Plan, ctx: Context) -> int:
        return await act(plan, ctx)

    @jobs.job("prove.limited", queue="prove-one", concurrency=2, timeout=_TIMEOUT)
    async def limited(plan: Plan, ctx: Context) -> int:
        return await act(plan, ctx)

    @jobs.job(
        "prove.watched",
        queue="prove-two",
        timeout=_TIMEOUT,
        events=_EVENTS,
    )
    async def watched(plan: Plan, ctx: Context) -> int:
        return await act(plan, ctx)

    @jobs.job("prove.thread", queue="prove-two", timeout=_TIMEOUT)
    def thread(plan: Plan, ctx: Context) -> int:
        _end_of(plan, ctx)
        return ctx.fence

    jobs.add_consumer(ear, from_start=True)
    return jobs


async def _eat() -> None:
    """Take a quarter of a gigabyte, one bite after the other, and hold it for a moment."""
    eaten = []
    for _ in range(_BITES):
        eaten.append(b"." * _BITE)
        await asyncio.sleep(_BITE_SECONDS)


def _end_of(plan: Plan, ctx: Context) -> End:
    """Raise what the plan says for this attempt; a snooze is for the first run alone."""
    end = plan.ends[min(ctx.attempt, len(plan.ends)) - 1]
    match end:
        case "retry":
            raise Retry("again", after=timedelta(seconds=0.2))
        case "fail":
            raise Permanent("NO_USE", "It is no use.")
        case "error":
            raise ValueError("a bug of the handler")
        case "snooze" if ctx.fence == 1:
            raise Snooze(timedelta(seconds=0.5))
        case _:
            return end


def draw_job(
    chance: Chance, jobs: Gantline, *, eating: float = 0.0
) -> tuple[JobType[..., object], Plan, SubmitOptions]:
    """Draw a type, what the job does, and how it is submitted; this share of them takes memory."""
    job_type = chance.choices(jobs.job_types, (8, 2, 3, 2))[0]
    ends = chance.choices(list(_ENDS), list(_ENDS.values()), k=chance.choice((1, 1, 2, 3)))
    plan = Plan(
        ends=tuple(ends),
        seconds=_draw_seconds(chance),
        progress=chance.choice((0, 0, 0, 2)),
        follow_ups=chance.choice((0, 0, 0, 0, 1, 2)),
        once=f"once-{chance.randrange(_KEYS)}" if chance.random() < 0.1 else "",
        eats=eating > 0 and chance.random() < eating,
    )
    options = SubmitOptions(priority=chance.choice((1, 1, 1, 0, 2, 3)))
    if chance.random() < 0.2:
        options["delay"] = timedelta(seconds=chance.uniform(0.05, 2))
    if chance.random() < 0.25:
        options["idempotency_key"] = f"key-{chance.randrange(_KEYS)}"
        plan = Plan(seconds=0.01)  # the same for all, so that most are duplicates
    return job_type, plan, options


def _draw_seconds(chance: Chance) -> float:
    drawn = chance.random()
    if drawn < 0.6:
        return chance.uniform(0, 0.05)
    return chance.uniform(0.1, 1) if drawn < 0.9 else chance.uniform(1, 5)
