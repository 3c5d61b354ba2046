"""What every command starts with: settings, store, application, and errors as exit codes."""

import asyncio
import getpass
import importlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click

from windlass.app import Windlass
from windlass.app.wakeup import broker_from_url, wakeup_for
from windlass.cli.output import Output, say
from windlass.cli.settings import Settings, without_secrets
from windlass.contract.clock import SystemClock
from windlass.contract.errors import (
    AuthMisconfigured,
    Forbidden,
    InvalidInput,
    JobNotFound,
    KeyNotFound,
    NotAuthenticated,
    StoreError,
    WindlassError,
)
from windlass.contract.store import JobStore
from windlass.contract.wakeup import Hint
from windlass.manager.manager import JobManager
from windlass.stores import store_from_url
from windlass.wakeups.in_process import Hub

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
        """Who acts, for the log."""
        try:
            return f"cli:{getpass.getuser()}"
        except (KeyError, OSError):
            return f"cli:{os.getuid()}"

    def store(self) -> JobStore:
        """The store that was named, else the application's, else the default."""
        named = self.settings.value("store")
        if named.source == "default" and self.settings["app"]:
            source = self.app().store_source
            return store_from_url(source, clock=self.clock) if isinstance(source, str) else source
        return store_from_url(named.text, clock=self.clock)

    @property
    def names_a_store(self) -> bool:
        return self.settings.value("store").source != "default"

    def store_name(self) -> str:
        """The store's URL for people to read; a password in it is not shown."""
        named = self.settings.value("store")
        source: object = named.text
        if named.source == "default" and self.settings["app"]:
            source = self.app().store_source
        return without_secrets(source) if isinstance(source, str) else "of the app"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[JobStore, JobManager]]:
        store = self.store()
        await store.open()
        try:
            yield store, JobManager(store)
        finally:
            await store.close()

    def app_to_run(self, name: str | None) -> Windlass:
        """The application, moved to the store and the trigger that were named, if any were."""
        app = self.app(name)
        store, trigger = self.settings.value("store"), self.settings.value("trigger")
        source = app.store_source if store.source == "default" else store.text
        broker = app.trigger if trigger.source == "default" else trigger.text
        if (source, broker) != (app.store_source, app.trigger):
            app.move_to(source, trigger=broker)
        return app

    async def hint(self, store: JobStore, hint: Hint = Hint.WORK) -> None:
        """Wake the workers that can be reached; the others poll.

        What the command is for is done already, so a wrong trigger must not make it fail.
        """
        try:
            wakeup = wakeup_for(store, Hub(), broker_from_url(self.trigger()))
        except StoreError as error:
            say(f"No worker was woken, but they poll: {error}")
            return
        await wakeup.open(None)
        wakeup.notify(hint)
        await wakeup.close()

    def trigger(self) -> str:
        """The broker that was named, else the application's."""
        named = self.settings.value("trigger")
        if named.source == "default" and self.settings["app"]:
            return self.app().trigger
        return named.text

    def app(self, name: str | None = None) -> Windlass:
        """Import the application object."""
        target = name or self.settings["app"]
        if not target:
            raise InvalidInput(
                "No application is named.",
                next_step="Name it as module:name, or set `app` in windlass.toml.",
            )
        return load_app(target)


def load_app(target: str) -> Windlass:
    """Import `module:name`, which must be an application."""
    found = load_target(target)
    if not isinstance(found, Windlass):
        module_name = target.partition(":")[0]
        raise InvalidInput(
            f"{target} is not a Windlass application.",
            next_step=f"Write it as {module_name}:jobs, where jobs = Windlass(…).",
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
            raise InvalidInput(
                f"There is no module {module_name!r} here.",
                next_step="Run the command where `python -c 'import …'` finds it.",
            ) from None
        raise InvalidInput(f"{module_name} cannot be imported: {error}.") from error
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InvalidInput(
            f"The module {module_name} cannot be imported: {what}.",
            next_step="Try `python -c 'import …'` to see all of it.",
        ) from error
    return getattr(module, name, None) if name else _only_app(module)


def _only_app(module: Any) -> Windlass | None:
    apps = [value for value in vars(module).values() if isinstance(value, Windlass)]
    return apps[0] if len(apps) == 1 else None


def command(
    function: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, R]:
    """Run an async command; turn errors into one line on stderr and an exit code."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return exiting(lambda: asyncio.run(function(*args, **kwargs)))

    return run


def exiting(call: Callable[[], R]) -> R:
    """Call, and leave with the right exit code when it fails."""
    try:
        return call()
    except WindlassError as error:
        say(f"Error: {error}")
        sys.exit(exit_code(error))
    except TimeoutError:
        say("Error: the time is up.")
        sys.exit(TIMED_OUT)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)


def exit_code(error: WindlassError) -> int:
    match error:
        case JobNotFound() | KeyNotFound():
            return NOT_FOUND
        case InvalidInput() | AuthMisconfigured():
            return USAGE
        case NotAuthenticated() | Forbidden():
            return NO_RIGHT
        case StoreError():
            return UNREACHABLE
        case _:
            return FAILED


pass_cli = click.make_pass_decorator(Cli)
