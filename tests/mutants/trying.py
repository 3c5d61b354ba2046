"""What is tried on a mutant: tests, then the rules of the suite, until one of them fails."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final
from unittest.mock import patch

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from gantline.testing.conformance import Rule, all_rules
from tests.mutants.mutant import Killers, Mutant
from tests.seeded_bugs.bug import Breakage
from tests.seeded_bugs.suite import SERVERS, find_broken_rule

ROOT: Final = Path(__file__).parent.parent.parent
_OPTIONS: Final = (
    *("-s", "-qq", "--no-header", "--no-summary", "--assert", "plain"),
    *("-p", "no:cacheprovider", "--timeout", "30", "--rootdir", str(ROOT)),
)
# The same examples each time, and none that another mutant has left.
hypothesis.settings.register_profile("mutants", database=None, derandomize=True, max_examples=25)

Survive = Callable[[], object]
"""To be called before each test and rule."""


class Trial:
    """The tests and rules for one part; made by `begin_trial`."""

    def __init__(self, killers: Killers, items: Sequence[pytest.Item]) -> None:
        self._killers = killers
        # A test that puts in a slip itself may not find its text.
        self._items = [item for item in items if "broken" not in item.nodeid.partition("[")[0]]

    def find_killer(self, mutant: Mutant, kills: Counter[str], survive: Survive) -> str:
        """Find what fails with the mutant, and not without it.

        Those of its topics come first, then those that have killed the most.
        """
        put_in = mutant.make()
        return (
            _find_failing_test(put_in, self._tests(*mutant.tests), kills, survive)
            or _find_failing_test(put_in, self._tests(*self._killers.tests), kills, survive)
            or self._find_rule(put_in, self._ordered_rules(mutant, kills), survive)
            or _find_failing_test(put_in, self._tests(*self._killers.more), kills, survive)
        )

    def _tests(self, *names: str) -> list[pytest.Item]:
        return [item for item in self._items if names and item.nodeid.startswith(names)]

    def _ordered_rules(self, mutant: Mutant, kills: Counter[str]) -> list[Rule]:
        return sorted(
            all_rules(),
            key=lambda rule: (rule.topic not in mutant.topics, -kills[self._name(rule)]),
        )

    def _find_rule(self, put_in: Breakage, rules: Sequence[Rule], survive: Survive) -> str:
        def each() -> Iterator[Rule]:
            for rule in rules:
                survive()
                yield rule

        store = self._killers.store
        checking = find_broken_rule(put_in, store, each(), most_seconds=float("inf"))
        broken = asyncio.run(checking)
        return "" if broken is None else self._name(broken)

    def _name(self, rule: Rule) -> str:
        return f"{self._killers.store}: {rule}"


def begin_trial(killers: Killers, mutants: Sequence[Mutant], use: Callable[[Trial], None]) -> None:
    """Start the server, collect the tests, and call back: pytest lets tests run only inside it."""
    hypothesis.settings.load_profile("mutants")
    if killers.store == "postgres":
        SERVERS.postgres()
    if killers.store == "redis":
        SERVERS.redis()
    collected = _Collected(killers, use)
    named = {*killers.tests, *killers.more, *(name for one in mutants for name in one.tests)}
    paths = [str(ROOT / name) for name in sorted(named)]
    if not paths:
        use(Trial(killers, []))
        return
    conftest = import_module("tests.conftest")
    with (
        patch.object(conftest, "PostgresServer", _lend(SERVERS.postgres)),
        patch.object(conftest, "RedisServer", _lend(SERVERS.redis)),
    ):
        pytest.main([*_OPTIONS, *paths], plugins=[collected])
    if collected.error is not None:
        raise collected.error
    assert collected.has_run, f"{paths} cannot be collected"


class _Collected:
    """Takes the place of the loop over the tests."""

    def __init__(self, killers: Killers, use: Callable[[Trial], None]) -> None:
        self.error: BaseException | None = None
        self.has_run = False
        self._killers = killers
        self._use = use

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.has_run = True
        try:
            self._use(Trial(self._killers, session.items))
        except BaseException as error:  # pytest would only print it
            self.error = error
        return True


def _find_failing_test(
    put_in: Breakage, items: Sequence[pytest.Item], kills: Counter[str], survive: Survive
) -> str:
    ordered = sorted(items, key=lambda item: -kills[item.nodeid])
    failed: pytest.Item | None = None
    with put_in():
        for item in ordered:
            survive()
            if not _passes(item):
                failed = item
                break
    if failed is None:
        return ""
    failed._initrequest()  # type: ignore[attr-defined]  # as plugins do that repeat a test
    return failed.nodeid if _passes(failed) else ""


def _passes(item: pytest.Item) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False))


def _lend(start: Callable[[], object]) -> Callable[[], object]:
    return lambda: _Lent(start())


class _Lent:
    """A server that others use too: to stop it is not for a test."""

    def __init__(self, server: object) -> None:
        self._server = server

    def __getattr__(self, name: str) -> object:
        return (lambda: None) if name == "stop" else getattr(self._server, name)
