"""windlass queue: looking at queues, pausing and resuming them."""

from typing import Any, Final

import click

from windlass.cli.names import check_name, say_if_unseen
from windlass.cli.session import Cli, command, pass_cli
from windlass.cli.table import Columns
from windlass.contract.query import LaneCounts
from windlass.manager.sessions import live_sessions
from windlass.manager.switches import Switches

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
    async with cli.opened() as (store, _):
        switches = Switches(store)
        await switches.refresh()
        rows = _counted_by_queue(await store.counts(tenant_id=cli.tenant))
        for name in switches.paused_queues:
            rows.setdefault(name, _empty(name))
        for row in rows.values():
            row["paused"] = row["queue"] in switches.paused_queues
        empty = f"The tenant {cli.tenant!r} has no jobs in any queue, and none is paused."
        cli.output.rows(list(rows.values()), _COLUMNS, empty=empty)


def _counted_by_queue(lanes: list[LaneCounts]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for lane in lanes:
        row = rows.setdefault(lane.queue, _empty(lane.queue))
        for name in COUNTED:
            row[name] += getattr(lane, name)
    return rows


def _empty(queue: str) -> dict[str, Any]:
    return {"queue": queue, **dict.fromkeys(COUNTED, 0)}


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
    async with cli.opened() as (store, _):
        await Switches(store).pause_queue(name, paused=paused)
        await cli.hint(store)
        seen = {lane.queue for lane in await store.counts(tenant_id=None)}
        served = {name for session in await live_sessions(store) for name in session.queues}
        cli.output.one({"queue": name, "paused": paused, "seen": name in seen})
        say_if_unseen("queue", name, seen=seen, served=served)
