"""The tests are themselves tested: mutants are killed; here some, by `make chaos` all."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS_BY_HAND, all_mutants
from tests.mutants.generated import UNTRIED
from tests.mutants.mutant import BY_HAND, Mutant
from tests.mutants.results import LEAST_SHARE, read_results, totals

ROOT = Path(__file__).parent.parent
# Killed by a unit test or by rules on the memory store.
SAMPLE = (
    "manager.decide._after_snooze: ",
    "contract.transition.may_be_repeat: ",
    "stores.memory.store.MemoryStore._lease_of: ",
)


def kill(*arguments: str, minutes: int) -> subprocess.CompletedProcess[str]:
    """In a process of its own, since each mutant is a child of it."""
    return subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--no-data", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60 * minutes,
        check=False,
    )


def test_there_are_enough_by_hand_where_no_tool_reaches() -> None:
    parts = Counter(mutant.part for mutant in MUTANTS_BY_HAND)
    assert parts.keys() == BY_HAND
    assert min(parts.values()) >= 30


@pytest.mark.parametrize("mutant", MUTANTS_BY_HAND, ids=lambda mutant: mutant.name)
def test_a_mutant_can_still_be_put_in_and_taken_out(mutant: Mutant) -> None:
    for _ in range(2):
        with mutant.make()():
            pass


def test_every_mutant_was_tried() -> None:
    """Where the code has changed: `python -m tests.mutants --missing`."""
    mutants = all_mutants()
    known = read_results(mutants)
    missing = [name for name in mutants if name not in known]
    assert [name for name in missing if not name.startswith(UNTRIED)] == []
    assert [some for some in UNTRIED if not any(name.startswith(some) for name in missing)] == []


def test_nine_of_ten_are_killed_in_every_part() -> None:
    found = totals(read_results(all_mutants()).values())
    assert set(BY_HAND) < set(found)
    assert {name: str(one) for name, one in found.items() if one.share_killed < LEAST_SHARE} == {}


@pytest.mark.wide
def test_a_sample_is_killed() -> None:
    said = kill(*(word for name in SAMPLE for word in ("--only", name)), minutes=4)
    assert said.returncode == 0, said.stdout + said.stderr
    assert " survived, " in said.stdout


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_every_mutant_is_killed_again() -> None:
    said = kill("--processes", "2", minutes=120)
    assert said.returncode == 0, said.stdout + said.stderr
