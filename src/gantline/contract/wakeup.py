"""The wake-up port: notifying others, here or elsewhere, that there may be something to do."""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from gantline.runtime import monotonic

WINDOW_SECONDS: Final = 0.008
"""While busy, each hint is sent once in this time."""
_LAST_INSERTS: Final = 64


class Hint(Enum):
    """What there may be to do."""

    WORK = b"w"
    """Jobs may be due."""
    CANCEL = b"c"
    """A running job may have been cancelled."""
    SWITCHED = b"s"
    """A switch was changed: something is paused, disabled, or goes on."""
    WATCHED = b"a"
    """A client waits for jobs to end: notify when some did, for a while."""
    ENDED = b"e"
    """Jobs that a client waits for may have ended, or their events have been numbered."""

    SCHEDULED = b"t"
    """A schedule was made, changed or removed."""


OnHint = Callable[[Hint], None]


class Wakeup(Protocol):
    """Carries a hint between processes. It may be lost or come for nothing: workers poll too."""

    async def open(self, on_hint: OnHint | None) -> None:
        """Start listening, if given something to call; it is called in the caller's event loop.

        Return at once, without waiting for a server.
        """
        ...

    def notify(self, hint: Hint = Hint.WORK, *, job_id: UUID | None = None) -> None:
        """Notify everybody, this process included. Never blocks and never raises.

        `job_id` is one of the jobs that it is about, for messages that people may look at.
        """
        ...

    @property
    def is_listening(self) -> bool:
        """Whether hints of other hosts come in now, as far as is known."""
        ...

    async def close(self) -> None: ...


class PostgresChannel(NamedTuple):
    """Where the users of one PostgreSQL store can reach each other by NOTIFY."""

    conninfo: str
    name: str

    def __repr__(self) -> str:
        """Leave the connection out: it may hold a password."""
        return f"PostgresChannel({self.name!r})"


class EarlyHints:
    """Sent by a store in the write that makes work: workers get them a round trip earlier.

    While busy none is sent so, and one hint comes afterwards for many jobs at once.
    """

    def __init__(self, channel: str) -> None:
        """Without a channel none is ever sent."""
        self._channel = channel
        self._last = -WINDOW_SECONDS
        self._sent_for: dict[UUID, None] = {}

    def channel_to_notify(self) -> str:
        """The channel that the next write is to notify; empty if it was notified a moment ago."""
        now = monotonic()
        if now - self._last < WINDOW_SECONDS:
            return ""
        self._last = now
        return self._channel

    def note_sent(self, job_id: UUID) -> None:
        """Remember the first job of a write that sent one."""
        self._sent_for[job_id] = None
        if len(self._sent_for) > _LAST_INSERTS:
            del self._sent_for[next(iter(self._sent_for))]

    def were_sent_for(self, job_id: UUID | None) -> bool:
        return job_id in self._sent_for


class RedisChannel(NamedTuple):
    """Where the users of one Redis store can reach each other by PUBLISH."""

    urls: tuple[str, ...]
    name: str
    any_server: bool
    """Whether every server passes hints on, as in a cluster; else only the primary."""
    early_hints: EarlyHints

    def __repr__(self) -> str:
        """Leave the servers out: their URLs may hold a password."""
        return f"RedisChannel({self.name!r})"


Channel = PostgresChannel | RedisChannel
