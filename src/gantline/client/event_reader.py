"""Reading server-sent events out of bytes as they come in, as WHATWG has them."""

from typing import Final, NamedTuple

from gantline.contract.errors import BadAnswer

_LARGEST: Final = 1024 * 1024


class SentEvent(NamedTuple):
    """One event; or, without a name, only where the stream has got to."""

    name: str
    data: str
    last_id: str


class EventReader:
    """Takes bytes in, gives events out. `last_id` is to be sent when coming back."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self._next_id = last_id
        self._rest = b""
        self._ended_by_return = False
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def read(self, received: bytes) -> list[SentEvent]:
        """The events that are complete now; raise BadAnswer for what has no end."""
        if not received:
            return []
        if self._ended_by_return and received.startswith(b"\n"):
            received = received[1:]  # the second half of the end of a line
        self._ended_by_return = received.endswith(b"\r")
        text = (self._rest + received).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = text.split(b"\n")
        events = [event for line in lines if (event := self._line(line)) is not None]
        if len(self._rest) + self._size > _LARGEST:
            raise BadAnswer("The server sends an event without end.")
        return events

    def _line(self, line: bytes) -> SentEvent | None:
        if not line:
            return self._complete()
        self._size += len(line)
        name, _, value = line.decode("utf-8", errors="replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self._next_id = value
        return None

    def _complete(self) -> SentEvent | None:
        self.last_id = self._next_id
        name, data = self._name, self._data
        self._name, self._data, self._size = "", [], 0
        return SentEvent(name or "message", "\n".join(data), self.last_id) if data else None
