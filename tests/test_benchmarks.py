"""The page about speed says what was measured, and what could not be."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.bench import Bench
from benchmarks.contest.stage import Stage
from benchmarks.contest.system import OURS, System
from benchmarks.page import PAGE, page, read_results
from benchmarks.report import Report
from benchmarks.scale import QUICK


def test_the_page_agrees_with_the_results() -> None:
    """If this fails: `python -m benchmarks.page`."""
    assert PAGE.read_text(encoding="utf-8") == f"{page(read_results())}\n"


def test_the_page_lists_every_goal_with_its_verdict() -> None:
    goals = [row for row in read_results().rows if row.goal is not None]
    table = page(read_results()).partition("## Goals")[2].partition("## All figures")[0]
    assert table.count("| yes |") == sum(row.met is True for row in goals)
    assert table.count("| **no** |") == sum(row.met is False for row in goals)


class Nowhere(Stage):
    """A stage without a server."""

    @contextmanager
    def emptied(self, system: System) -> Iterator[str]:
        yield "nowhere://"


def test_a_peer_that_fails_ends_nothing_and_is_left_out_with_its_reason(tmp_path: Path) -> None:
    report = Report(commit="")
    peer = System("broken", "benchmarks.redis.on_nothing", slots=1)
    stage = Nowhere(Bench(tmp_path, QUICK, report), [OURS, peer], engine="-")
    measured = stage.rounds(
        "submit", lambda system: 1.0 if system == OURS else system.run("nowhere://", "submit")
    )
    assert measured == {OURS: [1.0]}
    results = msgspec.structs.replace(read_results(), left_out=tuple(report.left_out))
    assert "| submit (broken) | it ended with 1: ModuleNotFoundError: No module" in page(results)
