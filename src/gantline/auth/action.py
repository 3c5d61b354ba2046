"""Actions that can be allowed; their values are the scopes of API keys and tokens."""

from enum import StrEnum
from typing import Final


class Action(StrEnum):
    SUBMIT = "jobs:submit"
    ROUTE = "jobs:route"
    """Submit to a queue that the job type does not declare, with a priority above its own, or in a
    group that the caller names, where the type has limits or groups of its own."""
    SUBMIT_FOR = "jobs:submit-for"
    """Submit in somebody else's name, who is then the owner; beside SUBMIT."""
    READ = "jobs:read"
    """Status, result, history, lists and event streams; everything but the payload."""
    READ_PAYLOAD = "jobs:payload"
    READ_ERRORS = "errors:read"
    """The type of the exception that caused an error; its text is never sent over HTTP."""
    CANCEL = "jobs:cancel"
    REDRIVE = "jobs:redrive"
    """Queue a dead job again. An edited redrive needs SUBMIT as well."""
    DELETE = "jobs:delete"
    STATISTICS = "stats:read"
    """Counts over all jobs of a tenant, limited to the job types of `scope`."""
    READ_TYPES = "types:read"
    """The job types that the principal may use, with their schemas."""
    MANAGE_TYPES = "types:manage"
    MANAGE_QUEUES = "queues:manage"
    READ_SCHEDULES = "schedules:read"
    """Schedules, without their payloads."""
    MANAGE_SCHEDULES = "schedules:manage"
    """Create, change, pause, run and remove them. What submits jobs needs SUBMIT as well."""
    MANAGE_WEBHOOKS = "webhooks:manage"
    MANAGE_KEYS = "keys:manage"
    READ_AUDIT = "audit:read"
    READ_WORKERS = "workers:read"
    """The worker processes that live: their hosts, what they serve."""
    RUN = "workers:run"
    """Run jobs, where the installation requires a key of its workers. No role gives it."""


INSTALLATION_WIDE: Final = frozenset(
    {Action.MANAGE_QUEUES, Action.MANAGE_TYPES, Action.ROUTE, Action.READ_WORKERS, Action.RUN}
)
"""What affects every tenant: a queue is paused, and a type is disabled, for all of them; they wait
behind what is put into their queue, or before them; and they share the workers."""
