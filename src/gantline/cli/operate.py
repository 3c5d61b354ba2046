"""gantline stats, sessions and config: looking at a running system."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import click
import msgspec

from gantline.app.settings import CODE, DEFAULT, FLAG, SETTINGS, Value
from gantline.cli.command import command
from gantline.cli.options import OF_WORKERS
from gantline.cli.queues import COUNT_COLUMNS, RARELY_ASKED, count_cells
from gantline.cli.session import Cli, all_tenants_option, pass_cli
from gantline.cli.table import Columns
from gantline.cli.talk import say
from gantline.contract.errors import GantlineError
from gantline.contract.job import DEFAULT_TENANT
from gantline.worker.settings import WorkerSettings

_STATS: Final = Columns(
    ("queue", "jobType", *COUNT_COLUMNS, "oldestSeconds"),
    expendable=(*RARELY_ASKED, "oldestSeconds"),
)
_SESSIONS: Final = Columns(
    ("sessionId", "lastSeenAt", "serves", "startedAt", "version", "host", "pid"),
    # What a session id begins with anyway goes first.
    expendable=("pid", "host", "version", "startedAt"),
)
_CONFIG: Final = Columns(("setting", "value", "source", "help"), prose="help", expendable=("help",))


@click.command()
@all_tenants_option
@command
async def stats(cli: Cli) -> None:
    """Count jobs by queue and type."""
    async with cli.backend() as backend:
        lanes, whose = await backend.lanes(), backend.whose
    rows = []
    for lane in lanes:
        age = lane.oldest_age_seconds
        waited = None if age is None else round(age, 1)
        of_lane = {"queue": lane.queue, "jobType": lane.job_type}
        rows.append({**of_lane, **count_cells(lane), "oldestSeconds": waited})
    cli.output.rows(rows, _STATS, empty=f"There are no jobs of {whose}.")


@click.command()
@command
async def sessions(cli: Cli) -> None:
    """List live worker processes."""
    async with cli.backend() as backend:
        found = await backend.sessions()
    rows = [{**msgspec.to_builtins(one), "serves": _as_typed(one.queues)} for one in found]
    empty = f"No worker is alive. Start one: {cli.worker_command}"
    cli.output.rows(rows, _SESSIONS, empty=empty)


def _as_typed(queues: Mapping[str, int]) -> str:
    """As one would type them after -q."""
    return ",".join(f"{name}:{slots}" for name, slots in queues.items())


@click.group()
def config() -> None:
    """Show the settings."""


@config.command()
@pass_cli
def show(cli: Cli) -> None:
    """Show every setting, its value and its source."""
    named = _named_in_code(cli)
    rows = []
    for setting in SETTINGS:
        value = named.get(setting.name) or cli.settings.value(setting.name)
        rows.append(
            {
                "setting": setting.name,
                "value": value.shown,
                "source": value.source,
                "variable": setting.variable,
                "help": setting.help,
            }
        )
    cli.output.rows(rows, _CONFIG, empty="")


def _named_in_code(cli: Cli) -> dict[str, Value]:
    """What the application names itself, where no flag says otherwise."""
    if not cli.settings["app"]:
        return {}
    try:
        app = cli.app()
    except GantlineError as error:
        say(f"Warning: what the application names itself is not known: {error}")
        return {}
    named = {}
    if app.store_named_by == CODE and cli.settings.value("store").source != FLAG:
        named["store"] = Value(cli.choice.url, CODE)
    if app.trigger_named_by == CODE:
        named["trigger"] = Value(app.trigger, CODE)
    if cli.settings.value("tenant").source == DEFAULT and app.default_tenant != DEFAULT_TENANT:
        named["tenant"] = Value(app.default_tenant, CODE)
    if app.worker.queues and cli.settings.value("queues").source == DEFAULT:
        named["queues"] = Value(_as_typed(app.worker.queues), CODE)
    for name, field in OF_WORKERS.items():
        said = getattr(app.worker, field)
        if cli.settings.value(name).source == DEFAULT and said != getattr(WorkerSettings(), field):
            text = f"{said.total_seconds():g}" if isinstance(said, timedelta) else str(said)
            named[name] = Value(text, CODE)
    return named
