"""gantline job: submit, look at, list, cancel, redrive and watch jobs."""

import asyncio
import sys
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import click
import msgspec

from gantline.cli.backend import Acted, Backend
from gantline.cli.command import command
from gantline.cli.options import Seconds, parse_id
from gantline.cli.output import job_row, log_row
from gantline.cli.session import Cli, pass_cli
from gantline.cli.table import Columns
from gantline.cli.talk import say
from gantline.contract.errors import GantlineError, InvalidInput
from gantline.contract.query import JobFilter
from gantline.contract.retry import MAX_DELAY
from gantline.contract.status import JobStatus

LOG_COLUMNS: Final = Columns(
    ("endedAt", "event", "reason", "actor", "why"), prose="why", expendable=("actor",)
)
COLUMNS: Final = Columns(
    ("jobId", "state", "attempts", "age", "jobType", "subjectId", "why"),
    prose="why",
    expendable=("subjectId", "attempts", "age"),
)
_LONGEST_DELAY_SECONDS = MAX_DELAY.total_seconds()


@click.group()
def job() -> None:
    """Submit, look at and steer jobs."""


@job.command()
@click.argument("job_type")
@click.argument("payload", default="null")
@click.option("--queue")
@click.option("--priority", type=click.IntRange(0, 3))
@click.option("--delay", type=Seconds(_LONGEST_DELAY_SECONDS))
@click.option("--key", "idempotency_key", help="Idempotency key.")
@click.option("--subject")
@click.option("--max-attempts", type=click.IntRange(1, 1000))
@pass_cli
@command
async def submit(cli: Cli, /, job_type: str, payload: str, **options: Any) -> None:
    """Submit a job with PAYLOAD as JSON; `-` reads it from standard input.

    With an application (--app) the job is checked and completed by its declaration.
    """
    try:
        body = (sys.stdin.read() if payload == "-" else payload).strip().encode()
    except UnicodeError:
        raise InvalidInput("The payload is not text in UTF-8.") from None
    if options["delay"] is not None:
        options["delay"] = timedelta(seconds=options["delay"])
    async with cli.backend(create=True) as backend:
        submitted = await backend.submit(job_type, msgspec.Raw(body), **options)
        cli.output.one({"jobId": str(submitted.job_id), "duplicate": submitted.duplicate})


@job.command()
@click.argument("job_id")
@pass_cli
@command
async def get(cli: Cli, job_id: str) -> None:
    """Show a job and what has happened to it."""
    wanted = parse_id(job_id)
    async with cli.backend() as backend:
        job, log = await backend.job(wanted), await backend.log(wanted)
    row = job_row(job, cli.clock.now())
    if job.result is not None:
        row["result"] = job.result
    row["payload"] = job.payload
    cli.output.one_with(row, "history", [log_row(*one) for one in log], LOG_COLUMNS)


@job.command(name="list")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    help="Queued, Running, Completed, Failed, Poisoned or Cancelled.",
)
@click.option("--type", "job_types", multiple=True)
@click.option("--queue", "queues", multiple=True)
@click.option("--subject", "subject_id")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@pass_cli
@command
async def list_(
    cli: Cli,
    statuses: tuple[str, ...],
    job_types: tuple[str, ...],
    queues: tuple[str, ...],
    subject_id: str | None,
    limit: int,
) -> None:
    """List jobs, newest first."""
    wanted = JobFilter(
        statuses=frozenset(JobStatus.parse(name) for name in statuses),
        job_types=frozenset(job_types),
        queues=frozenset(queues),
        subject_id=subject_id,
    )
    await show_jobs(cli, wanted, limit, COLUMNS)


async def show_jobs(cli: Cli, wanted: JobFilter, limit: int, columns: Columns) -> None:
    async with cli.backend() as backend:
        jobs, has_more = await backend.find(wanted, limit)
        empty = f"No jobs found for {backend.whose}."
    now = cli.clock.now()
    rows = [job_row(job, now) for job in jobs]
    cli.output.rows(rows, columns, empty=empty)
    if has_more:
        say(f"There are more; these are the newest {limit}. Use --limit for more.")


@job.command()
@click.argument("job_ids", nargs=-1, required=True)
@pass_cli
@command
async def cancel(cli: Cli, job_ids: tuple[str, ...]) -> None:
    """Cancel jobs: at once while they wait, by asking the run while they run."""
    ids = [parse_id(job_id) for job_id in job_ids]
    async with cli.backend() as backend:
        report(cli, await backend.cancel_each(ids))


@job.command()
@click.argument("job_ids", nargs=-1, required=True)
@pass_cli
@command
async def redrive(cli: Cli, job_ids: tuple[str, ...]) -> None:
    """Queue jobs again that failed, were poisoned or cancelled."""
    ids = [parse_id(job_id) for job_id in job_ids]
    async with cli.backend() as backend:
        report(cli, await backend.redrive_each(ids))


@job.command()
@click.argument("job_id")
@click.option("--timeout", "timeout_seconds", type=Seconds(), help="How long to wait at most.")
@pass_cli
@command
async def watch(cli: Cli, job_id: str, timeout_seconds: float | None) -> None:
    """Follow a job to its end; the exit code is 0 only if it completes."""
    wanted = parse_id(job_id)
    async with cli.backend() as backend, asyncio.timeout(timeout_seconds):
        status = await _follow(cli, backend, wanted)
    if status is not JobStatus.COMPLETED:
        sys.exit(1)


async def _follow(cli: Cli, backend: Backend, job_id: UUID) -> JobStatus:
    seen = 0
    while True:
        status = await backend.status(job_id)
        if status.version != seen:
            seen = status.version
            is_running = status.status is JobStatus.RUNNING
            done = f" {status.progress:g} % {status.phase or ''}" if is_running else ""
            say(f"{status.state}, attempt {status.attempt}/{status.max_attempts}{done}")
        if status.status.is_terminal:
            job = await backend.job(job_id)
            cli.output.one(job_row(job, cli.clock.now()))
            return job.status
        await asyncio.sleep(backend.look_again_seconds)


def report(cli: Cli, answers: list[Acted | GantlineError]) -> None:
    """Print what became of each; fail with the first error once all are told."""
    done = [answer for answer in answers if isinstance(answer, Acted)]
    rows = [
        {"jobId": str(one.job_id), "status": one.status.value, "changed": one.changed}
        for one in done
    ]
    if rows:
        cli.output.rows(rows, Columns(("jobId", "status", "changed")), empty="")
    errors = [answer for answer in answers if isinstance(answer, GantlineError)]
    for error in errors[1:]:
        say(f"Error: {error}")
    if errors:
        raise errors[0]
