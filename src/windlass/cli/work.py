"""windlass worker and dev: processes that run jobs."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import click

from windlass.app import Windlass
from windlass.cli.choice import StoreChoice, place_of
from windlass.cli.options import Recycle, parse_queues, parse_recycle
from windlass.cli.seconds import Seconds
from windlass.cli.serve import open_api
from windlass.cli.session import Cli, exiting, pass_cli, warn_of
from windlass.cli.talking import Say, log_as
from windlass.cli.waiting import told_when_slow
from windlass.cli.watched import supervise, watched
from windlass.telemetry.address import Address, parse_address
from windlass.telemetry.health import check_there_is
from windlass.worker.reloader import Reloader
from windlass.worker.settings import WorkerSettings
from windlass.worker.tuning import run_tuned
from windlass.worker.worker import Worker


@click.command()
@click.argument("target", required=False, metavar="[MODULE:APP]")
@click.option("-q", "--queue", "queues", help="Queues with slots: documents:10,default:5.")
@click.option("--processes", type=click.IntRange(1, 64), help="How many processes.")
@click.option(
    "--drain",
    "drain_seconds",
    type=Seconds(86_400),
    help="How long running jobs may go on.",
)
@click.option("--recycle", default="", help="Start a process anew after 10000jobs or 512MB.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Lines for people, or one JSON object a line.",
)
@click.option("--health", help="Serve health and metrics here: :8081, 127.0.0.1:8081.")
@click.option("--child", is_flag=True, hidden=True, help="Started by a supervisor.")
@pass_cli
def worker(
    cli: Cli,
    target: str | None,
    queues: str | None,
    processes: int | None,
    drain_seconds: float | None,
    recycle: str,
    log_level: str,
    log_format: str | None,
    health: str | None,
    child: bool,
) -> None:
    """Run jobs of the application MODULE:APP until stopped."""

    def run() -> int:
        tell = log_as(cli, log_format, log_level.upper())
        address = _address(cli, health)
        count = processes or cli.settings.whole("processes", least=1, most=64)
        app, choice = cli.app_to_run(target)
        if _requires_broker(cli):
            check_there_is(app.broker)
        limits = parse_recycle(recycle)
        settings = _settings(cli, app, queues, drain_seconds, limits)
        if not child and (count > 1 or limits != Recycle()):
            asyncio.run(_try_the_store(app, choice, tell))  # fail here, and not in every child
            return supervise(count, [*_child_command(), "--child"], address, say=tell)
        told = None if child else choice
        return run_tuned(_work(cli, app, settings, address, tell, told))

    sys.exit(exiting(run))


def _settings(
    cli: Cli,
    app: Windlass,
    queues: str | None,
    drain_seconds: float | None,
    recycle: Recycle,
) -> WorkerSettings:
    text = queues or cli.settings["queues"]
    drain = cli.settings.number("drain_seconds") if drain_seconds is None else drain_seconds
    return WorkerSettings(
        queues=parse_queues(text) if text else app.default_queues(),
        lease=timedelta(seconds=cli.settings.number("lease_seconds", least=1)),
        poll=timedelta(seconds=cli.settings.number("poll_seconds", least=0.001)),
        drain=timedelta(seconds=drain),
        recycle_after_jobs=recycle.jobs,
        recycle_above_bytes=recycle.memory_bytes,
    )


def _address(cli: Cli, health: str | None) -> Address | None:
    text = cli.settings["health"] if health is None else health
    return parse_address(text) if text else None


def _requires_broker(cli: Cli) -> bool:
    return cli.settings.choice("require_broker", "yes", "no") == "yes"


def _child_command() -> list[str]:
    """The very command that was given, once more."""
    return [sys.executable, "-m", "windlass.cli.main", *sys.argv[1:]]


async def _try_the_store(app: Windlass, choice: StoreChoice, tell: Say) -> None:
    await _open(app, choice, tell)
    await app.close()


async def _open(app: Windlass, choice: StoreChoice, tell: Say) -> None:
    """Open the store, and say which it is: jobs that are submitted elsewhere are never seen."""
    warn_of(choice, app.store, tell=tell)
    place = place_of(app.store, choice)
    with told_when_slow(place, app.store.capabilities.patience, tell=tell):
        await app.open()
        await app.store.ping()
    tell(f"Jobs are kept in {place} ({choice.why}).")


async def _work(
    cli: Cli,
    app: Windlass,
    settings: WorkerSettings,
    address: Address | None,
    tell: Say,
    told: StoreChoice | None,
    beside: AbstractAsyncContextManager[None] | None = None,
) -> int:
    if told is not None:
        await _open(app, told, tell)
    with watched(app, address, requires_broker=_requires_broker(cli), say=tell):
        async with app, beside or nullcontext(), app.working(settings) as running:
            _stop_on_signals(running, tell)
            served = ", ".join(f"{queue} ({slots})" for queue, slots in settings.queues.items())
            tell(f"Working on {served}. Press Ctrl-C to stop.")
            await running.run()
    tell("Stopped.")
    return 0


def _stop_on_signals(running: Worker, tell: Say) -> None:
    """First signal: drain. Second: now."""
    loop = asyncio.get_running_loop()
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            tell("Stopping when the running jobs are done; once more to stop now.")
            running.stop()
        else:
            running.stop_now()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


@click.command()
@click.argument("target", required=False, metavar="[MODULE:APP]")
@click.option("--reload/--no-reload", default=True, help="Start anew when a .py file changes.")
@click.option("--api/--no-api", "with_api", default=True, help="Serve the API on this host.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where; only this host.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Which; else 8080, or the next that is free."
)
@click.option("--child", is_flag=True, hidden=True, help="Started by the reloader.")
@pass_cli
def dev(
    cli: Cli,
    target: str | None,
    reload: bool,
    with_api: bool,
    host: str,
    port: int | None,
    child: bool,
) -> None:
    """Run a worker and the API for development; they start anew when the code changes."""

    def run() -> int:
        tell = log_as(cli, None, "INFO", text="%(levelname)s %(message)s")
        if reload and not child:
            cli.app_name(target)  # what is not named, no change of the code will name
            return Reloader(Path.cwd(), [*_child_command(), "--child"]).run()
        app, choice = cli.app_to_run(target)
        settings = _settings(cli, app, None, 1, Recycle())
        beside = _open_api(app, cli.tenant, host, port, tell) if with_api else nullcontext()
        return run_tuned(_work(cli, app, settings, _address(cli, None), tell, choice, beside))

    sys.exit(exiting(run))


@asynccontextmanager
async def _open_api(
    app: Windlass, tenant: str, host: str, port: int | None, tell: Say
) -> AsyncIterator[None]:
    async with open_api(app, tenant=tenant, host=host, port=port) as url:
        tell(f"The API is at {url}/api, open to this host; read {url}/api/docs.")
        yield
