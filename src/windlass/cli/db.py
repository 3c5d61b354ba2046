"""windlass db: the schema of the store."""

import sys
from typing import Any

import click

from windlass.cli.output import say
from windlass.cli.session import NOT_FOUND, Cli, command, pass_cli
from windlass.stores.migrations import migrator_of, plan

_COLUMNS = ("number", "name", "applied", "checksum")


@click.group()
def db() -> None:
    """Look after the schema of the store."""


@db.command()
@click.option("--plan", "only_plan", is_flag=True, help="Say what would be applied; do nothing.")
@pass_cli
@command
async def migrate(cli: Cli, only_plan: bool) -> None:
    """Bring the store to the schema of this version."""
    migrator = migrator_of(cli.store())
    missing = plan(migrator.known, await migrator.applied())
    if only_plan:
        rows = [_row(step.number, step.name, step.checksum, applied=False) for step in missing]
        cli.output.rows(rows, columns=_COLUMNS)
        return
    await migrator.migrate()
    say("The store is up to date.")


@db.command()
@pass_cli
@command
async def status(cli: Cli) -> None:
    """Show which migrations there are, and which the store has had."""
    migrator = migrator_of(cli.store())
    known = migrator.known
    had = {step.number: step for step in await migrator.applied()}
    rows = [_row(step.number, step.name, step.checksum, step.number in had) for step in known]
    newer = [step for number, step in had.items() if number > len(known)]
    rows += [_row(step.number, step.name, step.checksum, applied=True) for step in newer]
    cli.output.rows(rows, columns=_COLUMNS)


def _row(number: int, name: str, checksum: str, applied: bool) -> dict[str, Any]:
    return {"number": number, "name": name, "applied": applied, "checksum": checksum[:12]}


@db.command()
@click.argument("number", type=int, required=False)
@pass_cli
@command
async def sql(cli: Cli, number: int | None) -> None:
    """Print the SQL of the migrations, for reading or for a DBA."""
    migrator = migrator_of(cli.store())
    steps = [step for step in migrator.known if number in (None, step.number)]
    if not steps:
        say(f"Error: There is no migration {number}.")
        sys.exit(NOT_FOUND)
    click.echo(migrator.script(steps), nl=False)
