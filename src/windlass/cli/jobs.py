"""windlass job: submit, look at, list, cancel, retry and watch jobs."""

import asyncio
import sys
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import click
import msgspec

from windlass.app import JobType
from windlass.cli.choice import place_of
from windlass.cli.output import job_row, log_row, say
from windlass.cli.seconds import Seconds
from windlass.cli.session import Cli, command, pass_cli
from windlass.cli.table import Columns
from windlass.cli.waiting import told_when_slow
from windlass.contract.errors import InvalidInput, JobNotFound, WindlassError
from windlass.contract.job import Job
from windlass.contract.query import JobFilter
from windlass.contract.retry import MAX_DELAY
from windlass.contract.status import JobStatus
from windlass.contract.store import JobStore
from windlass.contract.wakeup import Hint
from windlass.manager.manager import Acted, JobManager, Submission

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
@click.option("--delay", "delay_seconds", type=Seconds(_LONGEST_DELAY_SECONDS), default=0)
@click.option("--key", "idempotency_key", help="Idempotency key.")
@click.option("--subject", "subject_id")
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
    asked = {name: value for name, value in options.items() if value is not None}
    delay = timedelta(seconds=asked.pop("delay_seconds"))
    async with cli.opened(create=True) as (store, manager):
        if cli.settings["app"]:
            new = _declared(cli, job_type, body, delay, asked)
        else:
            say("No application is named (--app), so the payload is not checked.")
            new = _undeclared(cli, job_type, body, delay, asked)
        (answer,) = await manager.submit([new])
        if isinstance(answer, WindlassError):
            raise answer
        await cli.hint(store)
        cli.output.one({"jobId": str(answer.job_id), "duplicate": answer.duplicate})


def _declared(
    cli: Cli, name: str, body: bytes, delay: timedelta, asked: dict[str, Any]
) -> Submission:
    """The job as its declaration makes it: checked, with its subject, key, queue and attempts."""
    known = {one.name: one for one in cli.app().job_types}
    if name not in known:
        raise InvalidInput(
            f"The application declares no job {name!r}.",
            next_step=f"It declares {', '.join(sorted(known)) or 'none'}.",
        )
    declared = known[name]
    payload = _decoded(declared, body)
    asked["subject"] = asked.pop("subject_id", None)
    new = declared.prepare(payload, tenant=cli.tenant, delay=delay, **asked)
    return Submission(new.job, new.delay)


def _decoded(declared: JobType[Any, Any], body: bytes) -> Any:
    codec = declared.handler.codec
    try:
        return codec.decode(body)
    except InvalidInput as error:
        fields = ", ".join(_fields_of(codec.schema()))
        next_step = f"It has the fields {fields}." if fields else ""
        raise InvalidInput(error.cause, next_step=next_step) from None


def _fields_of(schema: dict[str, Any]) -> list[str]:
    """The fields as they are called in JSON, in their order; none where it is no object."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return list(schema.get("$defs", {}).get(name, schema).get("properties", {}))


def _undeclared(
    cli: Cli, name: str, body: bytes, delay: timedelta, asked: dict[str, Any]
) -> Submission:
    job = Job(
        job_type=name,
        payload=msgspec.Raw(body),
        tenant_id=cli.tenant,
        created_at=cli.clock.now(),
        **asked,
    )
    return Submission(job, delay)


@job.command()
@click.argument("job_id")
@pass_cli
@command
async def get(cli: Cli, job_id: str) -> None:
    """Show a job and what has happened to it."""
    wanted = parse_id(job_id)
    async with cli.opened() as (_, manager):
        found = (await manager.get([wanted], tenant_id=cli.tenant))[0]
        if found is None:
            raise JobNotFound(wanted)
        row = job_row(found, cli.clock.now())
        history = await manager.history(found.job.job_id, tenant_id=cli.tenant)
        if found.last and found.last.result is not None:
            row["result"] = msgspec.Raw(found.last.result)
        row["payload"] = found.job.payload
        cli.output.one_with(row, "history", [log_row(entry) for entry in history], LOG_COLUMNS)


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
        tenant_id=cli.tenant,
        statuses=frozenset(JobStatus.parse(name) for name in statuses),
        job_types=frozenset(job_types),
        queues=frozenset(queues),
        subject_id=subject_id,
    )
    await show_jobs(cli, wanted, limit, COLUMNS)


async def show_jobs(cli: Cli, wanted: JobFilter, limit: int, columns: Columns) -> None:
    async with cli.opened() as (_, manager):
        page = await manager.find(wanted, limit=limit)
        now = cli.clock.now()
        rows = [job_row(found, now) for found in page.items]
        cli.output.rows(rows, columns, empty=f"No jobs found for the tenant {cli.tenant!r}.")
        if page.next:
            say(f"There are more; these are the newest {limit}. Use --limit for more.")


@job.command()
@click.argument("job_ids", nargs=-1, required=True)
@pass_cli
@command
async def cancel(cli: Cli, job_ids: tuple[str, ...]) -> None:
    """Cancel jobs: at once while they wait, by asking the run while they run."""
    ids = [parse_id(job_id) for job_id in job_ids]
    async with cli.opened() as (store, manager):
        answers = await manager.cancel(ids, tenant_id=cli.tenant, actor=cli.actor)
        await cli.hint(store, Hint.CANCEL)
        report(cli, answers)


@job.command()
@click.argument("job_ids", nargs=-1, required=True)
@pass_cli
@command
async def retry(cli: Cli, job_ids: tuple[str, ...]) -> None:
    """Queue jobs again that failed, were poisoned or cancelled."""
    ids = [parse_id(job_id) for job_id in job_ids]
    async with cli.opened() as (store, manager):
        answers = await manager.redrive(ids, tenant_id=cli.tenant, actor=cli.actor)
        await cli.hint(store)
        report(cli, answers)


@job.command()
@click.argument("job_id")
@click.option("--timeout", "timeout_seconds", type=Seconds(), help="How long to wait at most.")
@pass_cli
@command
async def watch(cli: Cli, job_id: str, timeout_seconds: float | None) -> None:
    """Follow a job to its end; the exit code is 0 only if it completes."""
    wanted = parse_id(job_id)
    async with cli.opened() as (store, manager), asyncio.timeout(timeout_seconds):
        status = await _follow(cli, store, manager, wanted)
    if status is not JobStatus.COMPLETED:
        sys.exit(1)


async def _follow(cli: Cli, store: JobStore, manager: JobManager, job_id: UUID) -> JobStatus:
    seen = 0
    while True:
        with told_when_slow(place_of(store, cli.choice), store.capabilities.patience):
            found = (await manager.get([job_id], tenant_id=cli.tenant))[0]
        if found is None:
            raise JobNotFound(job_id)
        if found.version != seen:
            seen = found.version
            row = job_row(found, cli.clock.now())
            done = f" {found.run.percent:g} % {found.run.phase}" if found.run else ""
            say(f"{row['state']}, attempt {row['attempt']}/{row['maxAttempts']}{done}")
        if found.status.is_terminal:
            cli.output.one(job_row(found, cli.clock.now()))
            return found.status
        await asyncio.sleep(0.2)


def parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(f"{text[:64]!r} is not a job id.", next_step="It is a UUID.") from None


def report(cli: Cli, answers: list[Acted | WindlassError]) -> None:
    """Print what became of each; fail with the first error once all are told."""
    done = [answer for answer in answers if isinstance(answer, Acted)]
    rows = [
        {"jobId": str(one.job_id), "status": one.status.value, "changed": one.changed}
        for one in done
    ]
    if rows:
        cli.output.rows(rows, Columns(("jobId", "status", "changed")), empty="")
    errors = [answer for answer in answers if isinstance(answer, WindlassError)]
    for error in errors[1:]:
        say(f"Error: {error}")
    if errors:
        raise errors[0]
