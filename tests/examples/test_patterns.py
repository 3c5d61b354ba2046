"""Regular expressions that we show: their time grows with the text, and no faster."""

import re
import time
from pathlib import Path

import pytest

from examples.document_processing.text import _RULES

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "security.md"
LARGEST = 256 * 1024
"""What a payload may have."""


def _of_the_guide() -> re.Pattern[str]:
    names: dict[str, re.Pattern[str]] = {}
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    (line,) = [one for one in lines if one.startswith("MAIL = ")]
    exec(f"import re\n{line}", names)  # noqa: S102  # it is our own
    return names["MAIL"]


PATTERNS = {rule.kind: rule.pattern for rule in _RULES} | {"guide": _of_the_guide()}
BEGINNINGS = ("", "a@", "a@a", "Name: A", "DE44 ", "+4", "Dr. A")
REPEATED = (
    "a",
    "a.",
    "a@",
    "@",
    "a-",
    "1",
    "1 ",
    "A1",
    " ",
    ".",
    "A ",
    "M ",
    "von A",
    "DE44 AAAA ",
)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_worst_text_takes_no_longer_than_a_moment(name: str) -> None:
    """Where it looks at a text again from each of its characters, one of these takes minutes."""
    for beginning in BEGINNINGS:
        for repeated in REPEATED:
            text = (beginning + repeated * LARGEST)[:LARGEST] + "!"
            begun = time.process_time()
            for _ in PATTERNS[name].finditer(text):
                pass
            assert time.process_time() - begun < 2, (beginning, repeated)


def test_a_mail_address_is_found_as_before() -> None:
    for text in ("ada@example.org", "to: <a.b+c@mail.example.co.uk>, please"):
        for name in ("e-mail", "guide"):
            assert PATTERNS[name].search(text), (name, text)
    found = PATTERNS["e-mail"].search("to: <a.b+c@mail.example.co.uk>, please")
    assert found is not None
    assert found.group() == "a.b+c@mail.example.co.uk"
