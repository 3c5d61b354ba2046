"""The SQLite store: the default, with nothing to install."""

from windlass.contract.clock import Clock
from windlass.stores.sqlite.location import parse_url
from windlass.stores.sqlite.store import SqliteStore


def open_store(url: str, *, clock: Clock) -> SqliteStore:
    """Make the store for `sqlite:///path`; nothing is touched before it is opened."""
    return SqliteStore(parse_url(url), clock=clock)


__all__ = ["SqliteStore", "open_store"]
