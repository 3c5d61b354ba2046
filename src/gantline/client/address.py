"""The server's address: https, or this very machine where that is what is named."""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gantline.contract.errors import InvalidInput

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Address(NamedTuple):
    """Where the API is: everything before `/api`, without a slash at its end."""

    url: str
    is_encrypted: bool


def read_address(url: str) -> Address:
    """Raise InvalidInput for what is no address, or one on the way to which the key is seen."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _unusable("it cannot be read") from None
    if parts.username or parts.password:
        raise _unusable("it holds a password, which belongs into no URL")
    if parts.scheme not in ("http", "https") or not host:
        raise _unusable("it does not start with https:// and a host")
    if parts.query or parts.fragment:
        raise _unusable("it has a query")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise _unusable(f"without https everybody on the way to {host} could read the API key")
    path = parts.path.rstrip("/").removesuffix("/api")
    return Address(f"{parts.scheme}://{parts.netloc}{path}", parts.scheme == "https")


def _unusable(why: str) -> InvalidInput:
    return InvalidInput(
        f"The server's URL cannot be used: {why}.",
        next_step="Write it as https://jobs.example.com, or http://localhost:8080 for this host.",
    )
