"""What a verification finds, and what it is held against."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""One without a zone compares to none of ours."""


class What(StrEnum):
    """What has been done to a chain."""

    EDITED = "edited"
    INSERTED = "inserted"
    REORDERED = "reordered"
    MISSING = "missing"
    TAIL_CUT = "tail-cut"


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that is wrong with a chain, and where."""

    tenant_id: str
    version: int | None
    """The first version that it is about; None where not even that can be told."""
    last_version: int | None = None
    """The last one, where it is about several."""
    aggregate: str = ""
    what: What
    detail: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a chain had come. Kept outside of the store, it shows what was cut off its end.

    An exported event is one too.
    """

    tenant_id: str
    version: int
    hash: str
    time: Instant


class Removed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What retention has removed: all up to a version, whose hash this was, older than that."""

    through: int
    hash: str
    count: int
    before: Instant
    actor: str = ""
    """Who removed it: the actor of the event that says so."""


class Verified(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was verified of one chain."""

    tenant_id: str
    events: int
    first_version: int | None
    last_version: int | None
    findings: list[Finding]
    removed: Removed | None = None
    """What is not there to be verified any more, as the chain says."""
