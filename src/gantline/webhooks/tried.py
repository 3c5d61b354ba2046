"""What is kept of a try: enough to see what the receiver said, and never much of it."""

import re
from typing import Final

import msgspec

from gantline.contract.snapshot import LogEntry
from gantline.contract.webhook import DeliveryAttempt
from gantline.webhooks.sender import Answer, NoAnswer

_MOST_BODY: Final = 2048
_MOST_HEADERS: Final = 32
_MOST_IN_HEADERS: Final = 2000
_NOT_KEPT: Final = frozenset({"set-cookie", "set-cookie2", "authorization", "proxy-authorization"})
# They would be six characters each in JSON, and could write to a terminal.
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class Tried(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Kept as the result of the run that delivered, or in the detail of one that failed."""

    http_status: int | None = None
    latency_seconds: float
    response_headers: dict[str, str] = msgspec.field(default_factory=dict)
    response_body: str = ""

    @classmethod
    def of(cls, answer: Answer | NoAnswer) -> "Tried":
        seconds = round(answer.seconds, 6)
        if isinstance(answer, NoAnswer):
            return cls(latency_seconds=seconds)
        return cls(
            http_status=answer.status,
            latency_seconds=seconds,
            response_headers=_kept_headers(answer),
            response_body=_plain(answer.body.decode("utf-8", "replace")[:_MOST_BODY]),
        )

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_NOTHING: Final = Tried(latency_seconds=0.0)


def tried_in(entry: LogEntry) -> Tried | None:
    """What a row of the log tells about a try; None where nothing was sent."""
    text: bytes | str = entry.result or (entry.error.detail if entry.error else "")
    try:
        return msgspec.json.decode(text, type=Tried)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def attempt_of(entry: LogEntry) -> DeliveryAttempt:
    tried, error = tried_in(entry), entry.error
    known = tried or _NOTHING
    return DeliveryAttempt(
        attempt=entry.attempt,
        started_at=entry.started_at,
        ended_at=entry.at,
        http_status=known.http_status,
        latency_seconds=tried.latency_seconds if tried else None,
        error_code=error.code if error else None,
        error_message=error.message if error else None,
        response_headers=known.response_headers,
        response_body=known.response_body,
    )


def _kept_headers(answer: Answer) -> dict[str, str]:
    kept: dict[str, str] = {}
    room = _MOST_IN_HEADERS
    for name, value in answer.headers[:_MOST_HEADERS]:
        if name in _NOT_KEPT:
            continue
        name, value = _plain(name), _plain(value)[:room]
        room -= len(name) + len(value)
        if room < 0:
            break
        kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return kept


def _plain(text: str) -> str:
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
