"""windlass dead: the dead letters, jobs that failed or were poisoned."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import click

from windlass.cli.jobs import get, parse_id, show_jobs
from windlass.cli.output import say
from windlass.cli.session import FAILED, Cli, command, pass_cli
from windlass.contract.errors import (
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    WindlassError,
)
from windlass.contract.query import Cursor, JobFilter
from windlass.contract.snapshot import JobSnapshot
from windlass.contract.status import DEAD
from windlass.manager.manager import JobManager

COLUMNS = ("jobId", "status", "age", "jobType", "reason", "errorCode", "errorMessage")
_PAGE = 200


@click.group()
def dead() -> None:
    """Look at dead letters, run them again or throw them away."""


def _filtered(cli: Cli, job_types: tuple[str, ...], reasons: tuple[str, ...]) -> JobFilter:
    return JobFilter(
        tenant_id=cli.tenant,
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
    await show_jobs(cli, _filtered(cli, job_types, reasons), limit, COLUMNS)


dead.add_command(get, name="show")

F = TypeVar("F", bound=Callable[..., Any])


def choosing(function: F) -> F:
    """The options by which dead letters are chosen; what they say goes to `_choose`."""
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
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_cli
@command
async def redrive(cli: Cli, /, dry_run: bool, yes: bool, **chosen_by: Any) -> None:
    """Queue dead letters again: by id, by type or reason, or all."""
    async with cli.opened() as (_, manager):
        chosen = await _choose(cli, manager, **chosen_by)
        if not await _confirmed(
            cli, "redrive", chosen, dry_run=dry_run, yes=yes, by_id=bool(chosen_by["job_ids"])
        ):
            return
        counted: Counter[str] = Counter()
        for start in range(0, len(chosen), _PAGE):
            ids = [job.job.job_id for job in chosen[start : start + _PAGE]]
            for answer in await manager.redrive(ids, tenant_id=cli.tenant, actor=cli.actor):
                counted["failed" if isinstance(answer, WindlassError) else "redriven"] += 1
            say(f"{min(start + _PAGE, len(chosen))} of {len(chosen)}")
        cli.output.one({"redriven": counted["redriven"], "failed": counted["failed"]})


@dead.command()
@choosing
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_cli
@command
async def discard(cli: Cli, /, dry_run: bool, yes: bool, **chosen_by: Any) -> None:
    """Delete dead letters with all that is known of them."""
    async with cli.opened() as (_, manager):
        chosen = await _choose(cli, manager, **chosen_by)
        if not await _confirmed(cli, "discard", chosen, dry_run=dry_run, yes=yes):
            return
        ids = [job.job.job_id for job in chosen]
        answers = await manager.delete(ids, tenant_id=cli.tenant)
        failed = sum(isinstance(answer, WindlassError) for answer in answers)
        cli.output.one({"discarded": len(ids) - failed, "failed": failed})


async def _choose(
    cli: Cli,
    manager: JobManager,
    job_ids: tuple[str, ...],
    job_types: tuple[str, ...],
    reasons: tuple[str, ...],
    everything: bool,
    limit: int,
) -> list[JobSnapshot]:
    if job_ids:
        if job_types or reasons or everything:
            raise InvalidInput("Ids and a filter are given.", next_step="Use one or the other.")
        return await _named(cli, manager, job_ids)
    if not (job_types or reasons or everything):
        raise InvalidInput("Nothing is chosen.", next_step="Name ids, --type, --reason or --all.")
    return await _all_pages(manager, _filtered(cli, job_types, reasons), limit)


async def _named(cli: Cli, manager: JobManager, job_ids: tuple[str, ...]) -> list[JobSnapshot]:
    ids = list(dict.fromkeys(parse_id(one) for one in job_ids))
    chosen = []
    for job_id, job in zip(ids, await manager.get(ids, tenant_id=cli.tenant), strict=True):
        if job is None:
            raise JobNotFound(job_id)
        if job.status not in DEAD:
            raise IllegalTransition(f"Job {job_id} is {job.status}, not a dead letter.")
        chosen.append(job)
    return chosen


async def _all_pages(manager: JobManager, wanted: JobFilter, limit: int) -> list[JobSnapshot]:
    chosen: list[JobSnapshot] = []
    after: Cursor | None = None
    while len(chosen) < limit:
        page = await manager.find(wanted, limit=min(_PAGE, limit - len(chosen)), after=after)
        chosen += page.items
        if page.next is None:
            break
        after = page.next
    return chosen


async def _confirmed(
    cli: Cli, verb: str, chosen: list[JobSnapshot], *, dry_run: bool, yes: bool, by_id: bool = False
) -> bool:
    """Say how many are meant; go on if told to, by flag or by a person."""
    count = f"{len(chosen)} dead letter{'' if len(chosen) == 1 else 's'}"
    if dry_run or not chosen:
        cli.output.one({"matching": len(chosen)})
        return False
    if yes or by_id:
        return True
    if not sys.stdin.isatty():
        raise InvalidInput(f"This would {verb} {count}.", next_step="Confirm with --yes.")
    if not await _ask(f"{verb} {count}?"):
        sys.exit(FAILED)
    return True


async def _ask(question: str) -> bool:
    """Wait for the answer in the loop: a Ctrl-C that comes just before `input` blocks is lost."""
    loop, line = asyncio.get_running_loop(), asyncio.Event()
    click.echo(f"{question} [y/N]: ", err=True, nl=False)
    loop.add_reader(sys.stdin.fileno(), line.set)
    try:
        await line.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline().strip().lower() in ("y", "yes")
