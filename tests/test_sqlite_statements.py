"""Statements of SQLite, as every supported Python runs them."""

import re
from pathlib import Path

import pytest

from gantline.stores import sqlite

FILES = sorted(Path(sqlite.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_placeholder_has_a_number(file: Path) -> None:
    """Values of a numbered placeholder: Python 3.12 warns of them, and 3.14 refuses them.

    3.11, on which most tests run, does neither.
    """
    assert re.findall(r"\?\d", file.read_text(encoding="utf-8")) == [], "give it a name: `:lane`"
