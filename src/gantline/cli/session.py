"""What every command starts with: settings, store or server, application, audit."""

import asyncio
import importlib
import os
import pwd
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click

from gantline.app import Gantline
from gantline.app.settings import DEFAULT, FLAG, Settings
from gantline.app.wakeup import broker_from_url, wakeup_for
from gantline.audit.sinks import StoreAudit
from gantline.auth.action import Action
from gantline.cli.backend import Backend
from gantline.cli.output import Output
from gantline.cli.store_backend import StoreBackend
from gantline.cli.store_choice import (
    MAKE_IT,
    NAME_APPLICATION,
    StoreChoice,
    choose_store,
    refuse_unless_ready,
    store_label,
)
from gantline.cli.talk import Say, notice_when_slow, say
from gantline.contract.audit import ALLOWED, AuditEntry, AuditSink
from gantline.contract.clock import Clock, SystemClock
from gantline.contract.errors import GantlineError, InvalidInput, JobNotFound, JobPurged, StoreError
from gantline.contract.retention import Retention
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint
from gantline.stores.migrations import Migrator, migrator_of
from gantline.wakeups.local import Hub

if TYPE_CHECKING:
    from gantline.cli.server_backend import ServerBackend

_CLIENT: Final = "cli"


class CliAudit:
    """The entries of the user of this host. Raising keeps the command from doing it."""

    def __init__(self, sink: AuditSink, *, actor: str, tenant_id: str, clock: Clock) -> None:
        self._sink = sink
        self._actor = actor
        self._tenant_id = tenant_id
        self._clock = clock

    async def jobs(self, operation: str, action: Action, job_ids: Sequence[UUID]) -> None:
        """One entry for each job; they are written together."""
        await asyncio.gather(
            *(self._record(operation, action, job_id=job_id) for job_id in job_ids)
        )

    async def done(
        self,
        operation: str,
        action: Action,
        what: str,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        await self._record(operation, action, what=what, details=details or {})

    async def _record(self, operation: str, action: Action, **about: Any) -> None:
        await self._sink.record(
            AuditEntry(
                at=self._clock.now(),
                actor=self._actor,
                actor_tenant=self._tenant_id,
                action=action,
                operation=operation,
                outcome=ALLOWED,
                tenant_id=self._tenant_id,
                client=_CLIENT,
                **about,
            )
        )


class Cli:
    """What the options of the command line say; made before each command."""

    def __init__(self, settings: Settings, output: Output) -> None:
        self.settings = settings
        self.output = output
        self.clock = SystemClock()
        self.all_tenants = False

    @cached_property
    def tenant(self) -> str:
        """Whose jobs are meant: as named, else as the application has it."""
        if not self.settings["app"] or self.settings.value("tenant").source != DEFAULT:
            return self.settings["tenant"]
        try:
            return self.tenant_of(self.app())
        except GantlineError as error:
            if not self._is_settled:
                raise
            say(f"Warning: the tenant that the application names is not known: {error}")
            return self.settings["tenant"]

    @property
    def scope(self) -> str | None:
        """Whose jobs are looked at; None for those of every tenant."""
        return None if self.all_tenants else self.tenant

    def tenant_of(self, app: Gantline) -> str:
        named = self.settings.value("tenant")
        return app.default_tenant if named.source == DEFAULT else named.text

    @property
    def _is_settled(self) -> bool:
        """Whether a flag names the store, so that the application need not be imported."""
        return self.settings.value("store").source == FLAG

    @property
    def actor(self) -> str:
        """Who acts, for the log and the audit trail: as the system knows him, whatever variables
        like USER say."""
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
        return f"cli:{user}@{socket.gethostname()}"

    def audit(self, store: JobStore, tenant_id: str | None = None) -> CliAudit:
        """Where what this command does is written down, before it is done.

        `tenant_id`: where it is done to another tenant than the one that is meant.
        """
        asks_app = self.settings["app"] and not self._is_settled
        sink = self.app().audit_of(store) if asks_app else StoreAudit(store)
        return CliAudit(
            sink, actor=self.actor, tenant_id=tenant_id or self.tenant, clock=self.clock
        )

    @asynccontextmanager
    async def backend(self, *, create: bool = False) -> AsyncIterator[Backend]:
        """What keeps the jobs: the server that is named, else the store."""
        async with self._backend(create=create) as backend:
            try:
                yield backend
            except JobPurged:
                raise
            except JobNotFound as error:
                if self.all_tenants:
                    raise
                next_step = "If it is of another tenant, name that one by --tenant."
                raise JobNotFound(error.job_id, whose=backend.whose, next_step=next_step) from None

    def _backend(self, *, create: bool) -> AbstractAsyncContextManager[Backend]:
        if not (server := self._server()):
            return self.store_backend(create=create)
        named = self.settings.value("tenant")
        tenant = None if named.source == DEFAULT else named.text
        return _server_backend()(server, tenant=tenant, all_tenants=self.all_tenants)

    @asynccontextmanager
    async def store_backend(self, *, create: bool = False) -> AsyncIterator[StoreBackend]:
        async with self.opened(create=create) as store:
            yield StoreBackend(self, store, label=store_label(store, self.choice))

    def _server(self) -> str:
        """The URL of the server that is named; empty where a store is meant."""
        server, store = self.settings.value("url"), self.settings.value("store")
        if store.source != FLAG:
            return server.text
        if server.source == FLAG:
            raise InvalidInput("Both --url and --store are given.", next_step="Name one of them.")
        return ""

    def _refuse_a_server(self, choice: StoreChoice | None = None) -> None:
        """Commands that need the store take the one that is named, beside a server that the
        environment names; but no default, which would be another one than that server's."""
        server = self.settings.value("url")
        if server.source == FLAG:
            next_step = "Leave --url out; name the store by --store or --app."
        elif server.text and choice is not None and choice.named_by == DEFAULT:
            next_step = f"{server.source} names a server; name the store too, by --store."
        else:
            return
        raise InvalidInput(
            "This command needs the store itself, and not a server.", next_step=next_step
        )

    @cached_property
    def choice(self) -> StoreChoice:
        """The store that this command uses, and why."""
        self._refuse_a_server()
        return self.chosen(self.app() if self.settings["app"] and not self._is_settled else None)

    def chosen(self, app: Gantline | None) -> StoreChoice:
        """The store of an application or the settings, for a command that a server cannot serve."""
        choice = choose_store(self.settings, app)
        self._refuse_a_server(choice)
        return choice

    @asynccontextmanager
    async def opened(
        self, *, create: bool = False, choice: StoreChoice | None = None
    ) -> AsyncIterator[JobStore]:
        """Open the store; without `create`, only one that exists already."""
        self._refuse_a_server()
        choice = choice or self.choice
        store = choice.make(self.clock)
        warn_of(choice, store)
        label = store_label(store, choice)
        with notice_when_slow(label, store.capabilities.patience):
            if not create:
                is_named = self.settings["app"] or choice.named_by != DEFAULT
                await refuse_unless_ready(
                    store,
                    f"{label} ({choice.why})",
                    next_step=MAKE_IT if is_named else NAME_APPLICATION,
                )
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
        with notice_when_slow(store_label(store, self.choice), store.capabilities.patience):
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

    def declared_types(self) -> frozenset[str]:
        """The job types of the application that is named; none where it cannot be imported."""
        try:
            return frozenset(one.name for one in self.app().job_types)
        except GantlineError:
            return frozenset()

    def app_name(self, name: str | None) -> str:
        """Where the application object is; raise InvalidInput where nobody says so."""
        target = name or self.settings["app"]
        if not target:
            raise InvalidInput(
                "No application is named.",
                next_step="Name it as module:name: `gantline worker module:name` (or dev, doctor), "
                "--app, GANTLINE_APP, or `app` in gantline.toml.",
            )
        return target


def _server_backend() -> "type[ServerBackend]":
    try:
        from gantline.cli.server_backend import ServerBackend  # only its users have the extra
    except ModuleNotFoundError as error:
        raise GantlineError(
            f"Asking a server needs the module {error.name}, which is not installed.",
            next_step="Run `pip install 'gantline[client]'`.",
        ) from None
    return ServerBackend


def warn_of(choice: StoreChoice, store: JobStore, *, report: Say = say) -> None:
    """Say what people take for a fault of the jobs, and is one of the store's choice."""
    if choice.warning:
        report(f"Warning: {choice.warning}")
    if store.capabilities.writers == "process":
        report(f"Warning: {choice.url} lives in one process: what another one submits is not here.")


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
                next_step=_meant(module_name)
                or f"Run the command where `python -c 'import {module_name}'` finds it.",
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


def _meant(module_name: str) -> str:
    """`hello.jobs` where `hello:jobs` was meant, whose module is imported by now."""
    module, _, name = module_name.rpartition(".")
    is_app = isinstance(getattr(sys.modules.get(module), name, None), Gantline)
    return f"Did you mean {module}:{name}?" if is_app else ""


def _only_app(module: Any) -> Gantline | None:
    apps = [value for value in vars(module).values() if isinstance(value, Gantline)]
    return apps[0] if len(apps) == 1 else None


pass_cli = click.make_pass_decorator(Cli)


def _look_everywhere(context: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    cli = context.find_object(Cli)
    if is_set and cli is not None:
        if cli.settings.value("tenant").source == FLAG:
            raise click.UsageError("Both --tenant and --all-tenants are given; name one of them.")
        cli.all_tenants = True


all_tenants_option = click.option(
    "--all-tenants",
    is_flag=True,
    expose_value=False,
    callback=_look_everywhere,
    help="Of every tenant.",
)
"""For commands that only look; `cli.scope` says it."""
