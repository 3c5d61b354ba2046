"""docs/schedules.md says what is so: its code, its commands, and the table of changed clocks."""

import re
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gantline.app.settings import Settings
from gantline.schedules.recurrence import EXPRESSION_LIMIT, Cron
from gantline.schedules.schedule import DEFAULT_CATCH_UP, KEPT_FIRES, MOST_CATCH_UP
from tests.test_documentation import Shell, blocks, modules, page, shell, steps

__all__ = ["shell"]

PAGE = page("schedules.md")
ROWS = re.findall(r"^\| (\w+/\w+) \| `(.+?)` \| (\d{4}-\d\d-\d\d), .*? \| (.+) \|$", PAGE, re.M)


@pytest.mark.parametrize(("zone", "expression", "day", "told"), ROWS)
def test_the_table_of_changed_clocks(zone: str, expression: str, day: str, told: str) -> None:
    here, cron = ZoneInfo(zone), Cron(expression, zone)
    midnight = datetime.combine(date.fromisoformat(day), time(), here)
    at = midnight.astimezone(UTC) - timedelta(hours=2)
    shown = []
    while (found := cron.next_after(at)) is not None and _day(found, here) <= midnight.date():
        at = found
        if _day(at, here) == midnight.date():
            local = at.astimezone(here)
            shown.append(local.time().isoformat("minutes") + local.isoformat()[-6:])
    expected = [] if told == "none" else told.split(", ")
    if expected[-1:] == ["…"]:
        shown, expected = shown[: len(expected) - 1], expected[:-1]
    assert shown == expected


def _day(at: datetime, zone: ZoneInfo) -> date:
    return at.astimezone(zone).date()


def test_the_table_is_long_enough() -> None:
    assert len(ROWS) >= 13
    assert len({zone for zone, *_ in ROWS}) >= 7


def test_the_limits_are_those_of_the_code() -> None:
    assert f"An expression has {EXPRESSION_LIMIT} characters at most" in PAGE
    assert f"`catch_up_limit` ({DEFAULT_CATCH_UP}, at most {MOST_CATCH_UP})" in PAGE
    assert KEPT_FIRES == 10
    assert f"A tenant may have {Settings({}, Path()).value('schedules_per_tenant').text}" in PAGE


def test_the_code_declares_what_it_says() -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks(PAGE, "python")[0], "schedules.md", "exec"), names)  # noqa: S102  # our own
    declared = {one.name: one for one in names["jobs"].declared_schedules}
    assert set(declared) == {"sweep", "daily-report", "monthly-report"}
    assert declared["sweep"].overlap == "skip"


def test_its_tests_pass(shell: Shell) -> None:
    shell.write(modules(PAGE))
    shown = shell.run("python -m pytest -q test_reports.py")
    assert re.search(r"^2 passed", shown, re.MULTILINE), shown


def test_the_commands_work_in_their_order(shell: Shell) -> None:
    shell.write(modules(PAGE))
    shell.environment["GANTLINE_APP"] = "reports:jobs"
    export, worker, *commands = [step.command for step in steps(PAGE)]
    assert (export, worker) == ("export GANTLINE_APP=reports:jobs", "gantline worker")
    answers = [shell.run(command) for command in commands]
    assert len(answers) == 7
    assert "weekly" in answers[1]
    assert answers[2].count("T08:00:00+") == 5
