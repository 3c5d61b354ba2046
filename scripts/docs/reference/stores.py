"""What each store promises, from its capabilities."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from gantline.contract.capabilities import Capabilities
from gantline.contract.clock import SystemClock
from gantline.stores import store_from_url
from gantline.stores.redis.location import parse_url
from gantline.stores.redis.server import Server, capabilities
from scripts.docs import markdown
from scripts.docs.markdown import span_text, table

INTRODUCTION: Final = """\
From the capabilities that the stores themselves declare. `gantline doctor` shows those of the
store that is used, as it is configured; `StorageSettings(durability="power_loss")`
refuses to start on less. What to choose is described in [choosing a
store](../guides/choosing-a-store.md)."""

SURVIVES: Final = {
    "none": "nothing",
    "process": "the end of the process",
    "power_loss": "a power cut",
    "replicated": "the loss of a server",
}
WRITERS: Final = {
    "process": "one process",
    "host": "the processes of one host",
    "many": "many hosts",
}
FACTS: Final[tuple[tuple[str, Callable[[Capabilities], str]], ...]] = (
    ("an answered write survives", lambda store: SURVIVES[store.durability]),
    ("who may share it", lambda store: WRITERS[store.writers]),
    (
        "submit in your transaction",
        lambda store: "yes" if store.caller_transaction else "by an outbox",
    ),
    ("groups take turns", lambda store: "yes" if store.turns else "no"),
    ("limits and gates hold", lambda store: "yes" if store.limits else "no"),
    ("whose clock rules", lambda store: store.clock),
    ("an event can be read after", lambda store: _soon(store.event_lag)),
    ("counts are as old as", lambda store: _soon(store.count_staleness)),
    ("completed jobs are kept for", lambda store: _kept(store.retention.completed)),
    ("dead letters are kept for", lambda store: _kept(store.retention.poisoned)),
    ("a payload has at most", lambda store: f"{store.max_payload_bytes // 1024} KiB"),
    ("it is tried for", lambda store: _soon(store.patience)),
)


def _kept(span: timedelta | None) -> str:
    return "ever" if span is None else span_text(span)


def page() -> str:
    lost = ([name, store.ack_lost_on] for name, store in stores().items())
    return markdown.page(
        "What stores promise",
        INTRODUCTION,
        promises(),
        "## What can still lose an answered write",
        table(["store", ""], lost),
    )


def promises() -> str:
    """The stores beside each other."""
    found = stores()
    rows = ([name, *(fact(store) for store in found.values())] for name, fact in FACTS)
    return table(["", *found], rows)


def stores() -> dict[str, Capabilities]:
    """Each store as it is by default, and Redis as it may be configured."""
    return {
        "SQLite": _of("sqlite:///gantline.db"),
        "PostgreSQL": _of("postgresql://localhost/gantline"),
        "Redis, AOF always": _redis("always"),
        "Redis, AOF everysec": _redis("everysec"),
        "memory": _of("memory://"),
    }


def _of(url: str) -> Capabilities:
    return store_from_url(url, clock=SystemClock()).capabilities


def _redis(syncs: str) -> Capabilities:
    server = Server(
        software="Redis", version="7", appends=True, syncs=syncs, evicts="noeviction", replicas=0
    )
    return capabilities(server, parse_url("redis://localhost/0"))


def _soon(span: timedelta) -> str:
    return f"up to {span_text(span)}" if span else "at once"
