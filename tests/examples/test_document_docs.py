"""What docs/examples/document-processing.md shows is in the example."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples/document_processing"
PAGE = REPOSITORY / "docs/examples/document-processing.md"
TEXT = PAGE.read_text(encoding="utf-8")


def plain(code: str) -> str:
    """Code without what a formatter may change when it stands further to the left."""
    return re.sub(r"\s+|,(?=\s*\))", "", code)


@pytest.mark.parametrize("language", ["python", "js"])
def test_the_code_that_is_shown_is_the_examples_own(language: str) -> None:
    suffix = {"python": ".py", "js": ".js"}[language]
    files = [plain(file.read_text(encoding="utf-8")) for file in EXAMPLE.rglob(f"*{suffix}")]
    shown = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert shown
    assert [block for block in shown if not any(plain(block) in file for file in files)] == []


def test_every_file_that_is_linked_is_there_and_every_file_of_the_example_is_linked() -> None:
    linked = [(PAGE.parent / link).resolve() for link in re.findall(r"\]\(([^)#:]+)\)", TEXT)]
    assert [one for one in linked if not one.exists()] == []
    own = {file for file in EXAMPLE.glob("[a-z]*.py") if file.name != "samples.py"}
    assert own <= set(linked)
    assert (REPOSITORY / "docs/images/document-processing.png").stat().st_size < 200_000
