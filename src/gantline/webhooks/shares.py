"""Shares: how many of a worker's slots the deliveries of one tenant may hold.

An endpoint that hangs holds its slots until its timeout. A tenant may have a hundred of them, and
one that answered well a moment ago may hang now. So what has not proved to be quick has half of a
tenant's share, and a tenant that was slow lately half of the slots, unless nobody else is there.
"""

from typing import Final
from uuid import UUID

import msgspec

SLOW_SECONDS: Final = 3.0
DEFAULT_SLOTS: Final = 10
_REMEMBERED_SECONDS: Final = 600.0
_SHORTEST_WAIT_SECONDS: Final = 0.2
_LONGEST_WAIT_SECONDS: Final = 120.0


class _Tenant(msgspec.Struct):
    """What this process knows of a tenant; instants are monotonic."""

    asked_at: float
    running: dict[UUID, float] = msgspec.field(default_factory=dict)
    unproven: set[UUID] = msgspec.field(default_factory=set)
    slow_until: float = 0.0
    next_at: float = 0.0
    """When the last one that was put off will ask."""

    def longest(self, now: float) -> float:
        return max((now - began for began in self.running.values()), default=0.0)

    def is_slow(self, now: float) -> bool:
        return now < self.slow_until or self.longest(now) > SLOW_SECONDS


class Shares:
    """Of this process, which has so many slots for deliveries."""

    def __init__(self, slots: int = DEFAULT_SLOTS) -> None:
        self.slots = slots
        self._tenants: dict[str, _Tenant] = {}

    def take(self, tenant_id: str, run: UUID, *, is_proven: bool, now: float) -> float | None:
        """Take a slot, or tell after how many seconds to ask again. End it with `give_back`."""
        tenant = self._tenants.setdefault(tenant_id, _Tenant(now))
        tenant.asked_at = now
        share = self._share(tenant, now)
        if len(tenant.running) < share and (is_proven or len(tenant.unproven) < half(share)):
            tenant.running[run] = now
            if not is_proven:
                tenant.unproven.add(run)
            return None
        tenant.next_at = max(tenant.next_at, now) + tenant.longest(now) / share
        wait = tenant.next_at - now
        if wait > _LONGEST_WAIT_SECONDS:  # who comes behind these asks with them
            tenant.next_at = now
        return min(max(wait, _SHORTEST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)

    def give_back(self, tenant_id: str, run: UUID, *, now: float) -> None:
        tenant = self._tenants[tenant_id]
        taken = now - tenant.running.pop(run)
        tenant.unproven.discard(run)
        if taken > SLOW_SECONDS:
            tenant.slow_until = now + _REMEMBERED_SECONDS

    def forget(self, *, before: float) -> None:
        """Tenants that have asked for nothing since."""
        for tenant_id in [
            one for one, it in self._tenants.items() if not it.running and it.asked_at < before
        ]:
            del self._tenants[tenant_id]

    def _share(self, tenant: _Tenant, now: float) -> int:
        return (
            half(self.slots)
            if tenant.is_slow(now) and self._has_others(tenant, now)
            else self.slots
        )

    def _has_others(self, tenant: _Tenant, now: float) -> bool:
        return any(
            other is not tenant and other.asked_at > now - _REMEMBERED_SECONDS
            for other in self._tenants.values()
        )


def half(slots: int) -> int:
    return max(1, slots // 2)
