"""`python -m scripts.docs`: build the site into build/docs/site, and fail on any fault."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.docs import leftovers, links, navigation
from scripts.docs.staging import REPOSITORY, stage


def build(target: Path) -> list[str]:
    """Build the site in an empty folder; say what is wrong with it."""
    stage(target)
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [zensical, "build", "--strict"],
        cwd=target,
        env=os.environ | {"NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0 or "Warning" in done.stdout:
        return [done.stdout]
    site = target / "site"
    publish_sources(target / "docs", site)
    return pages_nobody_finds(target / "docs") + links.faults(site) + leftovers.faults(site)


def publish_sources(docs: Path, site: Path) -> None:
    """Put the Markdown of each page beside it: what llms.txt names."""
    for file in docs.rglob("*.md"):
        shutil.copy(file, site / file.relative_to(docs))


def pages_nobody_finds(docs: Path) -> list[str]:
    """What is wrong with the menu, in words."""
    listed = {page.path for pages in navigation.sections(docs).values() for page in pages}
    there = {file.relative_to(docs).as_posix() for file in docs.rglob("*.md")}
    missing = there - listed - {navigation.HOME.path}
    return [f"{path} is not in the navigation (scripts/docs/navigation.py)" for path in missing]


if __name__ == "__main__":
    folder = REPOSITORY / "build" / "docs"
    shutil.rmtree(folder, ignore_errors=True)
    if found := build(folder):
        sys.exit("\n".join(found))
    site = (folder / "site").relative_to(REPOSITORY)
    print(f"The documentation is in {site}/index.html; with its search it is served by")
    print(f"  python3 -m http.server --directory {site}")
