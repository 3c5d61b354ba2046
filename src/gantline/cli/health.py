"""Health ports of workers: one for a worker, or one for a supervisor and all its children."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from gantline.app import Gantline
from gantline.cli.session import Cli
from gantline.cli.supervision.supervisor import Supervisor
from gantline.cli.talk import Say
from gantline.contract.errors import InvalidInput
from gantline.telemetry.fleet import Fleet, make_fleet_routes
from gantline.telemetry.health_server import HealthServer, ListenAddress, parse_address


def health_address(cli: Cli, given: str | None) -> ListenAddress | None:
    """The address that a flag gives, else the settings; None where there is none."""
    text = cli.settings["health"] if given is None else given
    return parse_address(text) if text else None


@contextmanager
def watched(
    app: Gantline,
    address: ListenAddress | None,
    *,
    expects_worker: bool = True,
    requires_broker: bool = False,
    say: Say,
) -> Iterator[None]:
    """Serve the health of what the running event loop does, as long as the block lasts."""
    if address is None:
        yield
        return
    watch = app.watching.loop_watch
    pages = app.health_app(
        watch=watch, expects_worker=expects_worker, requires_broker=requires_broker
    )
    with watch.watching(), _serving(HealthServer(address, pages), say):
        yield


def supervise(
    count: int, command: list[str], address: ListenAddress | None, *, drain: timedelta, say: Say
) -> int:
    """Run so many children; their health is asked of each on a socket that only we can reach."""
    if address is None:
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
        stack.enter_context(_serving(HealthServer(address, make_fleet_routes(fleet)), say))
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
