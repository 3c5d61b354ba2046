"""Following jobs by an event stream (server-sent events), opened again where it broke off."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, NamedTuple

import msgspec

from gantline.api.documents import StatusDocument
from gantline.client.exchange import Retries, pause_before_again
from gantline.client.http import Http, Reply, Request, Unanswered
from gantline.contract.errors import BadAnswer
from gantline.contract.job_event import DomainDocument
from gantline.contract.status import Event
from gantline.runtime import random

RESET: Final = "reset"
_OF_JOBS: Final = frozenset({"state", "progress", *Event})
# The server says something every 15 seconds.
_SILENCE_SECONDS: Final = 45.0
# A stream that ends by itself is that of a server that stops, or one that is to be renewed.
_COME_BACK_SECONDS: Final = 0.5
_BROKEN_OFF: Final = Unanswered(reason="the event stream broke off", may_have_arrived=True)
_LARGEST_EVENT: Final = 1024 * 1024


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a job, or how it stands (`state`), or its progress.

    It is not a `JobEvent`, which has the job with its payload and the row of its history: a stream
    has neither, and `state` and `progress` have no such row.
    """

    event: str
    """`state`, `progress`, `reset`, what the job's history calls it (completed, retried …), or the
    type of a domain event."""
    status: StatusDocument | None
    """How the job stood right after it. None for a domain event, and for `reset`: events were
    missed that are not known any more, and how the jobs stand now comes next."""
    emitted: DomainDocument | None = None
    """The domain event; it comes before the end of its job."""
    last_event_id: str
    """By which to go on after this event later; empty where that is not possible yet."""


async def follow(
    http: Http,
    request: Request,
    retries: Retries,
    *,
    last_event_id: str,
    is_of_one_job: bool,
) -> AsyncGenerator[StreamEvent, None]:
    """Give events until the stream is over for good; raise what keeps it from being opened.

    The stream of one job is over when the job has ended. Only attempts in a row that bring nothing
    count as failed.
    """
    reader, failed = EventReader(last_event_id), 0
    while True:
        async with http.stream(_after(request, reader.last_id), _SILENCE_SECONDS) as answer:
            failed += 1
            if isinstance(answer, AsyncGenerator):
                async with aclosing(answer):
                    async for data in answer:
                        failed = 0
                        for sent in reader.read(data):
                            event = _event(sent)
                            yield event
                            if is_of_one_job and event.status and event.status.status.is_terminal:
                                return
                reader, answer = EventReader(reader.last_id), _BROKEN_OFF
        if isinstance(answer, Reply) and answer.status == 204:
            return
        if failed == 0:
            await asyncio.sleep(_COME_BACK_SECONDS)
        else:
            await asyncio.sleep(pause_before_again(request, answer, failed, retries, random()))


def _event(sent: "SentEvent") -> StreamEvent:
    if sent.name == RESET:
        return StreamEvent(event=RESET, status=None, last_event_id=sent.last_id)
    status, emitted = None, None
    try:
        if sent.name in _OF_JOBS:
            status = msgspec.json.decode(sent.data, type=StatusDocument)
        else:
            emitted = msgspec.json.decode(sent.data, type=DomainDocument)
    except (msgspec.DecodeError, RecursionError):
        raise BadAnswer("The server sends an event that is not of this API.") from None
    return StreamEvent(event=sent.name, status=status, emitted=emitted, last_event_id=sent.last_id)


def _after(request: Request, last_id: str) -> Request:
    if not last_id:
        return request
    headers = {**request.headers, "last-event-id": last_id}
    return msgspec.structs.replace(request, headers=headers)


class SentEvent(NamedTuple):
    """One event; or, without a name, only where the stream has got to."""

    name: str
    data: str
    last_id: str


class EventReader:
    """Takes bytes in, gives events out, as WHATWG has them.

    `last_id` is to be sent when coming back.
    """

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
        if len(self._rest) + self._size > _LARGEST_EVENT:
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
