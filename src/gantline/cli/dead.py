"""gantline dead: the dead letters, jobs that failed or were poisoned."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar, Unpack
from uuid import UUID

import click

from gantline.api.searching import FindOptions
from gantline.app.settings import FLAG
from gantline.cli.backend import Backend
from gantline.cli.command import command, confirm
from gantline.cli.jobs import get, say_if_misspelt, show_jobs
from gantline.cli.options import parse_id
from gantline.cli.output import job_row
from gantline.cli.searching import internal_option, search_options
from gantline.cli.session import Cli, all_tenants_option
from gantline.cli.table import Columns
from gantline.cli.talk import counted, say
from gantline.contract.errors import IllegalTransition, InvalidInput
from gantline.contract.status import DEAD, JobStatus
from gantline.contract.webhook import RESERVED_TYPES

COLUMNS: Final = Columns(
    ("jobId", "status", "age", "jobType", "reason", "why"),
    prose="why",
    expendable=("reason", "age"),
)
_OF_NEWEST: Final = (
    *("jobType", "status", "reason", "completedAt", "jobId"),
    *("errorCode", "errorType", "errorMessage", "why"),
)
_SUMMARY: Final = Columns(
    ("jobs", "jobType", "reason", "completedAt", "jobId", "status", "why"),
    prose="why",
    expendable=("status", "completedAt", "reason"),
)
_PAGE = 200


@click.group()
def dead() -> None:
    """List, redrive and delete dead letters."""


@dead.command(name="list")
@click.option("--reason", multiple=True, help="Such as AttemptsExhausted.")
@search_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@command
async def list_(
    cli: Cli, /, reason: tuple[str, ...], limit: int, **options: Unpack[FindOptions]
) -> None:
    """List dead letters, newest first."""
    async with cli.backend() as backend:
        found = await backend.find_dead(limit, reason, **options)
        show_jobs(cli, backend, found, COLUMNS)
        if not found.jobs:
            await say_if_misspelt(backend, options)


@dead.command()
@click.option(
    "--last",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="How many of each type and reason to look at: those that were submitted last.",
)
@internal_option
@all_tenants_option
@command
async def summary(cli: Cli, last: int, internal: bool) -> None:
    """Count dead letters by type, reason and code, the most first, with the newest of each."""
    rows: list[dict[str, Any]] = []
    async with cli.backend() as backend:
        reasons = (await backend.dead_summary()).reasons
        shown = [one for one in reasons if internal or not one.job_type.startswith(RESERVED_TYPES)]
        for one in shown:
            found = await backend.find_dead(last, [one.reason], job_type=one.job_type)
            rows += _by_code([job_row(job, cli.clock.now()) for job in found.jobs])
        empty = f"There are no dead letters of {backend.whose}."
    rows.sort(key=lambda row: (-row["jobs"], row["jobType"], row["reason"]))
    cli.output.rows(rows, _SUMMARY, empty=empty)
    if any(one.jobs > last for one in shown):
        total = sum(one.jobs for one in shown)
        say(f"There are {total} in all; of each type and reason the newest {last} were counted.")
    if rows:
        named = cli.settings.value("tenant")
        gantline = f"gantline --tenant {named.text}" if named.source == FLAG else "gantline"
        redrive = f"{gantline} dead redrive --type {rows[0]['jobType']}"
        say(f"Look at one: {gantline} dead show ID. Run those of a type again: {redrive}")


def _by_code(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each code; jobs come newest first."""
    counted = Counter(job["errorCode"] for job in jobs)
    newest = {job["errorCode"]: job for job in reversed(jobs)}
    return [
        {"jobs": counted[code], **{name: job[name] for name in _OF_NEWEST}}
        for code, job in newest.items()
    ]


dead.add_command(get, name="show")

F = TypeVar("F", bound=Callable[..., Any])


def choosing(function: F) -> F:
    """The options by which dead letters are chosen; what they say goes to `_selection`."""
    for option in (
        click.option("--limit", type=click.IntRange(1), default=1000, show_default=True),
        click.option("--all", "everything", is_flag=True, help="All dead letters of the tenant."),
        click.option("--reason", "reasons", multiple=True),
        click.option("--type", "job_types", multiple=True),
        click.argument("job_ids", nargs=-1),
    ):
        function = option(function)
    return function


@dead.command()
@choosing
@click.option("--dry-run", is_flag=True, help="Only count; change nothing.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def redrive(cli: Cli, /, dry_run: bool, yes: bool, **chosen_by: Any) -> None:
    """Queue dead letters again: by id, by type or reason, or all."""
    selection = _selection(**chosen_by)
    async with cli.backend() as backend:
        chosen = await selection.find(backend)
        if not (chosen or dry_run):
            await backend.redrive_dead([], selection.chosen_by)  # that it was asked for is audited
        # What is named and can be undone needs no question.
        if not await _confirmed(
            cli, "redrive", chosen, dry_run=dry_run, yes=yes or selection.by_id
        ):
            return
        redriven = 0
        for start in range(0, len(chosen), _PAGE):
            page = chosen[start : start + _PAGE]
            redriven += await backend.redrive_dead(page, selection.chosen_by)
            say(f"{min(start + _PAGE, len(chosen))} of {len(chosen)}")
        failed = len(chosen) - redriven
        cli.output.one({"redriven": redriven, "failed": failed})
        if failed:
            say("`gantline job redrive ID` says why one of them could not be queued again.")


@dead.command()
@choosing
@click.option("--dry-run", is_flag=True, help="Only count; change nothing.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def discard(cli: Cli, /, dry_run: bool, yes: bool, **chosen_by: Any) -> None:
    """Delete dead letters and their history."""
    selection = _selection(**chosen_by)
    async with cli.backend() as backend:
        chosen = await selection.find(backend)
        if not await _confirmed(cli, "discard", chosen, dry_run=dry_run, yes=yes):
            return
        answers = await backend.delete_each(chosen)
        discarded = sum(isinstance(answer, UUID) for answer in answers)
        cli.output.one({"discarded": discarded, "failed": len(chosen) - discarded})


class _Selection(NamedTuple):
    """Which dead letters are meant: those named, else the first of those that a filter finds."""

    job_ids: tuple[UUID, ...]
    job_types: tuple[str, ...]
    reasons: tuple[str, ...]
    limit: int

    @property
    def by_id(self) -> bool:
        return bool(self.job_ids)

    @property
    def chosen_by(self) -> dict[str, Any]:
        """How they were chosen, for the audit."""
        if self.by_id:
            return {"jobIds": len(self.job_ids)}
        named = {"jobTypes": sorted(self.job_types), "reasons": sorted(self.reasons)}
        return {name: value for name, value in named.items() if value} or {"all": True}

    async def find(self, backend: Backend) -> list[UUID]:
        if self.by_id:
            return [await _dead(backend, job_id) for job_id in self.job_ids]
        found = await backend.find_dead(
            self.limit, self.reasons, job_type=self.job_types, internal=True
        )
        return [job.job_id for job in found.jobs]


async def _dead(backend: Backend, job_id: UUID) -> UUID:
    status = (await backend.status(job_id)).status
    if status not in DEAD:
        is_cancelled = status is JobStatus.CANCELLED
        advice = "`gantline job redrive` queues it again." if is_cancelled else ""
        raise IllegalTransition(f"Job {job_id} is {status}, not a dead letter.", next_step=advice)
    return job_id


def _selection(
    job_ids: tuple[str, ...],
    job_types: tuple[str, ...],
    reasons: tuple[str, ...],
    everything: bool,
    limit: int,
) -> _Selection:
    """Read what was chosen; raise InvalidInput for nothing and for too much."""
    has_filter = bool(job_types or reasons or everything)
    if job_ids and has_filter:
        raise InvalidInput("Ids and a filter are given.", next_step="Use one or the other.")
    if not (job_ids or has_filter):
        raise InvalidInput("Nothing is chosen.", next_step="Name ids, --type, --reason or --all.")
    ids = tuple(dict.fromkeys(parse_id(one) for one in job_ids))
    return _Selection(ids, job_types, reasons, limit)


async def _confirmed(cli: Cli, verb: str, chosen: list[UUID], *, dry_run: bool, yes: bool) -> bool:
    """Say how many are meant; go on if confirmed, by flag or by a person."""
    if dry_run or not chosen:
        cli.output.one({"matching": len(chosen)})
        return False
    if not yes:
        await confirm(f"{verb} {counted(len(chosen), 'dead letter')}")
    return True
