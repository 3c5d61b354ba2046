"""An operation: one method on one path, with all that is needed to serve and to document it.

Parts are what the operations share.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from gantline.api.access import Access
from gantline.api.call import Call, Identify
from gantline.api.port import Jobs
from gantline.api.requests import NoQuery, Sent
from gantline.api.responses import Responses
from gantline.api.seal import SealKeeper
from gantline.api.settings import ApiSettings
from gantline.api.streams.identity import Identity
from gantline.api.streams.streams import Streams
from gantline.api.submitting import Submitter
from gantline.auth.action import Action
from gantline.auth.stream_tokens import StreamTokens

Run = Callable[[Call], Awaitable[Response]]


class Html:
    """Marks a response that is a page."""


class EventText:
    """Marks a response that is a stream of events."""


class RequestHeader(msgspec.Struct, frozen=True):
    """A header that an operation heeds; `schema` is its JSON Schema."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Operation(msgspec.Struct, frozen=True):
    """One operation. `path` is written as Starlette has it; `:path` values may hold slashes."""

    name: str
    method: str
    path: str
    tag: str
    right: Action | None
    """What the caller must be allowed to do; None where it is for everybody, without credentials.
    What depends on what was sent, or is left out of an answer, is asked for by the operation."""
    summary: str
    run: Run
    answers: Mapping[int, Any]
    """The document of each status that is no problem; None for no body, Html for a page, EventText
    for a stream."""
    problems: tuple[str, ...] = ()
    """The codes of problems that only this operation has."""
    query: type[Sent] = NoQuery
    body: Any = None
    """What the body is decoded into; None where none is read."""
    body_shown: Any = None
    """What the documentation says the body is, where it is decoded in steps."""
    headers: tuple[RequestHeader, ...] = ()
    identify: Identify | None = None
    """How to identify the caller, where that is possible otherwise than by credentials."""
    read: Callable[[Call], Awaitable[None]] | None = None
    """How to read what was sent, where that is not a query and a body of JSON."""
    is_long: bool = False
    """Whether it is about many things, or reckons long, so that few of one tenant may go on at a
    time."""

    @property
    def has_body(self) -> bool:
        return self.body is not None or self.read is not None


class Parts(NamedTuple):
    """What the operations share, made once per API."""

    jobs: Jobs
    settings: ApiSettings
    responses: Responses
    access: Access
    submitter: Submitter
    seals: SealKeeper
    streams: Streams
    stream_identity: Identity
    stream_tokens: StreamTokens | None


class Operations:
    """The operations about one thing, each a method that answers a call."""

    def __init__(self, parts: Parts) -> None:
        self._jobs = parts.jobs
        self._settings = parts.settings
        self._responses = parts.responses
        self._access = parts.access
        self._submitter = parts.submitter
        self._seals = parts.seals
        self._streams = parts.streams
