"""The order in which the pages are read; the menu of the site and llms.txt are made of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple


class Page(NamedTuple):
    """A page, by the name that the menu gives it, and what it is about."""

    title: str
    path: str
    about: str = ""


class Section(NamedTuple):
    """Pages that belong together; each of a folder where one is named."""

    title: str
    pages: tuple[Page, ...] = ()
    folder: str = ""

    def found(self, docs: Path) -> Iterator[Page]:
        """The pages, then those of the folder that are not named."""
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
            Page(
                "In five minutes",
                "start.md",
                "install it, write a job, run it, look at it, run it again",
            ),
            Page(
                "What the terminal shows",
                "first-job.md",
                "the same, with everything that the terminal says",
            ),
            Page(
                "Tutorial",
                "tutorial.md",
                "a small service grown step by step, from its first job to its test",
            ),
        ),
    ),
    Section(
        "Concepts",
        (
            Page(
                "The promise",
                "concepts/promise.md",
                "what is promised about a job, and what is not",
            ),
            Page(
                "What is proven",
                "reliability.md",
                "simulation, chaos, seeded bugs: what came of it, and what is not promised",
            ),
            Page(
                "The lifecycle of a job",
                "concepts/lifecycle.md",
                "six statuses, every move between them, who decides and what is counted",
            ),
            Page(
                "Leases and fences",
                "concepts/leases.md",
                "how a dead worker is noticed, and why one that comes back does no harm",
            ),
            Page(
                "Crashes",
                "concepts/crashes.md",
                "whose fault a dead worker is, and how a job that kills workers is found",
            ),
            Page(
                "Idempotency",
                "concepts/idempotency.md",
                "keys of jobs, ids, keys of requests; what a handler must bear",
            ),
            Page(
                "Retries and backoff",
                "concepts/retries.md",
                "which errors are tried again, after how long, how often",
            ),
            Page(
                "How a job ends",
                "concepts/endings.md",
                "what follows from every exception, wherever the handler runs",
            ),
            Page(
                "Dead letters",
                "concepts/dead-letters.md",
                "what failed: looking, running it again, how long it is kept",
            ),
            Page(
                "Events",
                "events.md",
                "what happens to jobs, for functions and consumers, at least once and in order",
            ),
        ),
    ),
    Section(
        "Guides",
        (
            Page(
                "Declaring and sending jobs",
                "guides/declaring.md",
                "functions and their arguments, send and submit, every option of a job",
            ),
            Page(
                "FastAPI",
                "guides/fastapi.md",
                "202 and a status URL in your own application, with your own login",
            ),
            Page(
                "The HTTP API",
                "http.md",
                "submit, ask, follow, act: every path, headers, limits, rate limits",
            ),
            Page(
                "Who may do what",
                "authentication.md",
                "tenants, owners, roles, scopes; API keys and tokens",
            ),
            Page(
                "The Python client",
                "client.md",
                "a typed client of the HTTP API, blocking and async",
            ),
            Page(
                "Where a handler runs",
                "guides/running.md",
                "the loop, a thread or a process: which to choose, what each can do",
            ),
            Page(
                "Typed payloads and results",
                "guides/results.md",
                "pydantic models and other types, from the submit to the result",
            ),
            Page(
                "Find a job again",
                "guides/finding.md",
                "handles and snapshots by id, and a search by what is known of a job",
            ),
            Page(
                "Transactions",
                "guides/transactions.md",
                "submit and complete together with your own writes",
            ),
            Page("The outbox", "outbox.md", "the same where the jobs are elsewhere than your data"),
            Page(
                "Schedules",
                "schedules.md",
                "cron and intervals, time zones, missed and overlapping runs",
            ),
            Page(
                "Webhooks",
                "webhooks.md",
                "outcomes over HTTPS: signing, retries, rotation, where they may go",
            ),
            Page(
                "Envelopes",
                "guides/envelopes.md",
                "jobs that other systems write: what is taken, what is ignored, by every door",
            ),
            Page(
                "The RabbitMQ bridge",
                "bridge.md",
                "jobs from a broker, outcomes back, envelopes to other systems",
            ),
            Page(
                "Flow control",
                "guides/flow-control.md",
                "turns of customers, so many at once, so many a second, over all workers",
            ),
            Page(
                "Limits and hooks",
                "guides/limits-and-hooks.md",
                "how many run at once, how many may wait, and what is around every run",
            ),
            Page(
                "Recipes",
                "guides/recipes.md",
                "fan-out, polling, rates, singletons, large payloads, progress, redacted errors",
            ),
            Page(
                "Testing",
                "guides/testing.md",
                "JobsTest: a store of its own, a clock to move, crashes on purpose",
            ),
        ),
    ),
    Section(
        "Running it",
        (
            Page(
                "Choosing a store",
                "guides/choosing-a-store.md",
                "SQLite, PostgreSQL, Redis: what each promises",
            ),
            Page("SQLite", "sqlite.md", "URL options, sharing a file, transactions"),
            Page(
                "PostgreSQL",
                "postgresql.md",
                "URL options, PgBouncer, transactions, submitting by SQL, promises",
            ),
            Page("Redis and Valkey", "redis.md", "URL options, durability, memory, clusters, keys"),
            Page("Moving to another store", "moving.md", "gantline store copy, and what it does"),
            Page(
                "Backup and restore",
                "guides/backup.md",
                "per store, and what it means that a store has gone back in time",
            ),
            Page(
                "Writing a store",
                "guides/writing-a-store.md",
                "the conformance suite, over a store of your own",
            ),
            Page(
                "Prove it on your own store",
                "guides/proving.md",
                "gantline prove: faults on your servers, and whether anything is lost or doubled",
            ),
            Page("Deploying", "guides/deploying.md", "systemd, Kubernetes, KEDA, rolling out"),
            Page(
                "Watching it at work",
                "operations.md",
                "a job failed: why? Health, metrics, alerts, logs, traces",
            ),
            Page(
                "The command line",
                "command-line.md",
                "which store is used, switches, output and exit codes",
            ),
            Page(
                "Security",
                "guides/security.md",
                "what is safe by default, what is yours to do, what to do after a leak",
            ),
            Page(
                "The audit trail",
                "audit.md",
                "who did what, in a chain that shows every later change",
            ),
        ),
    ),
    Section(
        "Coming from",
        (
            Page(
                "Celery",
                "coming-from/celery.md",
                "a table of equivalents, what differs, how to move",
            ),
            Page("RQ", "coming-from/rq.md", "a table of equivalents, what differs, how to move"),
            Page("arq", "coming-from/arq.md", "a table of equivalents, what differs, how to move"),
            Page(
                "Dramatiq",
                "coming-from/dramatiq.md",
                "a table of equivalents, what differs, how to move",
            ),
            Page(
                "AsyncEndpoints",
                "coming-from/asyncendpoints.md",
                "routes, options, strategies and statuses of the .NET library",
            ),
            Page(
                "The BPC worker",
                "coming-from/bpc-worker.md",
                "variables, tables, errors, messages and webhooks; its jobs moved by one statement",
            ),
            Page(
                "Spaarke",
                "coming-from/spaarke.md",
                "the Job Contract, the processor, handlers and status of services in C#",
            ),
        ),
    ),
    Section("Examples", folder="examples"),
    Section(
        "Reference",
        (
            Page(
                "What is here",
                "reference/index.md",
                "what the pages of the reference are made from",
            ),
            Page("Glossary", "glossary.md", "one word for one thing"),
            Page(
                "HTTP API", "reference/http.md", "every operation, parameter, answer and document"
            ),
            Page("Command line", "reference/command-line.md", "every command with its options"),
            Page("Python", "reference/python.md", "every public name with its signature"),
            Page("Settings", "reference/settings.md", "every setting, variable and default"),
            Page(
                "Statuses and reasons",
                "reference/statuses.md",
                "statuses, derived states, moves, reasons",
            ),
            Page(
                "Error codes", "reference/errors.md", "codes of answers, of runs and of exceptions"
            ),
            Page("Events", "reference/events.md", "every event, and the document that carries it"),
            Page(
                "Metrics and spans",
                "reference/metrics.md",
                "every metric with its labels, every attribute of a span",
            ),
            Page("What stores promise", "reference/stores.md", "the capabilities of each store"),
        ),
    ),
    Section(
        "Project",
        (
            Page(
                "How it compares",
                "comparison.md",
                "what others have, what was measured, where Gantline loses",
            ),
            Page("Benchmarks", "benchmarks.md", "every figure with its spread, and the goals"),
            Page("A tour by file", "architecture.md", "the layers, how a job flows, where to look"),
            Page(
                "The seeds",
                "seeds.md",
                "every statement of the five documents it grew from, its place and its test",
            ),
            Page(
                "Contributing", "contributing.md", "set up, write, test, add a store or a migration"
            ),
            Page("Changelog", "changelog.md", "what has changed"),
        ),
    ),
    Section(
        "Decisions",
        (Page("All decisions", "adr/README.md", "what was decided, and why"),),
        folder="adr",
    ),
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
