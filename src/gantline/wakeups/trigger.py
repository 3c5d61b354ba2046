"""Triggers: where they are exchanged, and their message on the wire."""

from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

import msgspec

from gantline.contract.errors import StoreMisconfigured

DEFAULT_EXCHANGE: Final = "gantline"
DEFAULT_ROUTING_KEY: Final = "jobs.trigger"
_SCHEMES: Final = ("amqp", "amqps")
# The broker counts as gone after three of them.
_HEARTBEAT_SECONDS: Final = 5
_NO_JOB: Final = UUID(int=0)


class Trigger(NamedTuple):
    """Where triggers are exchanged."""

    url: str
    exchange: str
    routing_key: str

    def __repr__(self) -> str:
        """Leave the URL out: it may hold a password."""
        return f"Trigger(exchange={self.exchange!r}, routing_key={self.routing_key!r})"


def split_broker_url(url: str, what: str) -> tuple[SplitResult, dict[str, str]]:
    """Split the URL of a RabbitMQ broker from its options; raise StoreMisconfigured."""
    try:
        parts = urlsplit(url)
        is_sound = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise StoreMisconfigured(
            f"The {what} is not the URL of a RabbitMQ broker.",
            next_step="Write amqp://user:password@host/vhost.",
        )
    return parts, dict(parse_qsl(parts.query, keep_blank_values=True))


def join_broker_url(parts: SplitResult, options: dict[str, str]) -> str:
    """Make the URL for the driver, with the options that are the driver's."""
    options.setdefault("heartbeat", str(_HEARTBEAT_SECONDS))
    return urlunsplit(parts._replace(query=urlencode(options)))


def parse_trigger(url: str) -> Trigger:
    """Read `amqp://…/vhost?exchange=…&routing_key=…`; other options go to the driver."""
    parts, options = split_broker_url(url, "trigger")
    exchange = options.pop("exchange", DEFAULT_EXCHANGE)
    routing_key = options.pop("routing_key", DEFAULT_ROUTING_KEY)
    if not exchange:
        raise StoreMisconfigured(
            "The trigger URL names no exchange.", next_step=f"Write exchange={DEFAULT_EXCHANGE}."
        )
    return Trigger(join_broker_url(parts, options), exchange, routing_key)


class _Message(msgspec.Struct):
    job_id: UUID


def encode_trigger(job_id: UUID | None) -> bytes:
    """`{"job_id": "<uuid>"}`, with the nil id where no job is to be named."""
    return msgspec.json.encode(_Message(job_id or _NO_JOB))


def is_trigger(body: bytes) -> bool:
    """Whether a message has our form. Which job it names does not matter: the store knows."""
    try:
        msgspec.json.decode(body, type=_Message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
