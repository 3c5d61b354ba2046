"""The page about speed says what was measured."""

from benchmarks.page import PAGE, page, read_results


def test_the_page_agrees_with_the_results() -> None:
    """If this fails: `python -m benchmarks.page`."""
    assert PAGE.read_text(encoding="utf-8") == f"{page(read_results())}\n"


def test_the_page_lists_every_goal_with_its_verdict() -> None:
    goals = [row for row in read_results().rows if row.goal is not None]
    table = page(read_results()).partition("## Goals")[2].partition("## All figures")[0]
    assert table.count("| yes |") == sum(row.met is True for row in goals)
    assert table.count("| **no** |") == sum(row.met is False for row in goals)
