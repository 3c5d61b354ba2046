"""Lays the pages out for zensical: those of docs/, of the README, and those made from the code."""

import os
import re
import shutil
from pathlib import Path
from typing import Final

from scripts.docs import llms, navigation
from scripts.docs.reference import REFERENCE

REPOSITORY: Final = Path(__file__).parents[2]
START: Final = "## A job of your own in five minutes"
PAGES_OF_ROOT: Final = {
    "README.md": "start.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files beside docs/ that are pages of the site."""
LINK: Final = re.compile(r"(!?)\[([^]\n]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def stage(target: Path) -> None:
    """Fill an empty folder with all that zensical needs."""
    docs = target / "docs"
    shutil.copytree(REPOSITORY / "docs", docs)
    for name, text in made_pages().items():
        _write(docs / name, text)
    for file in docs.rglob("*.md"):
        _write(file, linked(file.read_text(encoding="utf-8"), "docs" / file.relative_to(docs)))
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
        pages[PAGES_OF_ROOT[name]] = linked(text, Path(name))
    return pages


def _start() -> str:
    """The part of the README with which everybody begins."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    _, heading, rest = text.partition(f"{START}\n")
    if not heading:
        raise ValueError(f"the README has no {START!r}")
    body = re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return "# Start in five minutes\n" + linked(body, Path("README.md"))


def linked(text: str, file: Path) -> str:
    """Let the links of a file of the repository lead to where their targets are in the site.

    What is no page of it, the code for example, is named and not linked: nobody knows where the
    repository is. What is not there at all is left for zensical to find.
    """
    here = file.parent if file.is_relative_to("docs") else Path("docs")

    def moved(found: re.Match[str]) -> str:
        mark, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        named = os.path.normpath(file.parent / target)
        if not named.startswith("docs/") and named not in PAGES_OF_ROOT:
            is_there = (REPOSITORY / named).exists()
            return f"`{words.strip('`')}`" if is_there else found[0]
        place = PAGES_OF_ROOT.get(named, named.removeprefix("docs/"))
        return f"{mark}[{words}]({os.path.relpath(Path('docs', place), here)}{anchor})"

    return LINK.sub(moved, text)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
