"""The order in which the pages are read; the menu of the site and llms.txt are made of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple


class Page(NamedTuple):
    """A page, by the name that the menu gives it."""

    title: str
    path: str


class Section(NamedTuple):
    """Pages that belong together; each of a folder where one is named."""

    title: str
    pages: tuple[Page, ...] = ()
    folder: str = ""

    def found(self, docs: Path) -> Iterator[Page]:
        """The pages, and behind them those of the folder that nobody has named."""
        yield from self.pages
        named = {page.path for page in self.pages}
        for file in sorted((docs / self.folder).glob("*.md")) if self.folder else ():
            path = file.relative_to(docs).as_posix()
            if path not in named:
                yield Page(title_of(file), path)


HOME: Final = Page("Home", "index.md")
SECTIONS: Final = (
    Section(
        "Start",
        (
            Page("In five minutes", "start.md"),
            Page("What the terminal shows", "first-job.md"),
            Page("Tutorial", "tutorial.md"),
        ),
    ),
    Section(
        "Concepts",
        (
            Page("The promise", "concepts/promise.md"),
            Page("The lifecycle of a job", "concepts/lifecycle.md"),
            Page("Leases and fences", "concepts/leases.md"),
            Page("Idempotency", "concepts/idempotency.md"),
            Page("Retries and backoff", "concepts/retries.md"),
            Page("Dead letters", "concepts/dead-letters.md"),
            Page("Events", "events.md"),
        ),
    ),
    Section(
        "Guides",
        (
            Page("FastAPI", "guides/fastapi.md"),
            Page("The HTTP API", "http.md"),
            Page("Who may do what", "authentication.md"),
            Page("The Python client", "client.md"),
            Page("Transactions", "guides/transactions.md"),
            Page("The outbox", "outbox.md"),
            Page("Schedules", "schedules.md"),
            Page("Webhooks", "webhooks.md"),
            Page("The RabbitMQ bridge", "bridge.md"),
            Page("Testing", "guides/testing.md"),
        ),
    ),
    Section(
        "Running it",
        (
            Page("Choosing a store", "guides/choosing-a-store.md"),
            Page("SQLite", "sqlite.md"),
            Page("PostgreSQL", "postgresql.md"),
            Page("Redis and Valkey", "redis.md"),
            Page("Moving to another store", "moving.md"),
            Page("Writing a store", "guides/writing-a-store.md"),
            Page("Deploying", "guides/deploying.md"),
            Page("Watching it at work", "operations.md"),
            Page("The command line", "command-line.md"),
            Page("Security", "guides/security.md"),
            Page("The audit trail", "audit.md"),
        ),
    ),
    Section(
        "Coming from",
        (
            Page("Celery", "coming-from/celery.md"),
            Page("RQ", "coming-from/rq.md"),
            Page("arq", "coming-from/arq.md"),
            Page("Dramatiq", "coming-from/dramatiq.md"),
        ),
    ),
    Section("Examples", folder="examples"),
    Section(
        "Reference",
        (
            Page("What is here", "reference/index.md"),
            Page("HTTP API", "reference/http.md"),
            Page("Command line", "reference/command-line.md"),
            Page("Python", "reference/python.md"),
            Page("Settings", "reference/settings.md"),
            Page("Statuses and reasons", "reference/statuses.md"),
            Page("Error codes", "reference/errors.md"),
            Page("Events", "reference/events.md"),
            Page("Metrics and spans", "reference/metrics.md"),
            Page("What stores promise", "reference/stores.md"),
        ),
    ),
    Section(
        "Project",
        (
            Page("How it compares", "comparison.md"),
            Page("Benchmarks", "benchmarks.md"),
            Page("A tour by file", "architecture.md"),
            Page("Contributing", "contributing.md"),
            Page("Changelog", "changelog.md"),
        ),
    ),
    Section("Decisions", (Page("All decisions", "adr/README.md"),), folder="adr"),
)


def title_of(file: Path) -> str:
    """The first heading of a page."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line.removeprefix("# ").replace("`", "")
    raise ValueError(f"{file.name} has no heading")


def sections(docs: Path) -> dict[str, list[Page]]:
    """What the menu shows; a section without pages is left out."""
    found = {section.title: list(section.found(docs)) for section in SECTIONS}
    return {title: pages for title, pages in found.items() if pages}


def as_toml(docs: Path) -> str:
    """The menu, as zensical reads it."""
    lines = [f'  {{ "{HOME.title}" = "{HOME.path}" }},']
    for title, pages in sections(docs).items():
        inner = ", ".join(f'{{ "{page.title}" = "{page.path}" }}' for page in pages)
        lines.append(f'  {{ "{title}" = [{inner}] }},')
    return "nav = [\n" + "\n".join(lines) + "\n]\n"
