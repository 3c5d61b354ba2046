"""Looks for Markdown that the site shows as text, where GitHub reads it otherwise than zensical."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

VERBATIM: Final = frozenset({"pre", "code", "script", "style"})
MARKUP: Final = re.compile(r"^\s*(?:[-*] |\d+\. |\|.*\|$)|\*\*|```|\]\(", re.MULTILINE)


class _Prose(HTMLParser):
    """The text of the paragraphs of a page, without what is code in them."""

    def __init__(self) -> None:
        super().__init__()
        self.paragraphs: list[str] = []
        self._is_inside = False
        self._verbatim = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "p":
            self._is_inside = True
            self.paragraphs.append("")
        self._verbatim += tag in VERBATIM

    def handle_endtag(self, tag: str) -> None:
        if tag == "p":
            self._is_inside = False
        self._verbatim -= tag in VERBATIM

    def handle_data(self, data: str) -> None:
        if self._is_inside:
            # Not nothing, or what follows would seem to begin a line.
            self.paragraphs[-1] += "x" if self._verbatim else data


def faults(site: Path) -> list[str]:
    """What was left over, in words."""
    found = []
    for file in sorted(site.rglob("*.html")):
        prose = _Prose()
        prose.feed(file.read_text(encoding="utf-8"))
        found += [
            f"{file.relative_to(site)} shows Markdown as text: {text[:100]!r}"
            for text in prose.paragraphs
            if MARKUP.search(text)
        ]
    return found
