"""The SQLite store: the default, with nothing to install."""

from gantline.contract.clock import Clock
from gantline.stores.sqlite.location import parse_url
from gantline.stores.sqlite.store import SqliteStore


def open_store(url: str, *, clock: Clock) -> SqliteStore:
    """Make the store for `sqlite:///path`; nothing is touched before it is opened."""
    return SqliteStore(parse_url(url), clock=clock)


__all__ = ["SqliteStore", "open_store"]
