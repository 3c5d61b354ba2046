"""The guard against server-side request forgery: where a webhook may be sent, and where not.

A URL is read by one strict pattern, and the request is made of what that found, so that no second
reader can understand it otherwise. Its name is resolved once, all its addresses are checked, and
to one of those very addresses the connection is made.
"""

import asyncio
import re
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from gantline.webhooks.addresses import Address, Network, is_public, is_within

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Look a name up: all its addresses, for a port."""

DEFAULT_PORTS: Final = frozenset({443})
_LONGEST_URL: Final = 2048
_LONGEST_NAME: Final = 253
_URL: Final = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/[A-Za-z0-9._~:/@!$&'()*+,;=%-]*)?(?:\?[A-Za-z0-9._~:/?@!$&'()*+,;=%-]*)?)"
)
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# What ends in a number is an IPv4 address to some readers: 2130706433, 0177.1, 0x7f.1.
_NUMERIC: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MOST_LOOKUPS: Final = 200
_MOST_LOOKUPS_OF_ONE: Final = 10


class TargetRefused(Exception):
    """Not sent. The text is for whoever made the endpoint, and names no address of ours."""


class Target(NamedTuple):
    """A URL, taken apart. `host` is as it is resolved and as certificates name it."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def literal(self) -> Address | None:
        """The address, where the host is one."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


def read_target(url: str) -> Target:
    """Take a URL apart; raise TargetRefused for all but the plainest form."""
    match = _URL.fullmatch(url) if len(url) <= _LONGEST_URL else None
    if match is None:
        raise TargetRefused(
            "is not a plain URL: https://, a host in ASCII (xn--… for other letters), a path; "
            "no user, no password, no fragment"
        )
    scheme, host = match["scheme"], match["host"].lower()
    port = int(match["port"] or (443 if scheme == "https" else 80))
    if not 0 < port < 65_536:
        raise TargetRefused("has a port that there is not")
    path = match["path"]
    return Target(scheme, _checked_host(host), port, path if path.startswith("/") else f"/{path}")


def _checked_host(host: str) -> str:
    try:
        if host.startswith("["):
            return str(IPv6Address(host[1:-1]))
        if _NUMERIC.fullmatch(host.rpartition(".")[2]):
            return str(IPv4Address(host))
    except ValueError:
        raise TargetRefused("has an address that is not written plainly") from None
    if len(host) > _LONGEST_NAME or not all(map(_LABEL.fullmatch, host.split("."))):
        raise TargetRefused("has a host that is no name")
    return host


class Guard:
    """Decides about targets. `allow` are networks of one's own that may be reached all the same.

    What is in them may be asked by any port and without encryption: an operator named them.
    """

    def __init__(
        self,
        *,
        allow: tuple[Network, ...] = (),
        ports: frozenset[int] = DEFAULT_PORTS,
        resolve: Resolve | None = None,
    ) -> None:
        self._allow = allow
        self._ports = ports
        self._resolve = resolve
        self._system = _Resolver()

    async def addresses(self, target: Target, *, whose: str) -> list[Address]:
        """Resolve a target; raise TargetRefused unless it may be asked at every address it has.

        `whose` is the tenant on whose account names are looked up."""
        found = await self._found(target, whose)
        if not found:
            raise TargetRefused("has a host that cannot be found")
        if all(is_within(address, self._allow) for address in found):
            return found
        if target.scheme != "https":
            raise TargetRefused("must start with https://")
        if target.port not in self._ports:
            raise TargetRefused(f"must use the port {_either(self._ports)}")
        if not all(is_public(one) or is_within(one, self._allow) for one in found):
            raise TargetRefused("leads to an address that is not public")
        return found

    async def check(self, url: str, *, whose: str) -> None:
        """Raise TargetRefused unless a URL may be asked, as far as that can be told now."""
        await self.addresses(read_target(url), whose=whose)

    async def _found(self, target: Target, whose: str) -> list[Address]:
        if (literal := target.literal) is not None:
            return [literal]
        try:
            if self._resolve is not None:
                texts = await self._resolve(target.host, target.port)
            else:
                texts = await self._system.resolve(target.host, target.port, whose=whose)
            return list(dict.fromkeys(map(ip_address, texts)))
        except (OSError, ValueError):  # no such name, or an address in a form of its own
            return []


class _Resolver:
    """The system's own way to look names up, each in a thread that no end of the process waits for.

    Looking up blocks and cannot be stopped, also when nobody waits for it any more. So a server of
    names that stands still must not stop the others: neither the loop, nor other tenants.
    """

    def __init__(self) -> None:
        self._under_way = Counter[str]()

    async def resolve(self, host: str, port: int, *, whose: str) -> Sequence[str]:
        under_way = self._under_way
        if under_way[whose] >= _MOST_LOOKUPS_OF_ONE or under_way.total() >= _MOST_LOOKUPS:
            raise OSError("too many names are being looked up")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def tell(answer: list[str] | OSError) -> None:
            self._end(whose)
            if found.done():  # nobody waits any more
                return
            if isinstance(answer, OSError):
                found.set_exception(answer)
            else:
                found.set_result(answer)

        def look() -> None:
            answer = _looked_up(host, port)
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(tell, answer)

        under_way[whose] += 1
        threading.Thread(target=look, name="gantline-resolver", daemon=True).start()
        return await found

    def _end(self, whose: str) -> None:
        self._under_way[whose] -= 1
        if not self._under_way[whose]:
            del self._under_way[whose]


def _looked_up(host: str, port: int) -> list[str] | OSError:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    return [str(address[0]) for *_, address in rows]


def _either(ports: frozenset[int]) -> str:
    return " or ".join(map(str, sorted(ports)))
