"""gantline bridge: take job envelopes in from a broker."""

import asyncio
import sys

import click

from gantline.app import Gantline
from gantline.cli.command import exiting
from gantline.cli.health import HealthPort, health_port, path_options, watched
from gantline.cli.process import run_tuned
from gantline.cli.serve import stop_on_signals
from gantline.cli.session import Cli, pass_cli, warn_of
from gantline.cli.store_choice import store_label
from gantline.cli.talk import Say, log_as


@click.command()
@click.argument("target", required=False, metavar="[MODULE:APP]")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Log format.")
@click.option("--health", help="Serve health and metrics at this address: :8081.")
@path_options
@pass_cli
def bridge(
    cli: Cli,
    target: str | None,
    log_format: str | None,
    health: str | None,
    live_path: str | None,
    ready_path: str | None,
) -> None:
    """Take job envelopes in from the broker that the application MODULE:APP names.

    Workers run the jobs, and publish their outcomes.
    """

    def run() -> int:
        report = log_as(cli.settings, log_format, "INFO")
        app, choice = cli.app_to_run(target)
        warn_of(choice, app.store, report=report)
        report(f"Jobs are kept in {store_label(app.store, choice)} ({choice.why}).")
        port = health_port(cli, health, live_path, ready_path)
        return run_tuned(_bridge(app, port, report))

    sys.exit(exiting(run))


async def _bridge(app: Gantline, port: HealthPort | None, report: Say) -> int:
    stopped = asyncio.Event()
    stop_on_signals(stopped.set, stopped.set)
    async with app, app.bridging():
        with watched(app, port, expects_worker=False, say=report):
            types = ", ".join(sorted(one.name for one in app.job_types))
            report(f"Taking envelopes in of {types}. Press Ctrl-C to stop.")
            await stopped.wait()
    report("Stopped.")
    return 0
