"""Trying a bug: seeds or rules one after the other, until one of them catches it."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import msgspec

from gantline.testing.conformance import Rule, StoreHarness, all_rules
from gantline.testing.simulation.drawing import draw_script
from gantline.testing.simulation.run import simulate
from gantline.testing.simulation.script import StoreKind as SimulatedKind
from tests.harness import MemoryHarness, PostgresHarness, RedisHarness, SqliteHarness
from tests.seeded_bugs.bug import Bug, Simulation, StoreKind, Suite
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

_RULE_SECONDS = 20.0


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
            with _silence():
                by_suite = asyncio.run(_check_until_caught(bug, store, (), most_seconds))
            return msgspec.structs.replace(
                catch,
                by=f"{by_suite.by}; no seed to {catch.tried_until}",
                rule=by_suite.rule,
                cpu_seconds=round(catch.cpu_seconds + by_suite.cpu_seconds, 1),
            )
        case Suite(store, topics):
            with _silence():
                return asyncio.run(_check_until_caught(bug, store, topics, most_seconds))


@contextmanager
def _silence() -> Iterator[None]:
    """What a broken store has logged is of no interest."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


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
    broken: Rule | None = None
    with bug.put_in():
        for rule in rules:
            if await _is_broken(rule, store):
                broken = rule
                break
            if time.process_time() - began > most_seconds:
                break
    took = time.process_time() - began
    return Catch(
        bug=bug.name,
        part=bug.part,
        what=bug.what,
        by=f"suite, {store}",
        rule="" if broken is None or await _is_broken(broken, store) else str(broken),
        cpu_seconds=round(took, 1),
    )


async def _is_broken(rule: Rule, store: StoreKind) -> bool:
    try:
        await asyncio.wait_for(rule.check(_harness(store)), timeout=_RULE_SECONDS)
    except Exception:  # anything that is not a pass is a catch
        return True
    return False


def _harness(store: StoreKind) -> StoreHarness:
    match store:
        case "memory":
            return MemoryHarness()
        case "sqlite":
            return SqliteHarness()
        case "postgres":
            return PostgresHarness(_SERVERS.postgres())
        case "redis":
            return RedisHarness(_SERVERS.redis())


class _Servers:
    """Started when first needed."""

    def __init__(self) -> None:
        self._postgres: PostgresServer | None = None
        self._redis: RedisServer | None = None

    def postgres(self) -> PostgresServer:
        self._postgres = self._postgres or PostgresServer()
        return self._postgres

    def redis(self) -> RedisServer:
        self._redis = self._redis or RedisServer()
        return self._redis

    def stop(self) -> None:
        for server in (self._postgres, self._redis):
            if server is not None:
                server.stop()
        self._postgres = self._redis = None


_SERVERS = _Servers()


@contextmanager
def servers() -> Iterator[None]:
    """Stop what was started for rules."""
    try:
        yield
    finally:
        _SERVERS.stop()
