"""Which store a command uses, who names it, and what else was named and does not count."""

from typing import NamedTuple

from gantline.app import Gantline
from gantline.app.settings import CODE, DEFAULT, FLAG, Settings, Value, without_secrets
from gantline.contract.clock import Clock
from gantline.contract.store import JobStore
from gantline.stores import store_from_url


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
        return _shown(self.source)

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


def place_of(store: JobStore, choice: StoreChoice) -> str:
    """Where the jobs are, for people to read: of a SQLite file its whole path."""
    file = store.capabilities.local_file
    return choice.url if file is None else str(file.absolute())


def _of_app(app: Gantline) -> Value:
    return Value(_shown(app.store_source), app.store_named_by)


def _shown(source: str | JobStore) -> str:
    return without_secrets(source) if isinstance(source, str) else "a store object of its own"


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
