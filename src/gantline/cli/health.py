"""Health ports of workers: one for a worker, or one for a supervisor and all its children."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import click

from gantline.app import Gantline
from gantline.cli.session import Cli
from gantline.cli.supervision.supervisor import Supervisor
from gantline.cli.talk import Say
from gantline.contract.errors import InvalidInput
from gantline.telemetry.fleet import Fleet, make_fleet_routes
from gantline.telemetry.health_server import HealthPaths, HealthServer, ListenAddress, parse_address

F = TypeVar("F", bound=Callable[..., Any])


class HealthPort(NamedTuple):
    """Where health is served, and by which paths."""

    address: ListenAddress
    paths: HealthPaths


def path_options(function: F) -> F:
    """Add the options for the paths that probes ask for."""
    for option in (
        click.option("--ready-path", help="Where readiness is asked for: /v1/health/ready."),
        click.option("--live-path", help="Where liveness is asked for: /v1/health/live."),
    ):
        function = option(function)
    return function


def health_paths(cli: Cli, live: str | None = None, ready: str | None = None) -> HealthPaths:
    """The paths that flags give, else the settings; raise InvalidInput."""
    settings = cli.settings
    return HealthPaths(live or settings["live_path"], ready or settings["ready_path"]).checked()


def health_port(
    cli: Cli, given: str | None, live: str | None = None, ready: str | None = None
) -> HealthPort | None:
    """The port that flags give, else the settings; None where there is none."""
    text = cli.settings["health"] if given is None else given
    return HealthPort(parse_address(text), health_paths(cli, live, ready)) if text else None


@contextmanager
def watched(
    app: Gantline,
    port: HealthPort | None,
    *,
    expects_worker: bool = True,
    requires_broker: bool = False,
    say: Say,
) -> Iterator[None]:
    """Serve the health of what the running event loop does, as long as the block lasts."""
    if port is None:
        yield
        return
    watch = app.watching.loop_watch
    pages = app.health_app(
        watch=watch,
        expects_worker=expects_worker,
        requires_broker=requires_broker,
        live_path=port.paths.live,
        ready_path=port.paths.ready,
    )
    with watch.watching(), _serving(HealthServer(port.address, pages), say):
        yield


def supervise(
    count: int, command: list[str], port: HealthPort | None, *, drain: timedelta, say: Say
) -> int:
    """Run so many children; their health is asked of each on a socket that only we can reach."""
    if port is None:
        return Supervisor(count, command, drain=drain).run()
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="gantline-health-")))
        except OSError as error:
            raise InvalidInput(
                f"With several processes --health needs a temporary folder: {error.strerror}.",
                next_step="Let TMPDIR name a folder that can be written to.",
            ) from None
        sockets = [folder / str(index) for index in range(count)]
        supervisor = Supervisor(
            count,
            command,
            drain=drain,
            options_of=lambda index: ("--health", f"unix:{sockets[index]}"),
        )
        fleet = Fleet(sockets, idle_seconds=lambda: supervisor.idle_seconds)
        stack.enter_context(
            _serving(HealthServer(port.address, make_fleet_routes(fleet, port.paths)), say)
        )
        return supervisor.run()


@contextmanager
def _serving(server: HealthServer, say: Say) -> Iterator[None]:
    server.start()
    try:
        if server.address.path is None:  # else it is a child's, and of no interest to people
            say(f"Health, readiness and metrics are on port {server.address.port}.")
        yield
    finally:
        server.stop()
