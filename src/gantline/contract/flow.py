"""Flow: in which groups jobs take turns, and what limits and gates a claim must hold to."""

import hashlib
import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from gantline.contract.errors import InvalidInput
from gantline.contract.job import DEFAULT_TENANT

_NUMBER: Final = re.compile(r"[0-9]{1,19}")

LONGEST_CLOSED: Final = timedelta(days=1)
"""For so long a throttled run closes its gate at most."""

PLAIN: Final = 0
"""The number of jobs of the default tenant without a group: they take no turns among themselves."""


class Gate(msgspec.Struct, frozen=True):
    """Lets so many runs start a second, over the fleet and over all types that name it.

    In any window it lets through at most `per_second` times its length, and `burst`.
    """

    name: str
    per_second: float
    burst: int = 1


class TypeFlow(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim must hold to for one type, over the fleet; None: no limit.

    A permit is the lease: a run counts from its claim until it ends, whatever its lease says.
    """

    job_type: str
    running: int | None = None
    """So many runs of each group at once, whatever lane and priority they are of."""
    running_in_all: int | None = None
    """So many of the type at once."""
    gate: Gate | None = None


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """A group of which anything waits or runs, in one queue and type."""

    tenant_id: str
    group: str
    waiting: int
    """Queued jobs, counted up to a bound."""
    running: int
    oldest_due_at: datetime | None
    """Since when its longest-waiting job could have run; None where none is due."""


class GroupPage(msgspec.Struct, frozen=True):
    """Groups in whatever order the store likes, and where to go on, if there is more."""

    items: tuple[GroupState, ...]
    next: str = ""


class GateState(msgspec.Struct, frozen=True):
    """Until when a gate lets nothing through: because it was closed, and by its rate."""

    name: str
    closed_until: datetime | None = None
    next_at: datetime | None = None
    """When the next start would be due at an even rate; in the past, there is room for more."""


def read_position(after: str, numbers: int) -> list[int]:
    """Read where a page of groups begins; raise InvalidInput for what no page has named."""
    texts = after.split(":")
    if len(texts) == numbers and all(_NUMBER.fullmatch(one) for one in texts):
        found = [int(one) for one in texts]
        if max(found) < 2**63:
            return found
    raise no_such_position()


def no_such_position() -> InvalidInput:
    return InvalidInput(
        "The position of a page of groups is none that was given.", next_step="Begin without one."
    )


@lru_cache(maxsize=4096)
def group_number(tenant_id: str, group: str) -> int:
    """The number by which stores know a group: 63 bits, so positive in each of them.

    Without a name it is the tenant's. Groups of different tenants never are the same.
    """
    if tenant_id == DEFAULT_TENANT and not group:
        return PLAIN
    text = f"{len(tenant_id)}:{tenant_id}{group}".encode()
    # A hash that a server has too: PostgreSQL gives what is submitted there the same number.
    return (int.from_bytes(hashlib.sha256(text).digest()[:8]) >> 1) or 1
