"""llms.txt: what there is to read, for programs that read; and all of it in one file."""

import re
from pathlib import Path
from typing import Final

from scripts.docs import navigation

ABOUT: Final = """\
# Gantline

> Durable background jobs for Python: one contract, one lifecycle, any store (SQLite, PostgreSQL,
> Redis or Valkey). At least once, with fenced completion: a job accepted is a job kept.

Install it with `pip install gantline` (extras: api, client, postgres, redis, rabbitmq, webhooks,
prometheus, otel, uvloop, all). An application is `jobs = Gantline()`, a job a function under
`@jobs.job("name")`, a submit `await function.submit(payload)`, a worker
`gantline worker module:jobs`.
"""


def index(docs: Path) -> str:
    """One line a page: its place, and what it is about."""
    parts = [ABOUT]
    for title, pages in navigation.sections(docs).items():
        parts.append(f"## {title}\n\n" + "".join(map(_line, pages)))
    return "\n".join(parts)


def _line(page: navigation.Page) -> str:
    about = f": {page.about}" if page.about else ""
    return f"- [{page.title}]({page.path}){about}\n"


def everything(docs: Path) -> str:
    """All pages but decisions and figures, in the order of the menu."""
    parts = [ABOUT]
    for title, pages in navigation.sections(docs).items():
        if title != "Decisions":
            parts += [
                f"<!-- {page.path} -->\n\n" + _text(docs / page.path)
                for page in pages
                if page.path not in ("benchmarks.md", "changelog.md")
            ]
    return "\n".join(parts)


def _text(file: Path) -> str:
    """A page without the tags that only a browser needs."""
    return re.sub(r"^</?div.*>\n\n?", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
