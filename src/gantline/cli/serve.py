"""gantline api: serve the HTTP API."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import click

from gantline.app import Gantline
from gantline.auth.api_key_authenticator import ApiKeyAuthenticator
from gantline.auth.api_keys import ApiKeys
from gantline.auth.authenticator import AllowAnonymous
from gantline.auth.authorizer import DefaultAuthorizer
from gantline.auth.hosts import LOOPBACK, is_loopback, names_for
from gantline.auth.peppers import Peppers
from gantline.auth.principal import Principal, Role
from gantline.cli.command import exiting
from gantline.cli.health import health_paths, path_options
from gantline.cli.options import rate_limits, trusted_proxies
from gantline.cli.process import run_tuned
from gantline.cli.session import Cli, load_target, pass_cli, warn_of
from gantline.cli.talk import Say, log_as, say
from gantline.contract.errors import AuthMisconfigured, GantlineError, InvalidInput
from gantline.telemetry.health_server import HealthPaths

if TYPE_CHECKING:
    from gantline.api.application import Api
    from gantline.api.server import ApiServer
    from gantline.api.settings import ApiSettings

_DEV_PORT = 8080


@click.command()
@click.argument("target", required=False, metavar="[MODULE:APP]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8080, show_default=True)
@click.option(
    "--allow-anonymous",
    is_flag=True,
    help="Treat every caller as an operator instead of asking for an API key.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Log format.")
@path_options
@pass_cli
def api(
    cli: Cli,
    target: str | None,
    host: str,
    port: int,
    allow_anonymous: bool,
    log_format: str | None,
    live_path: str | None,
    ready_path: str | None,
) -> None:
    """Serve the HTTP API of an application.

    MODULE:APP is the application object (callers send an API key), or an API made from it with an
    authenticator of your own, or an ASGI application in which that is mounted.
    """

    def run() -> int:
        report = log_as(cli.settings, log_format, "INFO")
        server_class, names, proxies = (
            _server_class(),
            _names(cli, host),
            trusted_proxies(cli.settings),
        )
        found = load_target(target or cli.settings["app"])
        if not isinstance(found, Gantline):
            server = server_class(
                found,
                host=host,
                port=port,
                has_lifespan=True,
                names=names,
                proxies=proxies,
            )
            return run_tuned(_serve(server, report))
        jobs, choice = cli.app_to_run(target)
        warn_of(choice, jobs.store, report=report)
        if allow_anonymous:
            report("Everybody who can reach this address may operate the jobs.")
        made = jobs.api(
            authenticator=None if allow_anonymous else _by_key(jobs),
            allow_anonymous=allow_anonymous,
            authorizer=_authorizer(cli),
            settings=_settings(cli, health_paths(cli, live_path, ready_path)),
        )
        server = server_class(made, host=host, port=port, names=names, proxies=proxies)
        return run_tuned(_serve_jobs(jobs, server, report))

    sys.exit(exiting(run))


def _authorizer(cli: Cli) -> DefaultAuthorizer:
    required = cli.settings.choice("subject_required", "yes", "no") == "yes"
    return DefaultAuthorizer(subject_required=required)


def _settings(cli: Cli, paths: HealthPaths) -> "ApiSettings":
    from gantline.api.rate_limits import RateLimits
    from gantline.api.settings import ApiSettings

    per_key, per_tenant = rate_limits(cli.settings)
    return ApiSettings(
        rate_limits=RateLimits(per_key=per_key, per_tenant=per_tenant),
        live_path=paths.live,
        ready_path=paths.ready,
    )


def _names(cli: Cli, host: str) -> tuple[str, ...]:
    named = (name.strip() for name in cli.settings["allowed_hosts"].split(","))
    return names_for(host, [*filter(None, named)])


def _by_key(jobs: Gantline) -> ApiKeyAuthenticator:
    try:
        peppers = Peppers.from_environment(os.environ)
    except AuthMisconfigured as error:
        next_step = f"{error.next_step} To try it out without keys: --allow-anonymous."
        raise AuthMisconfigured(error.cause, next_step=next_step) from None
    return ApiKeyAuthenticator(ApiKeys(jobs.store, peppers, clock=jobs.clock))


async def _serve_jobs(jobs: Gantline, server: "ApiServer", report: Say) -> int:
    async with jobs:
        with jobs.watching.loop_watch.watching():  # which names what blocks it
            return await _serve(server, report)


async def _serve(server: "ApiServer", report: Say) -> int:
    stop_on_signals(server.stop, server.stop_now)
    report(f"Serving {server.url}/api, documented at {server.url}/api/docs. Press Ctrl-C to stop.")
    await server.serve()
    report("Stopped.")
    return 0


def stop_on_signals(stop: Callable[[], None], stop_now: Callable[[], None]) -> None:
    """First signal: finish what is under way. Second: now."""
    loop = asyncio.get_running_loop()
    left = [stop_now, stop]

    def stopping() -> None:
        (left.pop() if len(left) > 1 else stop_now)()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping)


@asynccontextmanager
async def open_api(
    jobs: Gantline, *, tenant: str, host: str, port: int | None
) -> AsyncIterator[str]:
    """Serve the API without credentials beside a worker, for users of this host."""
    if not is_loopback(host):
        raise InvalidInput(
            f"`gantline dev` lets everybody in, so it does not serve {host}.",
            next_step="Use `gantline api`, which asks for credentials.",
        )
    server = _taking_a_port(open_to_this_host(jobs, tenant), host, port)
    serving = asyncio.create_task(server.serve())
    try:
        yield server.url
    finally:
        server.stop()
        await serving


def _taking_a_port(app: "Api", host: str, port: int | None) -> "ApiServer":
    """The port that was named; else the first of a few that is free, or any."""
    server_class = _server_class()
    names = names_for(host)
    if port is not None:
        return server_class(app, host=host, port=port, names=names)
    for likely in range(_DEV_PORT, _DEV_PORT + 10):
        with suppress(GantlineError):
            server = server_class(app, host=host, port=likely, names=names)
            if likely != _DEV_PORT:
                say(f"Port {_DEV_PORT} is taken.")
            return server
    return server_class(app, host=host, port=0, names=names)


def open_to_this_host(jobs: Gantline, tenant: str) -> "Api":
    """The API, open to all who call it by a name of this host; a web page elsewhere cannot."""
    from gantline.api.settings import ApiSettings

    developer = Principal(id="dev", tenant_id=tenant, roles=frozenset({Role.ADMIN}), is_system=True)
    settings = ApiSettings(allowed_hosts=LOOPBACK, show_start_page=True)
    return jobs.api(authenticator=AllowAnonymous(developer), settings=settings)


def _server_class() -> "type[ApiServer]":
    try:
        from gantline.api.server import ApiServer
    except ModuleNotFoundError as error:
        raise GantlineError(
            f"Serving the API needs the module {error.name}, which is not installed.",
            next_step="Run `pip install 'gantline[api]'`.",
        ) from None
    return ApiServer
