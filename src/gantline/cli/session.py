"""What every command starts with: settings, store, application, and errors as exit codes."""

import getpass
import importlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click

from gantline.app import Gantline
from gantline.app.settings import DEFAULT, FLAG, Settings
from gantline.app.wakeup import broker_from_url, wakeup_for
from gantline.audit.store_audit import StoreAudit
from gantline.cli.audited import CliAudit
from gantline.cli.choice import StoreChoice, choose_store, place_of
from gantline.cli.interruption import run_interruptible
from gantline.cli.keeper import Keeper
from gantline.cli.output import Output, say
from gantline.cli.readiness import refuse_unless_ready
from gantline.cli.store_keeper import StoreKeeper
from gantline.cli.waiting import told_when_slow
from gantline.contract.clock import SystemClock
from gantline.contract.errors import (
    AuthMisconfigured,
    Forbidden,
    GantlineError,
    InvalidInput,
    JobNotFound,
    KeyNotFound,
    NotAuthenticated,
    NotThere,
    ServerError,
    ServerFailed,
    StoreError,
    StoreUnavailable,
    WebhookNotFound,
    WebhooksOff,
)
from gantline.contract.retention import Retention
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint
from gantline.stores.migrations import Migrator, migrator_of
from gantline.wakeups.in_process import Hub

FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
NO_RIGHT: Final = 4
UNREACHABLE: Final = 5
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130

P = ParamSpec("P")
R = TypeVar("R")


class Cli:
    """What the options of the command line say; made before each command."""

    def __init__(self, settings: Settings, output: Output) -> None:
        self.settings = settings
        self.output = output
        self.clock = SystemClock()

    @property
    def tenant(self) -> str:
        return self.settings["tenant"]

    @property
    def actor(self) -> str:
        """Who acts, for the log and the audit trail."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        return f"cli:{user}@{socket.gethostname()}"

    def audit(self, store: JobStore) -> "CliAudit":
        """Where what this command does is written down, before it is done."""
        is_settled = self.settings.value("store").source == FLAG
        asks_app = self.settings["app"] and not is_settled
        sink = self.app().audit_of(store) if asks_app else StoreAudit(store)
        return CliAudit(sink, actor=self.actor, tenant_id=self.tenant, clock=self.clock)

    @asynccontextmanager
    async def keeper(self, *, create: bool = False) -> AsyncIterator[Keeper]:
        """Whoever keeps the jobs: the server that is named, else the store."""
        if server := self._server():
            named = self.settings.value("tenant")
            tenant = None if named.source == DEFAULT else named.text
            async with _server_keeper()(server, tenant=tenant) as keeper:
                yield keeper
            return
        async with self.opened(create=create) as store:
            yield StoreKeeper(self, store, place=place_of(store, self.choice))

    def _server(self) -> str:
        """The URL of the server that is named; empty where a store is meant."""
        server, store = self.settings.value("url"), self.settings.value("store")
        if store.source != FLAG:
            return server.text
        if server.source == FLAG:
            raise InvalidInput("Both --url and --store are given.", next_step="Name one of them.")
        return ""

    def _refuse_a_server(self) -> None:
        """A server that the environment names is not meant by commands that it cannot serve."""
        if self.settings.value("url").source == FLAG:
            raise InvalidInput(
                "This command needs the store itself, and not a server.",
                next_step="Leave --url out; name the store by --store or --app.",
            )

    @cached_property
    def choice(self) -> StoreChoice:
        """The store that this command uses, and why."""
        self._refuse_a_server()
        is_settled = self.settings.value("store").source == FLAG
        app = self.app() if self.settings["app"] and not is_settled else None
        return choose_store(self.settings, app)

    @asynccontextmanager
    async def opened(
        self, *, create: bool = False, choice: StoreChoice | None = None
    ) -> AsyncIterator[JobStore]:
        """Open the store; unless told to create it, only one that is there already."""
        self._refuse_a_server()
        choice = choice or self.choice
        store = choice.make(self.clock)
        warn_of(choice, store)
        place = place_of(store, choice)
        with told_when_slow(place, store.capabilities.patience):
            if not create:
                await refuse_unless_ready(store, f"{place} ({choice.why})")
            await store.open()
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def migrator(self) -> AsyncIterator[Migrator]:
        """The schema of the store, whether it can be opened or not."""
        store = self.choice.make(self.clock)
        migrator = migrator_of(store)
        warn_of(self.choice, store)
        with told_when_slow(place_of(store, self.choice), store.capabilities.patience):
            yield migrator

    def app_to_run(self, name: str | None) -> tuple[Gantline, StoreChoice]:
        """The application, moved to the store that a flag names, if one does."""
        self._refuse_a_server()
        app = self.app(name)
        choice = choose_store(self.settings, app)
        if choice.named_by == FLAG:
            app.move_to(choice.source)
        return app, choice

    async def hint(self, store: JobStore, hint: Hint = Hint.WORK) -> None:
        """Wake the workers that can be reached; the others poll.

        What the command is for is done already, so a wrong trigger must not make it fail.
        """
        try:
            wakeup = wakeup_for(store, Hub(), broker_from_url(self.trigger()))
        except GantlineError as error:
            say(f"No worker was woken, but they poll: {error}")
            return
        await wakeup.open(None)
        wakeup.notify(hint)
        await wakeup.close()

    def trigger(self) -> str:
        """The application's broker; without an application that of the settings."""
        return self.app().trigger if self.settings["app"] else self.settings["trigger"]

    def retention(self, store: JobStore) -> Retention:
        """How long the application keeps ended jobs; without one, how long the store does."""
        known = store.capabilities.retention
        return self.app().storage.retention.over(known) if self.settings["app"] else known

    @property
    def worker_command(self) -> str:
        """How to start a worker here."""
        return f"gantline worker {self.settings['app'] or 'module:app'}"

    def app(self, name: str | None = None) -> Gantline:
        """Import the application object."""
        return load_app(self.app_name(name))

    def app_name(self, name: str | None) -> str:
        """Where the application object is; raise InvalidInput where nobody says so."""
        target = name or self.settings["app"]
        if not target:
            raise InvalidInput(
                "No application is named.",
                next_step="Name it as module:name: --app, GANTLINE_APP, or `app` in gantline.toml.",
            )
        return target


def _server_keeper() -> Any:
    try:
        from gantline.cli.server_keeper import server_keeper  # only its users have the extra
    except ModuleNotFoundError as error:
        raise GantlineError(
            f"Asking a server needs the module {error.name}, which is not installed.",
            next_step="Run `pip install 'gantline[client]'`.",
        ) from None
    return server_keeper


def warn_of(choice: StoreChoice, store: JobStore, *, tell: Callable[[str], None] = say) -> None:
    """Say what people take for a fault of the jobs, and is one of the store's choice."""
    if choice.warning:
        tell(f"Warning: {choice.warning}")
    if store.capabilities.writers == "process":
        tell(f"Warning: {choice.url} lives in one process: what another one submits is not here.")


def load_app(target: str) -> Gantline:
    """Import `module:name`, which must be an application."""
    found = load_target(target)
    if not isinstance(found, Gantline):
        module_name = target.partition(":")[0]
        raise InvalidInput(
            f"{target} is not a Gantline application.",
            next_step=f"Write it as {module_name}:jobs, where jobs = Gantline(…).",
        )
    return found


def load_target(target: str) -> Any:
    """Import `module:name`. The current folder comes first, as with `python -m`."""
    module_name, _, name = target.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            if module_name.endswith(".py"):
                raise InvalidInput(
                    f"{module_name} is a file, and a module is asked for.",
                    next_step=f"Write {module_name.removesuffix('.py')}:{name or 'jobs'}.",
                ) from None
            raise InvalidInput(
                f"There is no module {module_name!r} here.",
                next_step=f"Run the command where `python -c 'import {module_name}'` finds it.",
            ) from None
        raise InvalidInput(f"{module_name} cannot be imported: {error}.") from error
    except StoreError:
        raise  # it says what is wrong with the store that the module names
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InvalidInput(
            f"The module {module_name} cannot be imported: {what.rstrip('.')}.",
            next_step=f"Try `python -c 'import {module_name}'` to see all of it.",
        ) from error
    return getattr(module, name, None) if name else _only_app(module)


def _only_app(module: Any) -> Gantline | None:
    apps = [value for value in vars(module).values() if isinstance(value, Gantline)]
    return apps[0] if len(apps) == 1 else None


def command(
    function: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, R]:
    """Run an async command; turn errors into one line on stderr and an exit code."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return exiting(lambda: run_interruptible(function(*args, **kwargs)))

    return run


def exiting(call: Callable[[], R]) -> R:
    """Call, and leave with the right exit code when it fails."""
    try:
        return call()
    except GantlineError as error:
        say(f"Error: {error}{_where_to_look(error)}")
        sys.exit(exit_code(error))
    except TimeoutError:
        say("Error: the time is up.")
        sys.exit(TIMED_OUT)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)


def _where_to_look(error: GantlineError) -> str:
    """Of what is wrong with a server, more is in its log."""
    is_there = isinstance(error, ServerFailed | StoreUnavailable) and error.correlation_id
    return f" In the server's log it is {error.correlation_id}." if is_there else ""


def exit_code(error: GantlineError) -> int:
    match error:
        case JobNotFound() | KeyNotFound() | NotThere() | WebhookNotFound():
            return NOT_FOUND
        case InvalidInput() | AuthMisconfigured() | WebhooksOff():
            return USAGE
        case NotAuthenticated() | Forbidden():
            return NO_RIGHT
        case StoreError() | ServerError():
            return UNREACHABLE
        case _:
            return FAILED


pass_cli = click.make_pass_decorator(Cli)
