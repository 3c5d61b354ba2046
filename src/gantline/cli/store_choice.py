"""Which store a command uses, who names it, and whether it is there."""

import os
from typing import Final, NamedTuple

from gantline.app import Gantline
from gantline.app.settings import CODE, DEFAULT, FLAG, Settings, Value
from gantline.contract.clock import Clock
from gantline.contract.errors import SchemaMismatch, StoreMisconfigured
from gantline.contract.store import JobStore
from gantline.stores import store_from_url
from gantline.stores.migrations import migrator_of, plan
from gantline.telemetry.store_names import shown_source, store_name

MAKE_IT: Final = "Make it with `gantline db migrate`, or name another by --store or --app."
NAME_APPLICATION: Final = (
    "Name your application (`--app module:name` or GANTLINE_APP): it says where its jobs are. "
    "Or name a store by --store."
)
"""Where nothing is named: a store that is made here would be a second one, and empty."""


class StoreChoice(NamedTuple):
    """A store, by URL or as the application's own object, and by whom it is named."""

    source: str | JobStore
    named_by: str
    passed_over: Value | None = None
    """Another store that is named too; None where all agree."""

    def make(self, clock: Clock) -> JobStore:
        source = self.source
        return store_from_url(source, clock=clock) if isinstance(source, str) else source

    @property
    def url(self) -> str:
        """For people to read."""
        return shown_source(self.source)

    @property
    def why(self) -> str:
        return _named_by(self.named_by)

    @property
    def warning(self) -> str:
        """What to know about the store that was passed over; empty where there is none."""
        if self.passed_over is None:
            return ""
        name, other = self.passed_over.source, self.passed_over.shown
        if self.named_by == FLAG:
            return (
                f"The application itself uses {other} ({_named_by(name)}): what it submits in "
                f"another process does not come here."
            )
        return (
            f"{name} names {other}, which is not used, because the code names a store. "
            f"To follow the setting write Gantline() in the code; for one command give --store."
        )


def choose_store(settings: Settings, app: Gantline | None) -> StoreChoice:
    """The store that a flag names, else the application's, else that of the settings."""
    named = settings.value("store")
    if app is None:
        return StoreChoice(named.text, named.source)
    agree = named.text == app.store_source
    if named.source == FLAG:
        return StoreChoice(named.text, FLAG, None if agree else _of_app(app))
    is_passed_over = app.store_named_by == CODE and named.source != DEFAULT and not agree
    return StoreChoice(app.store_source, app.store_named_by, named if is_passed_over else None)


def store_label(store: JobStore, choice: StoreChoice) -> str:
    """Where the jobs are, for people to read."""
    return store_name(store, choice.source)


def _of_app(app: Gantline) -> Value:
    return Value(shown_source(app.store_source), app.store_named_by)


def _named_by(source: str) -> str:
    match source:
        case "flag":
            return "named by --store"
        case "code":
            return "named in the code"
        case "default":
            return "the default"
        case _ if source.endswith(".toml"):
            return f"named in {source}"
        case _:
            return f"named by {source}"


async def refuse_unless_ready(store: JobStore, label: str, *, next_step: str) -> None:
    """Raise a StoreError where opening the store would make a file or a schema.

    Looking must neither create nor change one.
    """
    if not _is_there(store):
        raise StoreMisconfigured(f"There is no store file {label}.", next_step=next_step)
    if _is_no_file(store) or not hasattr(store, "migrator"):
        return  # opening it shows what it is; or it would make nothing
    migrator = migrator_of(store)
    applied = await migrator.applied()
    if not applied:
        raise StoreMisconfigured(f"There is no schema of ours in {label} yet.", next_step=next_step)
    if missing := plan(migrator.known, applied):
        raise SchemaMismatch(
            f"The store {label} has schema {applied[-1].number}; this version of Gantline needs "
            f"{missing[-1].number}.",
            next_step="Run `gantline db migrate`.",
        )


def _is_there(store: JobStore) -> bool:
    file = store.capabilities.local_file
    return file is None or os.path.exists(file)  # Path.exists raises where a name is too long


def _is_no_file(store: JobStore) -> bool:
    file = store.capabilities.local_file
    return file is not None and not os.path.isfile(file)
