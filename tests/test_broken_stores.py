"""A suite is worth what it catches: every deliberately broken store must fail it."""

import asyncio
from collections.abc import Callable

import pytest

from gantline.stores.memory import MemoryStore
from gantline.stores.sqlite import apply as sqlite_apply
from gantline.stores.sqlite import due as sqlite_due
from gantline.stores.sqlite import ready as sqlite_ready
from gantline.testing.conformance import Rule, StoreHarness, all_rules
from tests.broken_stores import BROKEN
from tests.harness import MemoryHarness, SqliteHarness


async def broken_rules(make: Callable[[], StoreHarness], rules: list[Rule]) -> dict[str, str]:
    """The rules that a store breaks, each with what was seen."""
    found = {}
    for rule in rules:
        try:
            await asyncio.wait_for(rule.check(make()), timeout=10)
        except Exception as error:  # anything that is not a pass is a catch
            found[str(rule)] = repr(error)[:200]
    return found


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
async def test_the_suite_catches(broken: type[MemoryStore]) -> None:
    expected = [rule for rule in all_rules() if str(rule).startswith(BROKEN[broken])]
    if not await broken_rules(lambda: MemoryHarness(broken), expected):
        others = await broken_rules(lambda: MemoryHarness(broken), all_rules())
        pytest.fail(f"{broken.__name__} was not caught by {BROKEN[broken]}, only by {others}")


async def test_the_sound_store_passes() -> None:
    """The counter-check: what is caught above is the breakage, not the way it is run."""
    assert await broken_rules(MemoryHarness, all_rules()) == {}


async def test_sqlite_without_its_guard_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_apply, "refusal", lambda guard, **state: None)
    fencing = [rule for rule in all_rules() if rule.topic in ("fencing", "states")]
    assert len(await broken_rules(SqliteHarness, fencing)) > 50


async def test_sqlite_that_claims_without_taking_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite_due, "take", lambda connection, rows: None)
    claiming = [rule for rule in all_rules() if rule.topic == "claiming"]
    assert await broken_rules(SqliteHarness, claiming)


async def test_sqlite_whose_floors_are_not_lowered_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A floor above its lane's first row hides a job for ever."""
    lower = sqlite_ready._LOWER_FLOOR.replace("<", ">")
    monkeypatch.setattr(sqlite_ready, "_LOWER_FLOOR", lower)
    claiming = [rule for rule in all_rules() if rule.topic in ("claiming", "inserting")]
    assert await broken_rules(SqliteHarness, claiming)
