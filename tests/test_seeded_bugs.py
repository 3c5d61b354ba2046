"""The proof is itself tested: bugs that are put in are caught; here some, by `make chaos` all."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.seeded_bugs.__main__ import read_results
from tests.seeded_bugs.bug import Bug
from tests.seeded_bugs.catalogue import BUGS

ROOT = Path(__file__).parent.parent
# Caught by the first seed or the second: a second of CPU time each.
SAMPLE = (
    "attempts without end",
    "snooze costs an attempt",
    "slot freed twice",
    "memory: fence ignored by renewal",
    "memory: crash without an event",
    "sqlite: counts off after a redrive",
)


def catch(*arguments: str, minutes: int) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a seed is the same run only where hashes are the same."""
    return subprocess.run(
        [sys.executable, "-m", "tests.seeded_bugs", "--no-data", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=60 * minutes,
        check=False,
    )


def test_there_are_enough_bugs_of_every_part() -> None:
    parts = Counter(bug.part for bug in BUGS.values())
    assert sum(parts[part] for part in ("manager", "worker", "schedules", "webhooks")) >= 14
    assert parts["memory store"] + parts["sqlite store"] >= 10
    assert parts["postgres store"] >= 8
    assert parts["redis store"] >= 8


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_bug_can_still_be_put_in_and_taken_out(bug: Bug) -> None:
    for _ in range(2):
        with bug.put_in():
            pass


def test_every_bug_was_tried() -> None:
    assert [name for name in BUGS if name not in read_results()] == []


@pytest.mark.wide
def test_a_sample_is_caught_by_the_first_seeds() -> None:
    names = [word for name in SAMPLE for word in ("--only", name)]
    said = catch(*names, "--most-seconds", "30", minutes=4)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.count("simulation, ") == len(SAMPLE)


@pytest.mark.chaos
def test_every_bug_is_caught() -> None:
    said = catch("--most-seconds", "60", minutes=29)
    assert said.returncode == 0, said.stdout + said.stderr
