"""An operation: one method on one path, with all that is needed to serve and to document it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from gantline.api.answer import Answer
from gantline.api.call import Call
from gantline.api.sent import NoQuery, Sent
from gantline.auth.principal import Principal

Run = Callable[[Call], Awaitable[Answer]]


Identify = Callable[[Call], Awaitable[Principal | None]]


class Html:
    """Marks an answer that is a page."""


class EventText:
    """Marks an answer that is a stream of events."""


class RequestHeader(msgspec.Struct, frozen=True):
    """A header that an operation heeds; `schema` is its JSON Schema."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. `path` is written as Starlette has it; `:path` values may hold slashes."""

    name: str
    method: str
    path: str
    tag: str
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
    is_public: bool = False
    """Whether it is for everybody, without credentials."""
    identify: Identify | None = None
    """How to tell who asks, where that can be told otherwise than by credentials."""
