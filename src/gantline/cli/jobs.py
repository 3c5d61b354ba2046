"""gantline job: submit, look at, list, cancel, redrive, delete, prune and watch jobs."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, BinaryIO, Final, Unpack
from uuid import UUID

import click
import msgspec

from gantline.api.searching import FindOptions
from gantline.app.settings import FLAG
from gantline.auth.action import Action
from gantline.cli.backend import Backend, Found, Kind
from gantline.cli.command import command, confirm
from gantline.cli.options import Seconds, instant_ahead, parse_id, span, span_text
from gantline.cli.output import job_row, log_row, why_text
from gantline.cli.searching import search_options
from gantline.cli.session import Cli, all_tenants_option
from gantline.cli.table import Columns
from gantline.cli.talk import counted, say
from gantline.contract.errors import GantlineError, InvalidInput
from gantline.contract.job import MAX_DELAY
from gantline.contract.query import Cursor, JobFilter
from gantline.contract.retention import Retention
from gantline.contract.status import TERMINAL, JobStatus, parse_state
from gantline.contract.store import JobStore
from gantline.manager.manager import Acted
from gantline.manager.pruner import Pruner
from gantline.manager.switches import Switches

LOG_COLUMNS: Final = Columns(
    ("endedAt", "event", "reason", "actor", "session", "why"),
    prose="why",
    expendable=("session", "actor"),
)
COLUMNS: Final = Columns(
    ("jobId", "state", "attempts", "age", "jobType", "subjectId", "why"),
    prose="why",
    expendable=("subjectId", "attempts", "age"),
)
_PAGE: Final = 1000
_LONGEST_DELAY_SECONDS = MAX_DELAY.total_seconds()


@click.group()
def job() -> None:
    """Submit, inspect, cancel and redrive jobs."""


@job.command()
@click.argument("job_type", required=False)
@click.argument("payload", required=False)
@click.option(
    "--envelope",
    type=click.File("rb"),
    help="Submit the job of this file, the Job Contract as JSON.",
)
@click.option("--queue")
@click.option("--priority", type=click.IntRange(0, 3))
@click.option("--delay", type=Seconds(_LONGEST_DELAY_SECONDS), help="Seconds, or 30m, 12h, 1d.")
@click.option(
    "--expires-in",
    type=Seconds(_LONGEST_DELAY_SECONDS),
    help="Cancel it if it has not started in so many seconds, or 30m, 12h, 1d.",
)
@click.option("--key", "idempotency_key", help="Idempotency key.")
@click.option("--subject")
@click.option("--group", help="Whose turn it takes within its tenant. Default: as its type says.")
@click.option("--max-attempts", type=click.IntRange(1, 1000))
@command
async def submit(
    cli: Cli,
    /,
    job_type: str | None,
    payload: str | None,
    envelope: BinaryIO | None,
    **options: Any,
) -> None:
    """Submit a job with PAYLOAD as JSON, or by a whole envelope; `-` reads it from standard input.

    With an application (--app) the job is checked and completed by its declaration. Members of an
    envelope that are not known are ignored, and named.
    """
    if envelope is not None:
        if job_type is not None or any(option is not None for option in options.values()):
            raise InvalidInput(
                "An envelope says all of its job itself.",
                next_step="Give --envelope alone, or JOB_TYPE, PAYLOAD and options.",
            )
        return await _submit_envelope(cli, envelope.read())
    if job_type is None:
        raise InvalidInput("No job is named.", next_step="Give JOB_TYPE, or --envelope.")
    payload = "null" if payload is None else payload
    try:
        body = (sys.stdin.read() if payload == "-" else payload).strip().encode()
    except UnicodeError:
        raise InvalidInput("The payload is not text in UTF-8.") from None
    for name in ("delay", "expires_in"):
        if options[name] is not None:
            options[name] = timedelta(seconds=options[name])
    async with cli.backend(create=True) as backend:
        submitted = await backend.submit(job_type, msgspec.Raw(body), **options)
        cli.output.one({"jobId": str(submitted.job_id), "duplicate": submitted.duplicate})


async def _submit_envelope(cli: Cli, envelope: bytes) -> None:
    async with cli.backend(create=True) as backend:
        submitted = await backend.submit_envelope(envelope)
        for warning in submitted.warnings or ():
            say(f"Warning: {warning.pointer} {warning.detail}")
        cli.output.one({"jobId": str(submitted.job_id), "duplicate": submitted.duplicate})


@job.command()
@click.argument("job_id")
@all_tenants_option
@command
async def get(cli: Cli, job_id: str) -> None:
    """Show a job and its history."""
    uuid = parse_id(job_id)
    async with cli.backend() as backend:
        job, log = await backend.job(uuid), await backend.log(uuid)
        is_running = job.status is JobStatus.RUNNING
        attempts = await backend.attempts(uuid) if is_running else []
    row = job_row(job, cli.clock.now())
    row["session"] = next((one.session for one in attempts if one.ended_at is None), None)
    if job.result is not None:
        row["result"] = job.result
    row["payload"] = job.payload
    cli.output.one_with(row, "history", [log_row(*one) for one in log], LOG_COLUMNS)


@job.command()
@click.argument("job_id")
@all_tenants_option
@command
async def why(cli: Cli, job_id: str) -> None:
    """Say why a job waits: what hinders it, and what to do.

    The first reason is the one that matters most. A server says what its key may see.
    """
    async with cli.backend() as backend:
        found = await backend.why(parse_id(job_id))
    cli.output.text_or_one(why_text(found), msgspec.to_builtins(found))


@job.command(name="list")
@click.option(
    "--status",
    multiple=True,
    help="Queued, Running, Completed, Failed, Poisoned or Cancelled; or Scheduled, Retrying, "
    "Cancelling.",
)
@click.option(
    "--due-before",
    type=instant_ahead,
    help="Queued, and due before: 2h from now, or 2026-11-01T12:00.",
)
@search_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@command
async def list_(cli: Cli, /, limit: int, **options: Unpack[FindOptions]) -> None:
    """List jobs, newest first.

    What every option asks for must hold. --code, --attempts, Scheduled and Retrying are compared
    job by job: give --since where there are millions.
    """
    options["status"] = [parse_state(name) for name in options["status"] or ()]
    async with cli.backend() as backend:
        found = await backend.find(limit, **options)
        show_jobs(cli, backend, found, COLUMNS)
        if not found.jobs:
            await say_if_misspelt(backend, options)


async def say_if_misspelt(backend: Backend, options: FindOptions) -> None:
    """Who found nothing may have mistyped a queue or a type."""
    named: dict[Kind, Any] = {"queue": options.get("queue"), "type": options.get("job_type")}
    with suppress(GantlineError):  # a key may be allowed to find jobs, and not to count them
        for kind, names in named.items():
            for name in names or ():
                (await backend.known(kind)).say_if_unseen(kind, name)


def show_jobs(cli: Cli, backend: Backend, found: Found, columns: Columns) -> None:
    if cli.all_tenants:
        columns = columns._replace(names=(columns.names[0], "tenantId", *columns.names[1:]))
    now = cli.clock.now()
    rows = [job_row(job, now) for job in found.jobs]
    cli.output.rows(rows, columns, empty=f"No jobs found for {backend.whose}.{backend.unseen}")
    if found.has_more:
        say(f"There are more; these are the newest {len(rows)}. Use --limit for more.")


@job.command()
@click.argument("job_ids", nargs=-1, required=True)
@command
async def cancel(cli: Cli, job_ids: tuple[str, ...]) -> None:
    """Cancel jobs: waiting ones at once, running ones by asking them to stop."""
    ids = [parse_id(job_id) for job_id in job_ids]
    async with cli.backend() as backend:
        report(cli, await backend.cancel_each(ids))


@job.command()
@click.argument("job_ids", nargs=-1, required=True)
@command
async def redrive(cli: Cli, job_ids: tuple[str, ...]) -> None:
    """Queue failed, poisoned or cancelled jobs again."""
    ids = [parse_id(job_id) for job_id in job_ids]
    async with cli.backend() as backend:
        report(cli, await backend.redrive_each(ids))


@job.command()
@click.argument("job_ids", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
async def delete(cli: Cli, job_ids: tuple[str, ...], yes: bool) -> None:
    """Remove jobs that have ended, and all that is known of them.

    One that waits or runs is refused: cancel it first.
    """
    ids = list(dict.fromkeys(parse_id(job_id) for job_id in job_ids))
    async with cli.backend() as backend:
        if not yes:
            them = "it" if len(ids) == 1 else "them"
            await confirm(f"delete {counted(len(ids), 'job')} with all that is known of {them}")
        report(cli, await backend.delete_each(ids))


@job.command()
@click.argument("job_id")
@click.option("--timeout", "timeout_seconds", type=Seconds(), help="How long to wait at most.")
@command
async def watch(cli: Cli, job_id: str, timeout_seconds: float | None) -> None:
    """Follow a job to its end; the exit code is 0 only if it completes."""
    uuid = parse_id(job_id)
    # Without any time it looks once, and that needs some.
    is_once = timeout_seconds == 0
    async with cli.backend() as backend, asyncio.timeout(None if is_once else timeout_seconds):
        status = await _follow(cli, backend, uuid, is_once=is_once)
    if status is not JobStatus.COMPLETED:
        sys.exit(1)


@job.command()
@click.option(
    "--older-than", type=span, help="Use this age instead of the retention: 90d, 12h, 30m or 45s."
)
@click.option(
    "--status",
    "names",
    multiple=True,
    help="Only jobs that ended as Completed, Failed, Poisoned or Cancelled.",
)
@click.option("--dry-run", is_flag=True, help="Only count; change nothing.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def prune(
    cli: Cli, older_than: timedelta | None, names: tuple[str, ...], dry_run: bool, yes: bool
) -> None:
    """Remove ended jobs of all tenants that are past their retention, as workers do.

    How long jobs are kept, the application says (--app).
    """
    if cli.settings.value("tenant").source == FLAG:
        raise InvalidInput(
            "Jobs are pruned of every tenant, and not of one.", next_step="Leave --tenant out."
        )
    if older_than is None and not cli.settings["app"]:
        raise InvalidInput(
            "How long jobs are kept, the application says, and none is named.",
            next_step="Name it by --app, or give --older-than, such as 7d.",
        )
    statuses = sorted({JobStatus.parse(name) for name in names} or TERMINAL)
    if not TERMINAL.issuperset(statuses):
        raise InvalidInput(
            "Only jobs that have ended are removed.",
            next_step=f"Choose among {', '.join(sorted(TERMINAL))}.",
        )
    async with cli.opened() as store:
        kept = cli.retention(store)
        retention = Retention(
            **{one.lower(): kept.of(one) if older_than is None else older_than for one in statuses}
        )
        if dry_run:
            cli.output.one({"matching": await _count_old(store, retention)})
            return
        switches = Switches(store)
        await switches.refuse_if_closed()
        if older_than is not None and not yes:
            found = counted(await _count_old(store, retention), "job")
            what = f"remove {found} of every tenant that are {', '.join(statuses)}"
            await confirm(f"{what} since {span_text(older_than)} or longer")
        seconds = None if older_than is None else older_than.total_seconds()
        chosen = {"statuses": statuses, "olderThanSeconds": seconds}
        await cli.audit(store).done("pruneJobs", Action.DELETE, "jobs", chosen)
        pruned = await Pruner(store, switches, retention=retention).run_once()
    cli.output.one({"removed": pruned.jobs})
    if pruned.overdue:
        say("Some are still to be read by a consumer of events, and stay: gantline consumer list.")


async def _count_old(store: JobStore, retention: Retention) -> int:
    now, count = await store.ping(), 0
    for status in TERMINAL:
        if (kept := retention.of(status)) is None:
            continue
        ended = JobFilter(tenant_id=None, statuses=frozenset({status}), created_before=now - kept)
        after: Cursor | None = None
        while True:
            page = await store.find(ended, limit=_PAGE, after=after)
            count += sum(one.completed_at < now - kept for one in page.items if one.completed_at)
            after = page.next
            if after is None:
                break
    return count


async def _follow(cli: Cli, backend: Backend, job_id: UUID, *, is_once: bool) -> JobStatus:
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
        if is_once:
            raise TimeoutError
        await asyncio.sleep(backend.look_again_seconds)


def report(cli: Cli, answers: Sequence[Acted | UUID | GantlineError]) -> None:
    """Print what was done to each; fail with the first error once all are printed."""
    rows = [_done(answer) for answer in answers if not isinstance(answer, GantlineError)]
    if rows:
        cli.output.rows(rows, Columns(("jobId", "status", "changed", "deleted")), empty="")
    errors = [answer for answer in answers if isinstance(answer, GantlineError)]
    for error in errors[1:]:
        say(f"Error: {error}")
    if errors:
        raise errors[0]


def _done(answer: Acted | UUID) -> dict[str, Any]:
    if isinstance(answer, UUID):
        return {"jobId": str(answer), "deleted": True}
    return {
        "jobId": str(answer.job_id),
        "status": answer.status.value,
        "changed": answer.changed,
    }
