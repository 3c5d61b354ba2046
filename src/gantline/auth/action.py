"""Everything that somebody can be allowed to do; the values are the scopes of keys and tokens."""

from enum import StrEnum
from typing import Final


class Action(StrEnum):
    SUBMIT = "jobs:submit"
    READ = "jobs:read"
    """Status, result, history, lists and event streams; everything but the payload."""
    READ_PAYLOAD = "jobs:payload"
    READ_ERRORS = "errors:read"
    """Of which type the exception behind an error was; what it said, nobody is told over HTTP."""
    CANCEL = "jobs:cancel"
    REDRIVE = "jobs:redrive"
    """Queue a dead job again. An edited redrive asks for SUBMIT as well."""
    DELETE = "jobs:delete"
    STATISTICS = "stats:read"
    """Counts over all jobs of a tenant. Tell `scope`'s job types only."""
    READ_TYPES = "types:read"
    """Which job types there are, with their schemas; the principal's only."""
    MANAGE_TYPES = "types:manage"
    MANAGE_QUEUES = "queues:manage"
    READ_SCHEDULES = "schedules:read"
    """Schedules, without their payloads."""
    MANAGE_SCHEDULES = "schedules:manage"
    """Make, change, pause, run and remove them. What submits jobs asks for SUBMIT as well."""
    MANAGE_WEBHOOKS = "webhooks:manage"
    MANAGE_KEYS = "keys:manage"
    READ_AUDIT = "audit:read"


INSTALLATION_WIDE: Final = frozenset({Action.MANAGE_QUEUES, Action.MANAGE_TYPES})
"""What touches every tenant: a queue is paused, and a type is disabled, for all of them."""
