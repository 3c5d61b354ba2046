"""The PostgreSQL store: for teams that outgrow one machine."""

from gantline.contract.clock import Clock, SystemClock
from gantline.stores.postgres.location import parse_url
from gantline.stores.postgres.store import PostgresStore


def open_store(url: str, *, clock: Clock | None = None) -> PostgresStore:
    """Make the store for `postgresql://…`; nothing is touched before it is opened.

    Time is the server's, and never the host's; another clock stands in for it, as in tests.
    """
    return PostgresStore(parse_url(url), clock=None if isinstance(clock, SystemClock) else clock)


__all__ = ["PostgresStore", "open_store"]
