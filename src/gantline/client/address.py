"""The server's URL and the caller's API key, given or from the environment."""

import os
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from gantline.contract.errors import InvalidInput
from gantline.contract.version import __version__

URL_VARIABLE: Final = "GANTLINE_URL"
KEY_VARIABLE: Final = "GANTLINE_API_KEY"

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Address(NamedTuple):
    """Where the API is: everything before `/api`, without a slash at its end."""

    url: str
    is_encrypted: bool


class Setup(msgspec.Struct, frozen=True):
    """Where to, and the arguments of an httpx2 client. They hold the API key: never show them."""

    url: str
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        return f"Setup({self.url}, arguments hidden)"


def setup(url: str | None, api_key: str | None) -> Setup:
    """Read what was given, else the environment; raise InvalidInput."""
    given = url or os.environ.get(URL_VARIABLE)
    if not given:
        raise InvalidInput("No server is named.", next_step=f"Give its URL, or set {URL_VARIABLE}.")
    address = read_address(given)
    headers = {
        "accept": "application/json, application/problem+json",
        # Not compressed, for a small answer could unfold into a large one.
        "accept-encoding": "identity",
        "user-agent": f"gantline-client/{__version__}",
    }
    if key := api_key or os.environ.get(KEY_VARIABLE):
        headers["authorization"] = f"Bearer {_checked(key)}"
    arguments = {
        "headers": headers,
        "follow_redirects": False,
        # A proxy of the environment could read what goes unencrypted to this host.
        "trust_env": address.is_encrypted,
    }
    return Setup(address.url, arguments)


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


def _checked(key: str) -> str:
    if not key.isascii() or not key.isprintable() or " " in key.strip():
        raise InvalidInput(
            "The API key has characters that no key has.",
            next_step="Is it all of the key, and nothing else?",
        )
    return key.strip()
