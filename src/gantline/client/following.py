"""Following jobs by an event stream, which is opened again where it broke off."""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from gantline.api.documents import StatusDocument
from gantline.client.event_reader import EventReader, SentEvent
from gantline.client.exchange import Retries, pause_before_again
from gantline.client.steps import (
    Feed,
    Give,
    Hear,
    Heard,
    Listen,
    Opened,
    Pause,
    Reply,
    Request,
    Unanswered,
)
from gantline.contract.errors import BadAnswer

RESET: Final = "reset"
# The server says something every 15 seconds.
_SILENCE_SECONDS: Final = 45.0
# A stream that ends by itself is that of a server that stops, or one that is to be renewed.
_COME_BACK_SECONDS: Final = 0.5
_BROKEN_OFF: Final = Unanswered(reason="the event stream broke off", may_have_arrived=True)


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a job, or how it stands (`state`), or its progress."""

    event: str
    """`state`, `progress`, `reset`, or what the job's history calls it: completed, retried …"""
    status: StatusDocument | None
    """How the job stood right after it. None for `reset`: something was missed that cannot be told
    any more, and how the jobs stand now comes next."""
    last_event_id: str
    """By which to go on behind this event later; empty where that is not possible yet."""


class _Ending(NamedTuple):
    is_over: bool
    has_heard: bool


def follow(
    request: Request,
    retries: Retries,
    *,
    last_event_id: str,
    is_of_one_job: bool,
    chance: Callable[[], float],
) -> Feed[JobEvent, None]:
    """Give events until the stream is over for good; raise what keeps it from being opened.

    The stream of one job is over when the job has ended. Only attempts in a row that bring nothing
    count as failed.
    """
    reader, failed = EventReader(last_event_id), 0
    while True:
        answer = yield Listen(_behind(request, reader.last_id), _SILENCE_SECONDS)
        if isinstance(answer, Opened):
            ending = yield from _events(reader, is_of_one_job)
            if ending.is_over:
                return
            reader = EventReader(reader.last_id)
            failed = 0 if ending.has_heard else failed + 1
            answer = _BROKEN_OFF
        else:
            failed += 1
        assert isinstance(answer, Reply | Unanswered)  # noqa: S101  # as drivers answer a Listen
        if isinstance(answer, Reply) and answer.status == 204:
            return
        if failed == 0:
            yield Pause(_COME_BACK_SECONDS)
        else:
            yield Pause(pause_before_again(request, answer, failed, retries, chance()))


def _events(reader: EventReader, is_of_one_job: bool) -> Feed[JobEvent, _Ending]:
    has_heard = False
    while True:
        heard = yield Hear()
        if not isinstance(heard, Heard) or not heard.data:
            return _Ending(False, has_heard)
        has_heard = True
        for sent in reader.read(heard.data):
            event = _event(sent)
            yield Give(event)
            if is_of_one_job and event.status and event.status.status.is_terminal:
                return _Ending(True, has_heard)


def _event(sent: SentEvent) -> JobEvent:
    if sent.name == RESET:
        return JobEvent(event=RESET, status=None, last_event_id=sent.last_id)
    try:
        status = msgspec.json.decode(sent.data, type=StatusDocument)
    except (msgspec.DecodeError, RecursionError):
        raise BadAnswer("The server sends an event that is not of this API.") from None
    return JobEvent(event=sent.name, status=status, last_event_id=sent.last_id)


def _behind(request: Request, last_id: str) -> Request:
    if not last_id:
        return request
    headers = {**request.headers, "last-event-id": last_id}
    return msgspec.structs.replace(request, headers=headers)
