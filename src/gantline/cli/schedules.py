"""gantline schedule: making, looking at, pausing, running and deleting schedules."""

import sys
from datetime import datetime, timedelta
from typing import Any, Final, get_args

import click
import msgspec

from gantline.api.schedule_documents import NewSchedule, ScheduleDocument
from gantline.cli.command import command, confirm
from gantline.cli.options import span
from gantline.cli.session import Cli
from gantline.cli.table import Columns
from gantline.contract.errors import InvalidInput
from gantline.schedules.schedule import (
    DEFAULT_CATCH_UP,
    MOST_CATCH_UP,
    SHOWN_RUNS,
    Misfire,
    Overlap,
    check_name,
)

_COLUMNS: Final = Columns(
    ("name", "jobType", "nextRun", "last", "paused", "origin", "explanation"),
    prose="explanation",
    expendable=("origin", "last"),
)
_FIRES: Final = Columns(("at", "jobId", "latenessSeconds", "by", "reason"), prose="reason")
_RUNS: Final = Columns(("at", "local", "dueAt"), expendable=("dueAt",))


def _instant(text: str) -> datetime:
    """Read an instant with its zone."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not an instant; write 2026-12-24T18:00Z.") from None
    if instant.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone; write 2026-12-24T18:00Z.")
    return instant


@click.group()
def schedule() -> None:
    """Create, inspect, pause and trigger schedules."""


@schedule.command()
@click.argument("name")
@click.argument("job_type")
@click.argument("payload", default="null")
@click.option("--cron", help='Five or six fields, or @daily: "0 6 * * *".')
@click.option("--timezone", default="UTC", show_default=True, help="Time zone of --cron.")
@click.option("--every", type=span, help="An interval instead of --cron: 30s, 5m, 12h, 1d.")
@click.option(
    "--anchor", type=_instant, metavar="INSTANT", help="The instant from which --every counts."
)
@click.option("--queue", help="Default: the queue of the type.")
@click.option("--priority", type=click.IntRange(0, 3), help="0 comes first.")
@click.option("--subject", "subject_id", help="Subject of its jobs.")
@click.option("--group", help="Group of its jobs. Default: as their type says.")
@click.option("--max-attempts", type=click.IntRange(1, 1000))
@click.option("--start", type=_instant, metavar="INSTANT", help="No runs before this instant.")
@click.option("--end", type=_instant, metavar="INSTANT", help="No runs after this instant.")
@click.option("--jitter", type=span, help="The longest random delay of a run.")
@click.option(
    "--misfire",
    type=click.Choice(get_args(Misfire)),
    default="coalesce",
    show_default=True,
    help="What to do about missed runs: one run for all, each of them, or none.",
)
@click.option(
    "--catch-up-limit",
    type=click.IntRange(1, MOST_CATCH_UP),
    default=DEFAULT_CATCH_UP,
    show_default=True,
    help="The most runs to catch up, with --misfire catch_up.",
)
@click.option("--grace", type=span, help="How late a run may still start with --misfire skip.")
@click.option(
    "--overlap",
    type=click.Choice(get_args(Overlap)),
    default="allow",
    show_default=True,
    help="Whether to start a run while the last one has not ended.",
)
@command
async def add(cli: Cli, /, name: str, job_type: str, payload: str, **options: Any) -> None:
    """Create a schedule that submits JOB_TYPE with PAYLOAD as JSON; `-` reads it from stdin.

    With an application (--app) the payload is checked by its declaration.
    """
    check_name(name)
    if (options["cron"] is None) == (options["every"] is None):
        raise click.UsageError('Give one of --cron and --every: --cron "0 6 * * *", --every 5m.')
    text = sys.stdin.read() if payload == "-" else payload
    for spans in ("every", "jitter", "grace"):
        given: timedelta | None = options.pop(spans)
        if given is not None:
            options[f"{spans}_seconds"] = given.total_seconds()
    new = NewSchedule(name=name, job_type=job_type, payload=_json(text), **options)
    async with cli.backend(create=True) as backend:
        _show(cli, await backend.add_schedule(new))


@schedule.command(name="list")
@command
async def list_(cli: Cli) -> None:
    """List the tenant's schedules by name."""
    async with cli.backend() as backend:
        rows = [_row(one) async for one in backend.schedules()]
        empty = f"There are no schedules of {backend.whose}."
    cli.output.rows(rows, _COLUMNS, empty=empty)


@schedule.command()
@click.argument("name")
@command
async def show(cli: Cli, name: str) -> None:
    """Show a schedule, its last runs and the next five."""
    async with cli.backend() as backend:
        _show(cli, await backend.schedule(name))


@schedule.command()
@click.argument("name")
@command
async def pause(cli: Cli, name: str) -> None:
    """Pause a schedule: it submits nothing until it is resumed."""
    async with cli.backend() as backend:
        _show(cli, await backend.pause_schedule(name))


@schedule.command()
@click.argument("name")
@command
async def resume(cli: Cli, name: str) -> None:
    """Resume a schedule with its next run; runs in between do not count as missed."""
    async with cli.backend() as backend:
        _show(cli, await backend.resume_schedule(name))


@schedule.command()
@click.argument("name")
@command
async def run(cli: Cli, name: str) -> None:
    """Submit a job of a schedule now; its regular runs are unchanged."""
    async with cli.backend() as backend:
        job_id = (await backend.run_schedule(name)).job_id
    cli.output.one({"name": name, "jobId": str(job_id)})


@schedule.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def delete(cli: Cli, name: str, yes: bool) -> None:
    """Delete a schedule; jobs that it has submitted stay."""
    async with cli.backend() as backend:
        found = await backend.schedule(name)
        if not yes:
            await confirm(f"delete the schedule {name} ({found.explanation})")
        await backend.delete_schedule(name)
    cli.output.one({"name": name, "deleted": True})


@schedule.command(name="next")
@click.argument("name")
@click.option("--count", type=click.IntRange(1, 100), default=SHOWN_RUNS, show_default=True)
@command
async def next_(cli: Cli, name: str, count: int) -> None:
    """List the next runs, in UTC and in local time of the schedule."""
    async with cli.backend() as backend:
        plan = await backend.next_runs(name, count)
    row = {
        "name": plan.name,
        "explanation": plan.explanation,
        "timezone": plan.timezone,
    }
    cli.output.one_with(row, "runs", [msgspec.to_builtins(one) for one in plan.items], _RUNS)


def _json(text: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(text.strip())))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidInput(
            f"The payload is not valid JSON: {error}.",
            next_step="""A text has quotes: '"daily"'.""",
        ) from None


def _row(one: ScheduleDocument) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(one)
    last = one.fires[0] if one.fires else None
    row["last"] = "" if last is None else last.reason or "submitted"
    return row


def _show(cli: Cli, one: ScheduleDocument) -> None:
    row: dict[str, Any] = msgspec.to_builtins(one)
    fires = row.pop("fires")
    cli.output.one_with(row, "fires", fires, _FIRES)
