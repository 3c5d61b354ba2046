"""Which rate limits there are."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from gantline.auth.principal import Principal
from gantline.auth.rate_limit import RateLimit
from gantline.contract.errors import InvalidInput

_NONE: Mapping[str, RateLimit] = MappingProxyType({})


class RateLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of requests per key and per tenant.

    A request counts for both. One that is denied costs neither a token nor a call of the store. A
    batch is one request; how many jobs may wait is for depth caps to say.
    """

    per_key: RateLimit | None = None
    """For every API key, or user of a token, that has no limit of its own; shared by all processes
    on one store."""
    per_tenant: RateLimit | None = None
    """The same for every tenant that has no limit of its own."""
    tenants: Mapping[str, RateLimit] = msgspec.field(default_factory=lambda: _NONE)
    """The limits of single tenants."""
    share_without_store: float = 0.25
    """Which part of a limit each process grants by itself while it cannot ask the store: neither
    everything nor nothing. With 0.25, four processes grant together what was meant."""
    per_key_here: RateLimit | None = RateLimit(1000.0, 2000)
    """For every key that has no other limit: in each process by itself, without the store."""
    per_tenant_here: RateLimit | None = RateLimit(2000.0, 4000)
    """The same for every tenant that has no other limit."""

    def __post_init__(self) -> None:
        if not 0 < self.share_without_store <= 1:
            raise InvalidInput(
                "share_without_store must be more than 0, and at most 1.",
                next_step="1 divided by the number of processes is a good choice.",
            )

    def of_key(self, principal: Principal) -> RateLimit | None:
        return principal.rate_limit or self.per_key

    def of_tenant(self, principal: Principal) -> RateLimit | None:
        return self.tenants.get(principal.tenant_id, self.per_tenant)
