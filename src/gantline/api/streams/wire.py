"""How events are written to a stream, as WHATWG's server-sent events have it."""

from typing import Final

RETRY: Final = b"retry: 3000\n\n"
_PING: Final = b": ping\n"


def event_text(name: str, data: bytes, *, number: int | None) -> bytes:
    """An event; one without a number leaves the client's Last-Event-ID as it is."""
    lines = b"\ndata: ".join(data.splitlines())
    head = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (head, name.encode("ascii"), lines)


def position_text(number: int) -> bytes:
    """Move the client's Last-Event-ID without an event."""
    return b"id: %d\n\n" % number


def ping_text(number: int | None) -> bytes:
    """A comment that keeps the connection, with the position reached, if there is a new one."""
    return _PING + (b"\n" if number is None else position_text(number))
