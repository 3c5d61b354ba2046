"""What commands call: a store, or a server before one.

Both have the verbs and the documents of the client, so that a command prints the same whoever
answers it, and a server is simply asked by the client. What only the holder of the store knows
(traces, workers) is None from a server. Each verb raises GantlineError.
"""

from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from gantline.api.documents import HistoryEntry, ListedJob
from gantline.cli.talk import say
from gantline.contract.status import JobStatus

if TYPE_CHECKING:
    from gantline.cli.server_backend import ServerBackend
    from gantline.cli.store_backend import StoreBackend

Backend: TypeAlias = "ServerBackend | StoreBackend"
Kind = Literal["queue", "type"]
MOST_EVENTS: Final = 100_000
"""Among how many of a store's newest events those of a tenant and a type are looked for."""
_MOST_SHOWN: Final = 10


class LoggedEntry(NamedTuple):
    """Something that happened to a job."""

    entry: HistoryEntry
    error_detail: str | None = None


class Found(NamedTuple):
    jobs: Sequence[ListedJob]
    has_more: bool


class SeenEvent(NamedTuple):
    """Something that happened to a job, and how the job stood then; or what it emitted."""

    at: datetime
    event: str
    job_id: UUID
    job_type: str
    status: JobStatus
    reason: str | None
    """Of a domain event what it is about: `PassportVersion:<id>`."""
    attempt: int | None
    error_code: str | None = None
    error_message: str | None = None
    tenant_id: str | None = None
    """None from a server: of the tenant that is asked for."""

    @property
    def is_domain_event(self) -> bool:
        return self.attempt is None


class TypeSeen(msgspec.Struct, frozen=True, rename="camel"):
    job_type: str
    queued: int
    running: int
    workers: int | None
    paused: bool
    disabled: bool


class Known(NamedTuple):
    """Names of queues or types: those that jobs have, those that workers serve, if known, and the
    types that the application declares."""

    seen: frozenset[str]
    served: frozenset[str] | None
    declared: frozenset[str] = frozenset()

    def say_if_unseen(self, kind: Kind, name: str) -> None:
        """A switch may be changed before the first job comes; but it may be a typing error too."""
        if name in self.seen | self.declared:
            return
        known = self.seen | self.declared | (self.served or frozenset())
        alike = get_close_matches(name, known, n=1)
        names = f"Is {alike[0]!r} meant?" if alike else _listed(kind, known)
        if self.served is None:
            say(f"There is no job of the {kind} {name!r} that can be seen here. {names}")
            return
        whom = "a worker serves it" if name in self.served else "no worker serves it"
        say(f"There is no job of the {kind} {name!r} in the store, and {whom}. {names}")


def _listed(kind: Kind, names: frozenset[str]) -> str:
    if not names:
        return f"No {kind} is known yet."
    shown = sorted(names)[:_MOST_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"Known are {', '.join(shown)}{more}."
