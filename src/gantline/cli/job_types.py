"""gantline type: looking at job types, pausing them and switching them off."""

from typing import Final

import click
import msgspec

from gantline.api.documents import JobTypeState
from gantline.cli.backend import Backend
from gantline.cli.command import command, confirm
from gantline.cli.options import check_name
from gantline.cli.session import Cli, all_tenants_option
from gantline.cli.table import Columns
from gantline.cli.talk import counted
from gantline.cli.type_stats import stats

_COLUMNS: Final = Columns(
    ("jobType", "queued", "running", "workers", "paused", "disabled"), expendable=("running",)
)


@click.group(name="type")
def type_() -> None:
    """List, pause and disable job types."""


type_.add_command(stats)


@type_.command(name="list")
@all_tenants_option
@command
async def list_(cli: Cli) -> None:
    """List the types of the tenant's jobs. Switches and workers apply to all tenants."""
    async with cli.backend() as backend:
        rows = [msgspec.to_builtins(one) for one in await backend.types()]
    cli.output.rows(rows, _COLUMNS, empty="No type is known yet: no job, no worker, no switch.")


@type_.command()
@click.argument("name")
@command
async def pause(cli: Cli, name: str) -> None:
    """Stop claiming jobs of a type; running jobs continue."""
    check_name("type", name)
    async with cli.backend() as backend:
        await _report(cli, backend, await backend.pause_type(name))


@type_.command()
@click.argument("name")
@command
async def resume(cli: Cli, name: str) -> None:
    """Start claiming jobs of a type again."""
    check_name("type", name)
    async with cli.backend() as backend:
        await _report(cli, backend, await backend.resume_type(name))


@type_.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def disable(cli: Cli, name: str, yes: bool) -> None:
    """Refuse new jobs of a type, and fail waiting ones when their turn comes."""
    check_name("type", name)
    async with cli.backend() as backend:
        if not yes:
            waiting = counted(await backend.waiting(name), "waiting job")
            await confirm(f"disable the type {name} and let {waiting} of it fail")
        await _report(cli, backend, await backend.disable_type(name))


@type_.command()
@click.argument("name")
@command
async def enable(cli: Cli, name: str) -> None:
    """Accept and run jobs of a type again; redrive those that failed."""
    check_name("type", name)
    async with cli.backend() as backend:
        await _report(cli, backend, await backend.enable_type(name))


async def _report(cli: Cli, backend: Backend, state: JobTypeState) -> None:
    known = await backend.known("type")
    name = state.job_type
    cli.output.one(
        {
            "jobType": name,
            "paused": state.paused,
            "disabled": state.disabled,
            "seen": name in known.seen,
        }
    )
    known.say_if_unseen("type", name)
