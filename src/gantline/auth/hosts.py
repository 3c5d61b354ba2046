"""Names of this host, by which a server that only this host can reach may be called.

A web page can have its own name lead to 127.0.0.1 (DNS rebinding): its browser then takes the
server for the page's own, and only `Host` shows that it is not.
"""

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def is_loopback(address: str) -> bool:
    """Whether a server that listens there can be reached from this host alone."""
    try:
        return address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False


def names_for(address: str, named: Collection[str] = ()) -> tuple[str, ...]:
    """By which names a server that listens there may be called; none: by any.

    `named` are those by which it is known elsewhere, to a proxy in front for example; `*` is any.
    """
    if "*" in named or not (named or is_loopback(address)):
        return ()
    return (*LOOPBACK, address.lower(), *(name.lower() for name in named))


def name_in(host: str) -> str:
    """The name that a `Host` header says, without the port."""
    given = host.strip().lower()
    if given.startswith("["):
        return given[1:].partition("]")[0]
    return given.partition(":")[0]
