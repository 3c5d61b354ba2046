"""What a flow asks its driver to do, and what it is told: the whole border to the network.

A flow is a generator that decides and never waits or sends by itself. So there is one of each for
the blocking client and the asynchronous one, and a test can play the server by hand.
"""

from collections.abc import Generator, Mapping
from typing import Generic, TypeAlias, TypeVar
from uuid import UUID

import msgspec

R = TypeVar("R")
T = TypeVar("T")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, without the credentials, which only the driver has."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    job_id: UUID | None = None
    """The job that the path names, if it names one."""
    timeout_seconds: float
    """For all of it: connecting, sending, and reading the last byte of the answer."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, read to its end. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unanswered(msgspec.Struct, frozen=True, kw_only=True):
    """No answer, or not all of it."""

    reason: str
    may_have_arrived: bool
    """False where the request cannot have reached the server."""


class Send(msgspec.Struct, frozen=True):
    request: Request


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class Give(msgspec.Struct, Generic[T], frozen=True):
    """Hand an item to who iterates."""

    item: T


class Listen(msgspec.Struct, frozen=True):
    """Open a stream, in place of one that is open; it is closed when the feed has ended."""

    request: Request
    silence_seconds: float
    """After how long without a byte the stream is taken for dead."""


class Hear(msgspec.Struct, frozen=True):
    """Wait for what comes next on the stream."""


class Opened(msgspec.Struct, frozen=True):
    """The stream is open."""


class Heard(msgspec.Struct, frozen=True):
    """Some bytes of a stream; none at its end."""

    data: bytes


Answer: TypeAlias = Reply | Unanswered | Opened | Heard | None
"""A Send is answered with Reply or Unanswered, a Listen with Opened too, a Hear with Heard or
Unanswered; the other steps with None."""

Flow: TypeAlias = Generator[Send | Pause, Answer, R]
Feed: TypeAlias = Generator[Send | Pause | Give[T] | Listen | Hear, Answer, R]
