"""The PostgreSQL store: for teams that outgrow one machine."""

from windlass.contract.clock import Clock
from windlass.stores.postgres.location import parse_url
from windlass.stores.postgres.store import PostgresStore


def open_store(url: str, *, clock: Clock | None = None) -> PostgresStore:
    """Make the store for `postgresql://…`; nothing is touched before it is opened.

    Time is the server's; a clock that is given stands in for it, as in tests.
    """
    return PostgresStore(parse_url(url), clock=clock)


__all__ = ["PostgresStore", "open_store"]
