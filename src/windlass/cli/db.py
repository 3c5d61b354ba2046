"""windlass db: the schema of the store."""

import sys
from typing import Any

import click

from windlass.cli.output import say
from windlass.cli.session import NOT_FOUND, Cli, command, pass_cli
from windlass.contract.errors import StoreMisconfigured
from windlass.stores.migrations import load_migrations
from windlass.stores.sqlite.schema import PACKAGE, applied_to


@click.group()
def db() -> None:
    """Look after the schema of the store."""


@db.command()
@pass_cli
@command
async def migrate(cli: Cli) -> None:
    """Bring the store to the schema of this version."""
    async with cli.opened():
        say("The store is up to date.")


@db.command()
@pass_cli
@command
async def status(cli: Cli) -> None:
    """Show which migrations there are, and which the store has had."""
    store = cli.store()
    file = store.capabilities.local_file
    if file is None:
        raise StoreMisconfigured("This store has no schema.", next_step="A SQL store has one.")
    had = applied_to(file)
    known = load_migrations(PACKAGE)
    rows = [_row(step.number, step.name, step.checksum, step.number in had) for step in known]
    newer = [step for number, step in had.items() if number > len(known)]
    rows += [_row(step.number, step.name, step.checksum, applied=True) for step in newer]
    cli.output.rows(rows, columns=("number", "name", "applied", "checksum"))


def _row(number: int, name: str, checksum: str, applied: bool) -> dict[str, Any]:
    return {"number": number, "name": name, "applied": applied, "checksum": checksum[:12]}


@db.command()
@click.argument("number", type=int, required=False)
def sql(number: int | None) -> None:
    """Print the SQL of the migrations, for reading or for a DBA."""
    steps = [step for step in load_migrations(PACKAGE) if number in (None, step.number)]
    if not steps:
        say(f"Error: There is no migration {number}.")
        sys.exit(NOT_FOUND)
    for step in steps:
        click.echo(f"-- {step.number:04} {step.name}\n{step.sql}")
