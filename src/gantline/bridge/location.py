"""Where a bridge leads: the URL of a broker, and how its exchanges are called."""

from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from gantline.contract.errors import StoreMisconfigured

_SCHEMES: Final = ("amqp", "amqps")
# The broker counts as gone after three of them.
_HEARTBEAT_SECONDS: Final = 5


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """A bridge's broker and names, read from a URL."""

    url: str
    exchange: str = "gantline.jobs"
    """Envelopes are published there, by the name of their type; also the prefix of our queues."""
    outcomes: str = "gantline.outcomes"
    """Outcomes are published there, as `job.completed.<type>`; empty for none."""
    tenant: str = ""
    """Whose jobs come in; empty for the application's own tenant."""
    trusts_tenant: bool = False
    """Whether envelopes may name the tenant themselves."""
    prefetch: int = 200
    """How many messages of a type may be under way."""

    def __repr__(self) -> str:
        """Leave the URL out: it may hold a password."""
        return f"Location(exchange={self.exchange!r}, outcomes={self.outcomes!r})"

    def queue(self, job_type: str) -> str:
        return f"{self.exchange}.{job_type}"

    @property
    def dead_letters(self) -> str:
        """Where messages end that can never become a job."""
        return f"{self.exchange}:dead"


def parse_location(url: str) -> Location:
    """Read `amqp://…/vhost?exchange=…&tenant=…`; options that are not ours go to the driver."""
    try:
        parts = urlsplit(url)
        is_sound = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise StoreMisconfigured(
            "The bridge is not the URL of a RabbitMQ broker.",
            next_step="Write amqp://user:password@host/vhost.",
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {
        name: options.pop(name)
        for name in ("exchange", "outcomes", "tenant", "trusts_tenant", "prefetch")
        if name in options
    }
    if ours.get("trusts_tenant") in ("yes", "no"):
        ours["trusts_tenant"] = "true" if ours["trusts_tenant"] == "yes" else "false"
    options.setdefault("heartbeat", str(_HEARTBEAT_SECONDS))
    clean = urlunsplit(parts._replace(query=urlencode(options)))
    try:
        location = msgspec.convert({"url": clean} | ours, Location, strict=False)
    except msgspec.ValidationError as error:
        raise StoreMisconfigured(f"The bridge's URL cannot be read: {error}.") from None
    if not location.exchange or not 1 <= location.prefetch <= 65_535:
        raise StoreMisconfigured(
            "The bridge's URL names no exchange, or a prefetch that is not from 1 to 65535."
        )
    return location
