"""The wake-up port: telling others, here or elsewhere, that there may be something to do."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol
from uuid import UUID


class Hint(Enum):
    """What there may be to do."""

    WORK = b"w"
    """Jobs may be due."""
    CANCEL = b"c"
    """A running job may have been cancelled."""
    SWITCHED = b"s"
    """A switch was thrown: something is paused, disabled, or goes on."""
    WATCHED = b"a"
    """Somebody waits for jobs to end: tell when some did, for a while."""
    ENDED = b"e"
    """Jobs that somebody waits for may have ended, or their events have been numbered."""

    SCHEDULED = b"t"
    """A schedule was made, changed or removed."""


OnHint = Callable[[Hint], None]


class Wakeup(Protocol):
    """Carries a hint between processes. It may be lost or come for nothing: workers poll too."""

    async def open(self, on_hint: OnHint | None) -> None:
        """Start listening, if given something to call; it is called in the caller's event loop."""
        ...

    def notify(self, hint: Hint = Hint.WORK, *, job_id: UUID | None = None) -> None:
        """Tell everybody, this process included. Never blocks and never raises.

        `job_id` is one of the jobs that it is about, for messages that people may look at.
        """
        ...

    @property
    def is_listening(self) -> bool:
        """Whether hints of other hosts come in now, as far as can be told."""
        ...

    async def close(self) -> None: ...


class PostgresChannel(NamedTuple):
    """Where the users of one PostgreSQL store can reach each other by NOTIFY."""

    conninfo: str
    name: str

    def __repr__(self) -> str:
        """Leave the connection out: it may hold a password."""
        return f"PostgresChannel({self.name!r})"


class RedisChannel(NamedTuple):
    """Where the users of one Redis store can reach each other by PUBLISH."""

    urls: tuple[str, ...]
    name: str
    any_server: bool
    """Whether every server passes on what it is told, as in a cluster; else only the primary."""

    def __repr__(self) -> str:
        """Leave the servers out: their URLs may hold a password."""
        return f"RedisChannel({self.name!r})"


Channel = PostgresChannel | RedisChannel
