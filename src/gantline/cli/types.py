"""gantline type: looking at job types, pausing them and switching them off."""

from typing import Final

import click

from gantline.api.documents import JobTypeState
from gantline.cli.confirm import confirm
from gantline.cli.keeper import Keeper
from gantline.cli.names import check_name, say_if_unseen
from gantline.cli.session import Cli, command, pass_cli
from gantline.cli.table import Columns

_COLUMNS: Final = Columns(
    ("jobType", "queued", "running", "workers", "paused", "disabled"), expendable=("running",)
)


@click.group(name="type")
def type_() -> None:
    """Look at job types, pause them or switch them off."""


@type_.command(name="list")
@pass_cli
@command
async def list_(cli: Cli) -> None:
    """List the types of the tenant's jobs. Switches and workers are for all tenants."""
    async with cli.keeper() as keeper:
        rows = [
            {
                "jobType": one.job_type,
                "queued": one.queued,
                "running": one.running,
                "workers": one.workers,
                "paused": one.paused,
                "disabled": one.disabled,
            }
            for one in await keeper.types()
        ]
    cli.output.rows(rows, _COLUMNS, empty="No type is known yet: no job, no worker, no switch.")


@type_.command()
@click.argument("name")
@pass_cli
@command
async def pause(cli: Cli, name: str) -> None:
    """Claim no more jobs of a type; what runs goes on."""
    check_name("type", name)
    async with cli.keeper() as keeper:
        await _report(cli, keeper, await keeper.pause_type(name, paused=True))


@type_.command()
@click.argument("name")
@pass_cli
@command
async def resume(cli: Cli, name: str) -> None:
    """Claim jobs of a type again."""
    check_name("type", name)
    async with cli.keeper() as keeper:
        await _report(cli, keeper, await keeper.pause_type(name, paused=False))


@type_.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_cli
@command
async def disable(cli: Cli, name: str, yes: bool) -> None:
    """Refuse new jobs of a type, and fail those that wait when their turn comes."""
    check_name("type", name)
    async with cli.keeper() as keeper:
        if not yes:
            waiting = await keeper.waiting(name)
            count = f"{waiting} waiting job{'' if waiting == 1 else 's'}"
            await confirm(f"disable the type {name} and let {count} of it fail")
        await _report(cli, keeper, await keeper.disable_type(name, disabled=True))


@type_.command()
@click.argument("name")
@pass_cli
@command
async def enable(cli: Cli, name: str) -> None:
    """Accept and run jobs of a type again; those that failed can be redriven."""
    check_name("type", name)
    async with cli.keeper() as keeper:
        await _report(cli, keeper, await keeper.disable_type(name, disabled=False))


async def _report(cli: Cli, keeper: Keeper, state: JobTypeState) -> None:
    known = await keeper.known("type")
    name = state.job_type
    cli.output.one(
        {
            "jobType": name,
            "paused": state.paused,
            "disabled": state.disabled,
            "seen": name in known.seen,
        }
    )
    say_if_unseen("type", name, known)
