"""gantline db: the schema of the store."""

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from gantline.cli.command import NOT_FOUND, command
from gantline.cli.session import Cli
from gantline.cli.table import Columns
from gantline.cli.talk import say, write
from gantline.stores.migrations import AppliedMigration, Migration, plan

_COLUMNS: Final = Columns(("number", "name", "applied", "checksum"), expendable=("checksum",))


@click.group()
def db() -> None:
    """Manage the schema of the store."""


@db.command()
@click.option(
    "--plan", "only_plan", is_flag=True, help="Show what would be applied; change nothing."
)
@command
async def migrate(cli: Cli, only_plan: bool) -> None:
    """Migrate the store to the schema of this version."""
    async with cli.migrator() as migrator:
        # Planned first in any case: it refuses what this version must not touch.
        applied = await migrator.applied()
        steps = plan(migrator.known, applied)
        if not only_plan:
            steps = await migrator.migrate()
    rows = [_row(step, applied=not only_plan) for step in steps]
    cli.output.rows(rows, _COLUMNS, empty=_up_to_date([*migrator.known, *applied]))
    if steps and not only_plan:
        say(f"Applied {len(steps)}; the store is now at {steps[-1].number} ({steps[-1].name}).")


def _up_to_date(steps: Sequence[Migration | AppliedMigration]) -> str:
    """The database may be ahead of this version, where both can go on beside each other."""
    last = max(steps, key=lambda step: step.number)
    return f"Up to date at {last.number} ({last.name}): nothing to apply."


@db.command()
@command
async def status(cli: Cli) -> None:
    """Show all migrations, and which of them were applied."""
    async with cli.migrator() as migrator:
        applied = await migrator.applied()
    known = migrator.known
    had = {step.number for step in applied}
    rows = [_row(step, step.number in had) for step in known]
    rows += [_row(step, applied=True) for step in applied if step.number > len(known)]
    cli.output.rows(rows, _COLUMNS, empty="There are no migrations.")


def _row(step: Migration | AppliedMigration, applied: bool) -> dict[str, Any]:
    return {
        "number": step.number,
        "name": step.name,
        "applied": applied,
        "checksum": step.checksum[:12],
    }


@db.command()
@click.argument("number", type=int, required=False)
@click.option("--all", "everything", is_flag=True, help="Include migrations that were applied.")
@command
async def sql(cli: Cli, number: int | None, everything: bool) -> None:
    """Print the SQL of pending migrations, or of one migration, for a DBA to run."""
    async with cli.migrator() as migrator:
        known = migrator.known
        steps = [step for step in known if number in (None, step.number)]
        if number is None and not everything:
            steps = plan(known, await migrator.applied())
    if number is not None and not steps:
        say(f"Error: There is no migration {number}. `gantline db status` lists them.")
        sys.exit(NOT_FOUND)
    if not steps:
        say(f"{_up_to_date(known)} --all prints what was applied.")
        return
    write(migrator.script(steps), nl=False)
