"""gantline store: moving all jobs to another store."""

from datetime import timedelta

import click
import msgspec

from gantline.auth.action import Action
from gantline.cli.command import command, confirm
from gantline.cli.options import Seconds
from gantline.cli.session import Cli
from gantline.cli.store_choice import StoreChoice, store_label
from gantline.cli.talk import ProgressLine, say
from gantline.contract.errors import InvalidInput
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint
from gantline.moving.closing import StoreNames, reopen
from gantline.moving.store_copy import StoreCopy


@click.group()
def store() -> None:
    """Move all jobs to another store."""


@store.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--wait",
    type=Seconds(),
    default=60.0,
    show_default=True,
    help="How long to wait for running jobs.",
)
@click.option(
    "--force", is_flag=True, help="After --wait, take running jobs away from their workers."
)
@click.option("--replace", is_flag=True, help="Empty the target first.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def copy(
    cli: Cli, source: str, target: str, wait: float, force: bool, replace: bool, yes: bool
) -> None:
    """Copy a store to another one, and close the source: the jobs continue there.

    Both are store URLs. Nothing can be submitted or claimed meanwhile. It may be interrupted, which
    opens the source again, and run once more.
    """
    if replace and not yes:
        await confirm("remove everything that the target holds")
    line = ProgressLine()
    choices = StoreChoice(source, "FROM"), StoreChoice(target, "TO")
    async with (
        cli.opened(choice=choices[0]) as here,
        cli.opened(choice=choices[1], create=True) as there,
    ):
        for one, choice in zip((here, there), choices, strict=True):
            _refuse_memory(one, choice)
        names = StoreNames(store_label(here, choices[0]), store_label(there, choices[1]))
        details = {"to": names.target, "force": force, "replace": replace}
        await cli.audit(here).done("copyStore", Action.MANAGE_QUEUES, "store", details)
        copying = StoreCopy(
            here,
            there,
            names,
            actor=cli.actor,
            on_progress=line.report,
            notify_switched=lambda one: cli.hint(one, Hint.SWITCHED),
        )
        try:
            copied = await copying.run(wait=timedelta(seconds=wait), force=force, replace=replace)
        finally:
            line.end()
    cli.output.one(msgspec.to_builtins(copied))
    say(
        f"{names.target} holds the same. {names.source} stays closed: point the application and "
        f"its workers to the new store."
    )


@store.command(name="reopen")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def reopen_(cli: Cli, yes: bool) -> None:
    """Reopen a store that a copy has left closed.

    Where its jobs were moved, they would run here as well.
    """
    async with cli.opened() as found:
        if not yes:
            await confirm(f"open {store_label(found, cli.choice)}, whatever runs elsewhere")
        await cli.audit(found).done("reopenStore", Action.MANAGE_QUEUES, "store")
        closed = await reopen(found)
        await cli.hint(found, Hint.SWITCHED)
    if closed is None:
        say("The store was open.")
    else:
        say(f"The store is open. It was closed by {closed.by}, for a copy to {closed.copied_to}.")


def _refuse_memory(found: JobStore, choice: StoreChoice) -> None:
    if found.capabilities.writers == "process":
        raise InvalidInput(
            f"{choice.url} lives in one process, so it holds nothing here.",
            next_step="Name stores that several processes can open.",
        )
