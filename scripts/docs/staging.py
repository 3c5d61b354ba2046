"""Lays the pages out for zensical: those of docs/, of the README, and those made from the code."""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from scripts.docs import figures, llms, navigation
from scripts.docs.reference import REFERENCE, stores

REPOSITORY: Final = Path(__file__).parents[2]
START: Final = "## A job of your own in five minutes"
PLACEHOLDER: Final = re.compile(r"^<!-- made: ([\w-]+) -->$", re.MULTILINE)
MADE: Final[Mapping[str, Callable[[], str]]] = {
    "figures": figures.beside_others,
    "figures-date": figures.when_and_where,
    "stores": stores.promises,
}
"""What stands in a page for a table that is made: `<!-- made: stores -->`."""
LINKS_OUT: Final = (
    ("](../README.md", "](start.md"),
    ("](../CONTRIBUTING.md", "](contributing.md"),
    ("](../CHANGELOG.md", "](changelog.md"),
)
LINKS_IN: Final = (
    ("](docs/", "]("),
    ("](CONTRIBUTING.md", "](contributing.md"),
    ("](CHANGELOG.md", "](changelog.md"),
)


def stage(target: Path) -> None:
    """Fill an empty folder with all that zensical needs."""
    docs = target / "docs"
    shutil.copytree(REPOSITORY / "docs", docs)
    for name, text in made_pages().items():
        _write(docs / name, text)
    for file in docs.rglob("*.md"):
        _write(file, _completed(file.read_text(encoding="utf-8")))
    settings = (Path(__file__).parent / "zensical.toml").read_text(encoding="utf-8")
    _write(target / "zensical.toml", settings.replace("# NAVIGATION", navigation.as_toml(docs)))
    _write(docs / "llms.txt", llms.index(docs))
    _write(docs / "llms-full.txt", llms.everything(docs))


def made_pages() -> dict[str, str]:
    """The pages that no file of docs/ is for, by their place."""
    pages = {f"reference/{name}.md": make() for name, make in REFERENCE.items()}
    pages["start.md"] = _start()
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        pages[name.lower()] = _replaced(text, LINKS_IN)
    return pages


def _start() -> str:
    """The part of the README with which everybody begins."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    _, heading, rest = text.partition(f"{START}\n")
    if not heading:
        raise ValueError(f"the README has no {START!r}")
    body = re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return "# Start in five minutes\n" + _replaced(body, LINKS_IN)


def _completed(text: str) -> str:
    return PLACEHOLDER.sub(lambda found: MADE[found[1]](), _replaced(text, LINKS_OUT))


def _replaced(text: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
