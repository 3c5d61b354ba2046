"""The words of the glossary: what it replaced does not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Each had several meanings; the glossary has a word for each of them. Decisions are not rewritten,
# and the benchmarks' page is made by a run.
REPLACED = re.compile(r"(?<![A-Za-z])(told|tells?|telling|wanted|thrown|doubts?)(?![A-Za-z])", re.I)
# A test is named in docs/seeds.md as it is called.
TEST = re.compile(r"`[\w./]+::\w+`")
FILES = [
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "examples").rglob("*.py"),
    *(ROOT / "scripts").rglob("*.py"),
    *(file for file in (ROOT / "docs").rglob("*.md") if file.parent.name != "adr"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]


@pytest.mark.parametrize("folder", ["src", "examples", "scripts", "docs", ""])
def test_a_word_that_was_replaced_is_not_used(folder: str) -> None:
    paths = [file.relative_to(ROOT) for file in FILES if file.name != "benchmarks.md"]
    found = [
        f"{path}: {match[0]}"
        for path in paths
        if (path.parts[0] if len(path.parts) > 1 else "") == folder
        for match in REPLACED.finditer(TEST.sub("", (ROOT / path).read_text(encoding="utf-8")))
    ]
    assert found == [], "docs/glossary.md has the words to use"
