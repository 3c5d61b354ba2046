"""The Redis store: the same promise at memory speed, on Redis 7 and Valkey."""

from gantline.contract.clock import Clock, SystemClock
from gantline.stores.redis.location import parse_url
from gantline.stores.redis.store import RedisStore


def open_store(url: str, *, clock: Clock | None = None) -> RedisStore:
    """Make the store for `redis://…`; nothing is touched before it is opened.

    Time is the server's, and never the host's; another clock stands in for it, as in tests.
    """
    return RedisStore(parse_url(url), clock=None if isinstance(clock, SystemClock) else clock)


__all__ = ["RedisStore", "open_store"]
