"""gantline consumer: looking at durable consumers of events, and forgetting retired ones."""

from typing import Final

import click
import msgspec

from gantline.auth.action import Action
from gantline.cli.command import command, confirm
from gantline.cli.session import Cli
from gantline.cli.table import Columns
from gantline.cli.talk import counted
from gantline.contract.errors import GantlineError, NotThere
from gantline.contract.store import JobStore
from gantline.manager.cursors import ConsumerStatus, consumers, delete_cursor

_COLUMNS: Final = Columns(
    ("name", "position", "lag", "unreadSince", "runBy", "movedAt", "failedAt", "lastError"),
    prose="lastError",
    expendable=("position", "movedAt", "failedAt"),
)


@click.group()
def consumer() -> None:
    """List durable consumers of events, and delete retired ones."""


@consumer.command(name="list")
@command
async def list_(cli: Cli) -> None:
    """List consumers with their position, their lag and their last error."""
    async with cli.opened() as store:
        rows = [msgspec.to_builtins(one) for one in await consumers(store)]
    cli.output.rows(rows, _COLUMNS, empty="No consumer has ever read events here.")


@consumer.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def delete(cli: Cli, name: str, yes: bool) -> None:
    """Delete a retired consumer, so that it no longer holds back retention.

    If it ever comes back, it begins anew. What a consumer has put off is dropped, also while a
    worker runs the consumer.
    """
    async with cli.opened() as store:
        found = await _retired(store, name)
        if not yes:
            await confirm(
                f"forget the consumer {name!r}, which has {counted(found.lag, 'event')} to read"
            )
        await _retired(store, name)
        await cli.audit(store).done(
            "deleteConsumer", Action.MANAGE_QUEUES, f"consumer:{name}", {"lag": found.lag}
        )
        await delete_cursor(store, name)
    cli.output.one(msgspec.to_builtins(found))


async def _retired(store: JobStore, name: str) -> ConsumerStatus:
    for one in await consumers(store):
        if one.name == name and one.run_by and not one.part_of:
            raise GantlineError(
                f"The consumer {name!r} is run by {counted(one.run_by, 'live worker')}.",
                next_step="Take it out of the application and restart the workers first.",
            )
        if one.name == name:
            return one
    raise NotThere(f"There is no consumer {name!r}.", next_step="Look at gantline consumer list.")
