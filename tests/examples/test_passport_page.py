"""docs/examples/battery-passport.md shows what is there: code, files, cases, priorities."""

import re
from pathlib import Path
from typing import Final

from examples.battery_passport.rule_cases import cases_of
from examples.battery_passport.rules import current_package
from examples.battery_passport.steps import steps

REPOSITORY: Final = Path(__file__).parents[2]
PAGE: Final = REPOSITORY / "docs" / "examples" / "battery-passport.md"
TEXT: Final = PAGE.read_text(encoding="utf-8")


def test_the_code_on_the_page_is_that_of_the_example() -> None:
    source = (REPOSITORY / "examples" / "battery_passport" / "steps.py").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for block in blocks:
        assert block in source


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", TEXT)
    assert len(links) > 10
    for link in links:
        assert (PAGE.parent / link).exists(), link


def test_the_page_tells_every_job_with_its_priority() -> None:
    told = {name: int(number) for name, number in re.findall(r"^\| `(\w+)` \| (\d)", TEXT, re.M)}
    assert told == {job_type.name: job_type.priority for job_type in steps.job_types}


def test_the_page_tells_how_many_rules_and_cases_there_are() -> None:
    package = current_package()
    assert len(package.rules) == 12
    assert "twelve rules" in TEXT
    assert f"{len(list(cases_of(package)))} generated cases" in TEXT
