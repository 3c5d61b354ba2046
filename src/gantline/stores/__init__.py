"""Stores: the only layer that persists. A store is found by the scheme of its URL."""

import re
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from gantline.contract.clock import Clock
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.store import JobStore

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "gantline.stores"
# Nobody logs in by it, so that it can be repeated.
_PLAIN_NAME: Final = re.compile(r"[\w./-]+\.(?:db|sqlite3?)")


class StoreFactory(Protocol):
    """What a store package registers under its URL scheme. Must not do any I/O."""

    def __call__(self, url: str, *, clock: Clock) -> JobStore: ...


def store_from_url(url: str, *, clock: Clock) -> JobStore:
    """Make the store that a URL names; `open` it before use."""
    scheme = _scheme_of(url)
    if scheme is None:
        raise StoreMisconfigured(
            "The store URL cannot be read.",
            next_step="Percent-encode what is special in its password.",
        )
    if _PLAIN_NAME.fullmatch(url):
        raise StoreMisconfigured(f"{url!r} is not a URL.", next_step=f"Write sqlite:///{url}.")
    known = _registered()
    if scheme not in known:
        raise StoreMisconfigured(
            f"No store is known for the scheme {scheme!r} of the store URL.",
            next_step=f"Use one of: {', '.join(sorted(known))} (sqlite:///gantline.db is a start).",
        )
    try:
        factory: StoreFactory = known[scheme].load()
    except ModuleNotFoundError as error:
        extra = known[scheme].module.rpartition(".")[2]  # ours are named after their folder
        raise StoreMisconfigured(
            f"A {scheme} store needs the module {error.name}, which is not installed.",
            next_step=f"Run `pip install 'gantline[{extra}]'`.",
        ) from error
    return factory(url, clock=clock)


@cache
def _registered() -> "dict[str, EntryPoint]":
    """Once a process: it takes 4 ms to look through all that is installed."""
    from importlib.metadata import entry_points  # 15 ms that `import gantline` need not pay

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _scheme_of(url: str) -> str | None:
    """None where it is no URL. To say what is wrong with it would repeat the password."""
    try:
        return urlsplit(url).scheme.split("+")[0]
    except ValueError:
        return None
