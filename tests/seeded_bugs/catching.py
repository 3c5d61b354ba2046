"""Trying a bug: seeds or rules one after the other, until one of them catches it."""

import asyncio
import time
from functools import cache

import msgspec

from gantline.testing.conformance import all_rules
from gantline.testing.simulation.drawing import draw_script
from gantline.testing.simulation.run import simulate
from gantline.testing.simulation.script import StoreKind as SimulatedKind
from tests.seeded_bugs.bug import Bug, Simulation, StoreKind, Suite
from tests.seeded_bugs.suite import find_broken_rule, silence


class Catch(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of one bug."""

    bug: str
    part: str
    what: str
    by: str
    """The store and whether by simulation or suite."""
    rule: str = ""
    """What was broken; empty where nobody noticed."""
    seed: int | None = None
    verb_calls: int | None = None
    """In all seeds up to this one."""
    cpu_seconds: float = 0.0
    tried_until: int | None = None
    """The last seed that was tried."""
    unsound_seeds: tuple[int, ...] = ()
    """Seeds that broke a rule without the bug too, and so did not count: findings of their own."""

    @property
    def is_caught(self) -> bool:
        return bool(self.rule)

    def after(self, before: "Catch") -> "Catch":
        """This as the continuation of an earlier try."""
        return msgspec.structs.replace(
            self,
            verb_calls=(self.verb_calls or 0) + (before.verb_calls or 0),
            cpu_seconds=round(self.cpu_seconds + before.cpu_seconds, 1),
            unsound_seeds=before.unsound_seeds + self.unsound_seeds,
        )


def try_bug(bug: Bug, *, most_seconds: float, first_seed: int = 1) -> Catch:
    """Put a bug in and look for it for so many seconds of CPU time."""
    match bug.caught_by:
        case Simulation(store):
            catch = _simulate_until_caught(bug, store, most_seconds, first_seed)
            if catch.is_caught or bug.part not in ("memory store", "sqlite store"):
                return catch
            with silence():
                by_suite = asyncio.run(_check_until_caught(bug, store, (), most_seconds))
            return msgspec.structs.replace(
                catch,
                by=f"{by_suite.by}; no seed to {catch.tried_until}",
                rule=by_suite.rule,
                cpu_seconds=round(catch.cpu_seconds + by_suite.cpu_seconds, 1),
            )
        case Suite(store, topics):
            with silence():
                return asyncio.run(_check_until_caught(bug, store, topics, most_seconds))


# -- by simulation --------------------------------------------------------------------------------


def _simulate_until_caught(
    bug: Bug, store: SimulatedKind, most_seconds: float, first_seed: int
) -> Catch:
    began, calls, seed, unsound = time.process_time(), 0, first_seed, list[int]()
    rule = ""
    while not rule and time.process_time() - began < most_seconds:
        with bug.put_in():
            report = simulate(draw_script(seed, store))
        calls += sum(report.calls.values())
        took = time.process_time() - began
        if report.violations and _is_sound(seed, store):
            rule = _shortened(report.violations[0])
        else:
            unsound += [seed] if report.violations else []
            seed += 1
    return Catch(
        bug=bug.name,
        part=bug.part,
        what=bug.what,
        by=f"simulation, {store}",
        rule=rule,
        seed=seed if rule else None,
        tried_until=seed if rule else seed - 1,
        verb_calls=calls,
        cpu_seconds=round(took, 1),
        unsound_seeds=tuple(unsound),
    )


@cache
def _is_sound(seed: int, store: SimulatedKind) -> bool:
    """Whether a seed finds nothing where no bug is put in: else it proves nothing."""
    return not simulate(draw_script(seed, store)).violations


def _shortened(violation: str) -> str:
    return violation.split("\n")[0][:300]


# -- by the suite ---------------------------------------------------------------------------------


async def _check_until_caught(
    bug: Bug, store: StoreKind, topics: tuple[str, ...], most_seconds: float
) -> Catch:
    rules = all_rules()
    rules.sort(key=lambda rule: topics.index(rule.topic) if rule.topic in topics else len(topics))
    began = time.process_time()
    broken = await find_broken_rule(bug.put_in, store, rules, most_seconds=most_seconds)
    return Catch(
        bug=bug.name,
        part=bug.part,
        what=bug.what,
        by=f"suite, {store}",
        rule=str(broken or ""),
        cpu_seconds=round(time.process_time() - began, 1),
    )
