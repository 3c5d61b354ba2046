"""What a trigger is: where it is exchanged, and the message that goes over the wire."""

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
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


def parse_trigger(url: str) -> Trigger:
    """Read `amqp://…/vhost?exchange=…&routing_key=…`; other options go to the driver."""
    try:
        parts = urlsplit(url)
        is_sound = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise StoreMisconfigured(
            "The trigger is not the URL of a RabbitMQ broker.",
            next_step="Write amqp://user:password@host/vhost.",
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    exchange = options.pop("exchange", DEFAULT_EXCHANGE)
    routing_key = options.pop("routing_key", DEFAULT_ROUTING_KEY)
    if not exchange:
        raise StoreMisconfigured(
            "The trigger URL names no exchange.", next_step=f"Write exchange={DEFAULT_EXCHANGE}."
        )
    options.setdefault("heartbeat", str(_HEARTBEAT_SECONDS))
    return Trigger(urlunsplit(parts._replace(query=urlencode(options))), exchange, routing_key)


class _Message(msgspec.Struct):
    job_id: UUID


def message(job_id: UUID | None) -> bytes:
    """`{"job_id": "<uuid>"}`, with the nil id where no job is to be named."""
    return msgspec.json.encode(_Message(job_id or _NO_JOB))


def is_trigger(body: bytes) -> bool:
    """Whether a message has our form. Which job it names does not matter: the store knows."""
    try:
        msgspec.json.decode(body, type=_Message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
