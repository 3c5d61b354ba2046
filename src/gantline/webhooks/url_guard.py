"""The guard against server-side request forgery: which URLs webhooks may be sent to.

A URL is parsed by one strict pattern, and the request is made of the parts that it found, so that
no second parser can read it differently. Its name is resolved once, all its addresses are checked,
and the connection is made to one of those addresses.
"""

import asyncio
import logging
import re
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from gantline.runtime import start_thread
from gantline.webhooks.ip_ranges import IpAddress, IpNetwork, is_public, is_within

_log = logging.getLogger("gantline.webhooks")

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
# What ends in a number is an IPv4 address to some parsers: 2130706433, 0177.1, 0x7f.1.
_NUMERIC: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_UNLESS_ALLOWED: Final = ", unless an operator allows its network: GANTLINE_WEBHOOK_ALLOW"
_RESOLVE_SECONDS: Final = 10.0
_MOST_LOOKUPS: Final = 200
_MOST_LOOKUPS_OF_A_TENANT: Final = 10


class TargetRefused(Exception):
    """Not sent. The text is for the owner of the endpoint.

    It is the same whatever its name leads to, or whether there is such a name: else a tenant could
    find out by it what there is in our network. The log has the cause, and so has `cause`, for an
    operator.
    """

    def __init__(self, text: str, *, cause: str = "") -> None:
        super().__init__(text)
        self.cause = cause


class WebhookTarget(NamedTuple):
    """A parsed URL. `host` is as it is resolved and as certificates name it."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def literal(self) -> IpAddress | None:
        """The address, where the host is one."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


def parse_target(url: str) -> WebhookTarget:
    """Parse a URL; raise TargetRefused for all but the plainest form."""
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
    return WebhookTarget(
        scheme, _check_host(host), port, path if path.startswith("/") else f"/{path}"
    )


def _check_host(host: str) -> str:
    try:
        if host.startswith("["):
            return str(IPv6Address(host[1:-1]))
        if _NUMERIC.fullmatch(host.rpartition(".")[2]):
            return str(IPv4Address(host))
    except ValueError:
        raise TargetRefused("has an address that is not written plainly") from None
    if len(host) > _LONGEST_NAME or not all(map(_LABEL.fullmatch, host.split("."))):
        raise TargetRefused("has a host that is not a name")
    return host


class UrlGuard:
    """Decides about targets. `allow` are internal networks that may be reached.

    Addresses in them may be reached by any port and without TLS: an operator named them.
    """

    def __init__(
        self,
        *,
        allow: tuple[IpNetwork, ...] = (),
        ports: frozenset[int] = DEFAULT_PORTS,
        resolve: Resolve | None = None,
    ) -> None:
        self._allow = allow
        self._ports = ports
        self._resolve = resolve
        self._system = _Resolver()

    async def addresses(self, target: WebhookTarget, *, tenant_id: str) -> list[IpAddress]:
        """Resolve a target; raise TargetRefused unless it may be reached at every address it has.

        Lookups are limited by tenant."""
        found = await self._find(target, tenant_id)
        if problem := self._problem(target, found):
            raise self._refused(target, problem, tenant_id)
        return found

    def _problem(self, target: WebhookTarget, found: list[IpAddress]) -> str:
        if not found:
            return "it cannot be found"
        if all(is_within(address, self._allow) for address in found):
            return ""
        if target.scheme != "https":
            return "it is not asked by https"
        if target.port not in self._ports:
            return f"it is asked by the port {target.port}"
        if all(is_public(one) or is_within(one, self._allow) for one in found):
            return ""
        return f"it leads to {', '.join(map(str, found))}, which is not all public"

    def _refused(self, target: WebhookTarget, problem: str, tenant_id: str) -> TargetRefused:
        _log.info("no webhook of tenant %s may go to %s: %s", tenant_id, target.host, problem)
        return TargetRefused(
            "must lead to public addresses only, by https and the port "
            f"{_join_ports(self._ports)}{_UNLESS_ALLOWED}",
            cause=f"No webhook may go to {target.host}: {problem}.",
        )

    async def check(self, url: str, *, tenant_id: str) -> None:
        """Raise TargetRefused unless a URL may be reached, as its name resolves now and soon."""
        target = parse_target(url)
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                await self.addresses(target, tenant_id=tenant_id)
        except TimeoutError:
            raise self._refused(target, "it is not found soon", tenant_id) from None

    async def _find(self, target: WebhookTarget, tenant_id: str) -> list[IpAddress]:
        if (literal := target.literal) is not None:
            return [literal]
        try:
            if self._resolve is not None:
                texts = await self._resolve(target.host, target.port)
            else:
                texts = await self._system.resolve(target.host, target.port, tenant_id=tenant_id)
            return list(dict.fromkeys(map(ip_address, texts)))
        except (OSError, ValueError):  # no such name, or an address that cannot be read
            return []


class _Resolver:
    """Looks names up with the system's resolver, each in a daemon thread.

    A lookup blocks and cannot be cancelled. So a name server that does not respond must not stop
    the loop, nor the lookups of other tenants.
    """

    def __init__(self) -> None:
        self._running = Counter[str]()

    async def resolve(self, host: str, port: int, *, tenant_id: str) -> Sequence[str]:
        running = self._running
        if running[tenant_id] >= _MOST_LOOKUPS_OF_A_TENANT or running.total() >= _MOST_LOOKUPS:
            raise OSError("too many names are being looked up")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def set_result(result: list[str] | OSError) -> None:
            self._end(tenant_id)
            if found.done():  # nobody waits for it
                return
            if isinstance(result, OSError):
                found.set_exception(result)
            else:
                found.set_result(result)

        def run() -> None:
            result = _look_up(host, port)
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(set_result, result)

        running[tenant_id] += 1
        start_thread(run, "gantline-resolver")
        return await found

    def _end(self, tenant_id: str) -> None:
        self._running[tenant_id] -= 1
        if not self._running[tenant_id]:
            del self._running[tenant_id]


def _look_up(host: str, port: int) -> list[str] | OSError:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    return [str(address[0]) for *_, address in rows]


def _join_ports(ports: frozenset[int]) -> str:
    return " or ".join(map(str, sorted(ports)))
