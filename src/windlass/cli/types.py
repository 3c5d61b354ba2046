"""windlass type: looking at job types, pausing them and switching them off."""

from collections import Counter
from typing import Final

import click

from windlass.cli.confirm import confirm
from windlass.cli.names import check_name, say_if_unseen
from windlass.cli.session import Cli, command, pass_cli
from windlass.cli.table import Columns
from windlass.contract.store import JobStore
from windlass.manager.sessions import live_sessions
from windlass.manager.switches import Switches

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
    async with cli.opened() as (store, _):
        switches = Switches(store)
        await switches.refresh()
        queued: Counter[str] = Counter()
        running: Counter[str] = Counter()
        for lane in await store.counts(tenant_id=cli.tenant):
            queued[lane.job_type] += lane.queued
            running[lane.job_type] += lane.running
        sessions = await live_sessions(store)
        workers = Counter(kind for session in sessions for kind in session.job_types)
        names = set(queued) | set(workers) | switches.paused_types | switches.disabled_types
        rows = [
            {
                "jobType": name,
                "queued": queued[name],
                "running": running[name],
                "workers": workers[name],
                "paused": name in switches.paused_types,
                "disabled": name in switches.disabled_types,
            }
            for name in sorted(names)
        ]
        cli.output.rows(rows, _COLUMNS, empty="No type is known yet: no job, no worker, no switch.")


@type_.command()
@click.argument("name")
@pass_cli
@command
async def pause(cli: Cli, name: str) -> None:
    """Claim no more jobs of a type; what runs goes on."""
    check_name("type", name)
    async with cli.opened() as (store, _):
        await Switches(store).pause_type(name)
        await _report(cli, store, name)


@type_.command()
@click.argument("name")
@pass_cli
@command
async def resume(cli: Cli, name: str) -> None:
    """Claim jobs of a type again."""
    check_name("type", name)
    async with cli.opened() as (store, _):
        await Switches(store).pause_type(name, paused=False)
        await _report(cli, store, name)


@type_.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_cli
@command
async def disable(cli: Cli, name: str, yes: bool) -> None:
    """Refuse new jobs of a type, and fail those that wait when their turn comes."""
    check_name("type", name)
    async with cli.opened() as (store, _):
        lanes = await store.counts(tenant_id=None)
        waiting = sum(lane.queued for lane in lanes if lane.job_type == name)
        if not yes:
            count = f"{waiting} waiting job{'' if waiting == 1 else 's'}"
            await confirm(f"disable the type {name} and let {count} of it fail")
        await Switches(store).disable_type(name)
        await _report(cli, store, name)


@type_.command()
@click.argument("name")
@pass_cli
@command
async def enable(cli: Cli, name: str) -> None:
    """Accept and run jobs of a type again; those that failed can be redriven."""
    check_name("type", name)
    async with cli.opened() as (store, _):
        await Switches(store).disable_type(name, disabled=False)
        await _report(cli, store, name)


async def _report(cli: Cli, store: JobStore, name: str) -> None:
    await cli.hint(store)
    switches = Switches(store)
    await switches.refresh()
    seen = {lane.job_type for lane in await store.counts(tenant_id=None)}
    served = {kind for session in await live_sessions(store) for kind in session.job_types}
    cli.output.one(
        {
            "jobType": name,
            "paused": name in switches.paused_types,
            "disabled": name in switches.disabled_types,
            "seen": name in seen,
        }
    )
    say_if_unseen("type", name, seen=seen, served=served)
