"""windlass queue, stats, sessions, doctor and config: looking after a running system."""

import platform
import sqlite3
import sys
from typing import Any

import click
import msgspec

from windlass.cli.output import say
from windlass.cli.session import Cli, command, pass_cli
from windlass.cli.settings import SETTINGS
from windlass.contract.errors import InvalidInput, WindlassError
from windlass.contract.store import JobStore
from windlass.contract.text import name_problem
from windlass.contract.version import __version__
from windlass.manager.sessions import live_sessions
from windlass.manager.switches import Switches

COUNTED = ("queued", "scheduled", "running", "completed", "failed", "poisoned", "cancelled")


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
        queues: dict[str, dict[str, Any]] = {}
        for lane in await store.counts(tenant_id=cli.tenant):
            row = queues.setdefault(lane.queue, {"queue": lane.queue, **dict.fromkeys(COUNTED, 0)})
            for name in COUNTED:
                row[name] += getattr(lane, name)
        for name in switches.paused_queues:
            queues.setdefault(name, {"queue": name, **dict.fromkeys(COUNTED, 0)})
        for row in queues.values():
            row["paused"] = row["queue"] in switches.paused_queues
        cli.output.rows(list(queues.values()), columns=("queue", *COUNTED, "paused"))


@queue.command()
@click.argument("name")
@pass_cli
@command
async def pause(cli: Cli, name: str) -> None:
    """Claim nothing more from a queue; what runs goes on."""
    await _switch_queue(cli, name, paused=True)


@queue.command()
@click.argument("name")
@pass_cli
@command
async def resume(cli: Cli, name: str) -> None:
    """Claim from a queue again."""
    await _switch_queue(cli, name, paused=False)


async def _switch_queue(cli: Cli, name: str, *, paused: bool) -> None:
    if not name or (problem := name_problem(name, 128)):
        raise InvalidInput(f"{name[:64]!r} is not a queue: it {problem if name else 'is empty'}.")
    async with cli.opened() as (store, _):
        await Switches(store).pause_queue(name, paused=paused)
        await cli.hint(store)
        cli.output.one({"queue": name, "paused": paused})


@click.command()
@pass_cli
@command
async def stats(cli: Cli) -> None:
    """Count jobs per queue and type."""
    async with cli.opened() as (store, _):
        now = await store.ping()
        rows = []
        for lane in await store.counts(tenant_id=cli.tenant):
            oldest = lane.oldest_due_at
            waited = None if oldest is None else round((now - oldest).total_seconds(), 1)
            counted = {name: getattr(lane, name) for name in COUNTED}
            rows.append(
                {"queue": lane.queue, "jobType": lane.job_type, **counted, "oldestSeconds": waited}
            )
        cli.output.rows(rows, columns=("queue", "jobType", *COUNTED, "oldestSeconds"))


@click.command()
@pass_cli
@command
async def sessions(cli: Cli) -> None:
    """List the worker processes that are alive."""
    async with cli.opened() as (store, _):
        rows = [msgspec.to_builtins(session) for session in await live_sessions(store)]
        columns = ("sessionId", "host", "pid", "version", "startedAt", "lastSeenAt", "queues")
        cli.output.rows(rows, columns=columns)


@click.command()
@pass_cli
@command
async def doctor(cli: Cli) -> None:
    """Check the settings, the store and the workers, and say what to do."""
    say(
        f"windlass {__version__}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}"
    )
    checks = _application_check(cli)
    if not any(row["result"] == "bad" for row in checks) or cli.names_a_store:
        async with cli.opened() as (store, _):
            checks = await _check(cli, store) + checks
    cli.output.rows(checks, columns=("check", "result", "advice"))
    if any(row["result"] == "bad" for row in checks):
        sys.exit(1)


async def _check(cli: Cli, store: JobStore) -> list[dict[str, str]]:
    capabilities = store.capabilities
    drift = abs((await store.ping() - cli.clock.now()).total_seconds())
    alive = await live_sessions(store)
    waiting = [lane for lane in await store.counts(tenant_id=None) if lane.queued]
    served = {kind for session in alive for kind in session.job_types}
    orphaned = sorted({lane.job_type for lane in waiting} - served)
    return [
        _row(f"store {cli.store_name()} opens", True, ""),
        _row(
            f"durability is {capabilities.durability}",
            capabilities.survives("power_loss"),
            f"An answered write can be lost by {capabilities.ack_lost_on}.",
        ),
        _row("clocks agree", drift < 5, f"The store's clock differs by {drift:.0f} s."),
        _row(f"{len(alive)} workers alive", bool(alive), "Start one: windlass worker module:app."),
        _row(
            "every waiting type has a worker",
            not orphaned,
            f"No worker handles {', '.join(orphaned[:5])}.",
        ),
    ]


def _application_check(cli: Cli) -> list[dict[str, str]]:
    if not cli.settings["app"]:
        return []
    try:
        names = [one.name for one in cli.app().job_types]
    except WindlassError as error:
        return [_row("the application imports", False, str(error))]
    return [_row(f"the application declares {len(names)} jobs", bool(names), "Declare one.")]


def _row(check: str, good: bool, advice: str) -> dict[str, str]:
    return {"check": check, "result": "ok" if good else "bad", "advice": "" if good else advice}


@click.group()
def config() -> None:
    """Look at the settings."""


@config.command()
@pass_cli
def show(cli: Cli) -> None:
    """Show every setting, its value and where that came from."""
    rows = []
    for setting in SETTINGS:
        value = cli.settings.value(setting.name)
        rows.append(
            {
                "setting": setting.name,
                "value": value.shown,
                "source": value.source,
                "variable": setting.variable,
                "help": setting.help,
            }
        )
    cli.output.rows(rows, columns=("setting", "value", "source", "help"))
