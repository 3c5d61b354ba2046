"""Documents about limits, as they are sent: of types, of gates, and of groups that wait."""

from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from gantline.api.documents import Document, Instant
from gantline.api.envelopes import Name
from gantline.api.requests import Limit, Sent

LARGEST: Final = 1_000_000

Count = Annotated[int, Meta(ge=1, le=LARGEST)]
Rate = Annotated[str, Meta(max_length=32)]


class LimitsToSet(Sent, frozen=True, kw_only=True):
    """Limits that hold over those that code declares; null for no such limit.

    What is not sent stays as it is; but a new rate has a burst of its own where none is sent.
    `rate` is how many in a time: `100/s`, `10/m`, `500/h`, `50/d`.
    """

    running: Count | UnsetType | None = UNSET
    """Of each group."""
    running_in_all: Count | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    burst: Count | UnsetType = UNSET
    """How many may start at once after a quiet time."""
    gate: Name | UnsetType = UNSET
    """What the rate is named, to share it with other types."""

    @property
    def changes_gate(self) -> bool:
        return any(one is not UNSET for one in (self.rate, self.burst, self.gate))


class ClearQuery(Sent, frozen=True, kw_only=True):
    """What to clear."""

    declared: bool = False
    """Also what code has declared, until a worker that declares it starts."""


class GroupsQuery(Sent, frozen=True, kw_only=True):
    """Which groups to list."""

    queue: Name | None = None
    """That of the type, where none is named."""
    tenant_id: Name | None = None
    limit: Limit = 50
    cursor: Annotated[str, Meta(max_length=1024)] | None = None


class TypeLimits(Document, frozen=True, kw_only=True):
    """The limits of a type; null: none of that kind."""

    running: int | None
    """How many may run at once of each group."""
    running_in_all: int | None
    """How many may run at once of the type."""
    rate: str | None
    """How many may start in a time: `100/s`."""
    burst: int | None
    gate: str | None
    """What the rate is named; types that name the same one share it."""


class DeclaredLimits(TypeLimits, frozen=True, kw_only=True):
    """What a version of the code declares."""

    first_seen_at: Instant


class LimitDocument(TypeLimits, frozen=True, kw_only=True):
    """The limits that hold for a type, and where they come from."""

    job_type: str
    set: list[str]
    """Which of them an operator has set; the others are as declared."""
    set_by: str | None
    set_at: Instant | None
    declared: list[DeclaredLimits]
    """What code declares, the newest first: that one holds where an operator has set nothing."""


class LimitsDocument(Document, frozen=True, kw_only=True):
    """The limits of all types that have some, by name."""

    items: list[LimitDocument]


class GateDocument(Document, frozen=True, kw_only=True):
    """A gate, and whether it lets anything through."""

    gate: str
    rate: str
    burst: int
    job_types: list[str]
    """Those that share it."""
    closed: bool
    opens_at: Instant | None
    """When there is room again, where it is closed."""
    throttled: bool
    """Whether a run has closed it; else it is its rate."""


class GatesDocument(Document, frozen=True, kw_only=True):
    """All gates, by name."""

    items: list[GateDocument]


class GroupDocument(Document, frozen=True, kw_only=True):
    """A group of which jobs wait or run."""

    queue: str
    job_type: str
    tenant_id: str
    group: str
    """Empty: the tenant's jobs that are in no group of their own."""
    waiting: int
    """Counted up to a bound."""
    running: int
    oldest_due_at: Instant | None


class GroupsPage(Document, frozen=True, kw_only=True):
    """Groups, in no order; `nextCursor` leads on, null is the end."""

    items: list[GroupDocument]
    next_cursor: str | None
