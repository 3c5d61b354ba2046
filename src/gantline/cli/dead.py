"""gantline dead: the dead letters, jobs that failed or were poisoned."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import click

from gantline.cli.backend import Backend
from gantline.cli.command import command, confirm
from gantline.cli.jobs import get, show_jobs
from gantline.cli.options import parse_id
from gantline.cli.session import Cli, pass_cli
from gantline.cli.table import Columns
from gantline.cli.talk import counted, say
from gantline.contract.errors import IllegalTransition, InvalidInput
from gantline.contract.query import JobFilter
from gantline.contract.status import DEAD, JobStatus

COLUMNS: Final = Columns(
    ("jobId", "status", "age", "jobType", "reason", "why"),
    prose="why",
    expendable=("reason", "age"),
)
_PAGE = 200


@click.group()
def dead() -> None:
    """List, redrive and delete dead letters."""


def _filtered(job_types: tuple[str, ...], reasons: tuple[str, ...]) -> JobFilter:
    return JobFilter(
        statuses=DEAD,
        job_types=frozenset(job_types),
        reasons=frozenset(reasons),
    )


@dead.command(name="list")
@click.option("--type", "job_types", multiple=True)
@click.option("--reason", "reasons", multiple=True, help="Such as AttemptsExhausted.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@pass_cli
@command
async def list_(cli: Cli, job_types: tuple[str, ...], reasons: tuple[str, ...], limit: int) -> None:
    """List dead letters, newest first."""
    await show_jobs(cli, _filtered(job_types, reasons), limit, COLUMNS)


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
@pass_cli
@command
async def redrive(cli: Cli, /, dry_run: bool, yes: bool, **chosen_by: Any) -> None:
    """Queue dead letters again: by id, by type or reason, or all."""
    selection = _selection(**chosen_by)
    async with cli.backend() as backend:
        chosen = await selection.find(backend)
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
        cli.output.one({"redriven": redriven, "failed": len(chosen) - redriven})


@dead.command()
@choosing
@click.option("--dry-run", is_flag=True, help="Only count; change nothing.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@pass_cli
@command
async def discard(cli: Cli, /, dry_run: bool, yes: bool, **chosen_by: Any) -> None:
    """Delete dead letters and their history."""
    selection = _selection(**chosen_by)
    async with cli.backend() as backend:
        chosen = await selection.find(backend)
        if not await _confirmed(cli, "discard", chosen, dry_run=dry_run, yes=yes):
            return
        discarded = await backend.delete_each(chosen)
        cli.output.one({"discarded": discarded, "failed": len(chosen) - discarded})


class _Selection(NamedTuple):
    """Which dead letters are meant: those named, else the first of those that a filter finds."""

    job_ids: tuple[UUID, ...]
    filter: JobFilter
    limit: int

    @property
    def by_id(self) -> bool:
        return bool(self.job_ids)

    @property
    def chosen_by(self) -> dict[str, Any]:
        """How they were chosen, for the audit."""
        if self.by_id:
            return {"jobIds": len(self.job_ids)}
        types, reasons = sorted(self.filter.job_types), sorted(self.filter.reasons)
        named = {"jobTypes": types, "reasons": reasons}
        return {name: value for name, value in named.items() if value} or {"all": True}

    async def find(self, backend: Backend) -> list[UUID]:
        if self.by_id:
            return [await _dead(backend, job_id) for job_id in self.job_ids]
        found = await backend.find(self.filter, self.limit)
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
    return _Selection(ids, _filtered(job_types, reasons), limit)


async def _confirmed(cli: Cli, verb: str, chosen: list[UUID], *, dry_run: bool, yes: bool) -> bool:
    """Say how many are meant; go on if confirmed, by flag or by a person."""
    if dry_run or not chosen:
        cli.output.one({"matching": len(chosen)})
        return False
    if not yes:
        await confirm(f"{verb} {counted(len(chosen), 'dead letter')}")
    return True
