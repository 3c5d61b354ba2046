"""The memory store: for tests, trials and as the oracle of the conformance suite."""

from urllib.parse import urlsplit

from gantline.contract.clock import Clock
from gantline.contract.errors import StoreMisconfigured
from gantline.stores.memory.store import MemoryStore


def open_store(url: str, *, clock: Clock) -> MemoryStore:
    """Make a store of its own for `memory://`."""
    parts = urlsplit(url)
    if parts.netloc or parts.path.strip("/") or parts.query:
        raise StoreMisconfigured("A memory store takes no options.", next_step="Use memory://.")
    return MemoryStore(clock=clock)


__all__ = ["MemoryStore", "open_store"]
