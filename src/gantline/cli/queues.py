"""gantline queue: looking at queues, pausing and resuming them."""

from typing import Final

import click

from gantline.cli.names import check_name, say_if_unseen
from gantline.cli.session import Cli, command, pass_cli
from gantline.cli.table import Columns

COUNTED: Final = (
    "queued",
    "scheduled",
    "running",
    "completed",
    "failed",
    "poisoned",
    "cancelled",
)
RARELY_ASKED: Final = ("cancelled", "completed", "scheduled")
_COLUMNS: Final = Columns(("queue", *COUNTED, "paused"), expendable=RARELY_ASKED)


@click.group()
def queue() -> None:
    """Look at queues, pause and resume them."""


@queue.command(name="list")
@pass_cli
@command
async def list_(cli: Cli) -> None:
    """List queues with the tenant's jobs in them. Paused is a queue for all tenants."""
    async with cli.keeper() as keeper:
        rows = [
            {"queue": one.queue, **{name: getattr(one, name) for name in COUNTED}}
            | {"paused": one.paused}
            for one in await keeper.queues()
        ]
        whose = keeper.whose
    empty = f"There are no jobs of {whose} in any queue, and none is paused."
    cli.output.rows(rows, _COLUMNS, empty=empty)


@queue.command()
@click.argument("name")
@pass_cli
@command
async def pause(cli: Cli, name: str) -> None:
    """Claim nothing more from a queue; what runs goes on."""
    await _switch(cli, name, paused=True)


@queue.command()
@click.argument("name")
@pass_cli
@command
async def resume(cli: Cli, name: str) -> None:
    """Claim from a queue again."""
    await _switch(cli, name, paused=False)


async def _switch(cli: Cli, name: str, *, paused: bool) -> None:
    check_name("queue", name)
    async with cli.keeper() as keeper:
        state = await keeper.pause_queue(name, paused=paused)
        known = await keeper.known("queue")
    cli.output.one({"queue": state.queue, "paused": state.paused, "seen": name in known.seen})
    say_if_unseen("queue", name, known)
