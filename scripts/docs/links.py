"""Looks at the built site: every link and anchor leads somewhere, nothing is fetched elsewhere."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

FETCHED: Final = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
# Where a search engine may find the page; nobody fetches it.
NOT_FETCHED: Final = frozenset({"canonical", "prev", "next", "alternate"})


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in FETCHED and (place := given.get(FETCHED[tag])):
            self.links.append(place)
            if given.get("rel") not in NOT_FETCHED:
                self.fetched.append(place)


def faults(site: Path) -> list[str]:
    """What is wrong with the links of a site, in words; empty where nothing is."""
    read: dict[Path, _Reader] = {}
    for file in site.rglob("*.html"):
        reader = read[file.resolve()] = _Reader()
        reader.feed(file.read_text(encoding="utf-8"))
    found = []
    for file, reader in read.items():
        name = file.relative_to(site.resolve())
        found += [f"{name} fetches {one}" for one in reader.fetched if _is_foreign(one)]
        if file.name != "404.html":  # is served for any path, so its links begin at the root
            links = {one for one in reader.links if not _is_foreign(one)}
            found += [f"{name}: {one} leads nowhere" for one in links if _is_dead(one, file, read)]
    return sorted(found)


def _is_foreign(link: str) -> bool:
    parts = urlsplit(link)
    return bool(parts.scheme or parts.netloc)


def _is_dead(link: str, file: Path, read: dict[Path, _Reader]) -> bool:
    parts = urlsplit(link)
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return True
    # An empty anchor is the top of the page, and so is this one.
    if parts.fragment in ("", "__top") or target not in read:
        return False
    return unquote(parts.fragment) not in read[target].anchors
