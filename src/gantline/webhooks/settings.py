"""Settings of webhooks, each with its default and unit."""

import ssl
from datetime import timedelta

from gantline.contract.bounds import CheckedStruct
from gantline.contract.errors import InvalidInput
from gantline.webhooks.ip_ranges import IpNetwork, read_networks
from gantline.webhooks.secret_encryption import Vault
from gantline.webhooks.url_guard import DEFAULT_PORTS, Resolve


class WebhookSettings(CheckedStruct, frozen=True, kw_only=True):
    """How webhooks are stored and sent; the defaults are safe."""

    vault: Vault
    """Keeps the endpoints' secrets."""
    allow: tuple[IpNetwork, ...] = ()
    """Networks that are not public and may be reached nevertheless, by any port and without TLS:
    `read_networks("10.1.0.0/16 fd12::/16")`."""
    ports: frozenset[int] = DEFAULT_PORTS
    """Ports by which public addresses may be reached."""
    source: str = "/gantline"
    """Names this installation in CloudEvents."""
    disable_after: timedelta = timedelta(days=5)
    """After how long of nothing but failures an endpoint is disabled."""
    most_endpoints: int = 100
    """How many a tenant may have."""
    cache_seconds: float = 1.0
    """How old what is known of endpoints may be: so soon a change counts in all processes."""
    resolve: Resolve | None = None
    """Looks names up; None is as the system does."""
    ssl_context: ssl.SSLContext | None = None
    """Whose certificates are trusted; None is as the system does."""


def read_allowed(text: str) -> tuple[IpNetwork, ...]:
    """Read the setting `webhook_allow`; raise InvalidInput."""
    try:
        return read_networks(text)
    except ValueError as error:
        raise InvalidInput(
            f"The setting webhook_allow cannot be read: {error}.",
            next_step="Write networks as 10.1.0.0/16 fd12::/16, separated by blanks.",
        ) from None


def read_ports(text: str) -> frozenset[int]:
    """Read the setting `webhook_ports`; raise InvalidInput."""
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdecimal() and 0 < int(part) < 65_536 for part in parts):
        raise InvalidInput(
            f"The setting webhook_ports is {text[:64]!r}.", next_step="Write it as 443 8443."
        )
    return frozenset(map(int, parts))
