"""The tutorial is followed as it is written, in an empty folder."""

from pathlib import Path

import pytest

from tests.test_documentation import Shell, page
from tests.walkthrough import Walkthrough

pytestmark = pytest.mark.timeout(300)


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    text = page("tutorial.md")
    with Walkthrough(Shell(tmp_path)) as reader:
        reader.follow(text)
        assert f"the receiver prints `{reader.heard()}`" in text
