"""The rules of the conformance suite on one of our stores, until one of them is broken."""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from gantline.testing.conformance import Rule, StoreHarness
from tests.harness import MemoryHarness, PostgresHarness, RedisHarness, SqliteHarness
from tests.seeded_bugs.bug import Breakage, StoreKind
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

_RULE_SECONDS: Final = 30.0


async def find_broken_rule(
    put_in: Breakage, store: StoreKind, rules: Iterable[Rule], *, most_seconds: float
) -> Rule | None:
    """Find the first that is broken while this is put in, and holds without it."""
    began = time.process_time()
    broken: Rule | None = None
    with put_in():
        for rule in rules:
            if await is_broken(rule, store):
                broken = rule
                break
            if time.process_time() - began > most_seconds:
                break
    return None if broken is None or await is_broken(broken, store) else broken


@contextmanager
def silence() -> Iterator[None]:
    """What a broken store has logged is of no interest."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


async def is_broken(rule: Rule, store: StoreKind) -> bool:
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
            return PostgresHarness(SERVERS.postgres())
        case "redis":
            return RedisHarness(SERVERS.redis())


class Servers:
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


SERVERS = Servers()


@contextmanager
def servers() -> Iterator[None]:
    """Stop what was started for rules."""
    try:
        yield
    finally:
        SERVERS.stop()
