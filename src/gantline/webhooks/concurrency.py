"""Limits on concurrent deliveries: of an endpoint, and of the slots that a tenant may hold.

A delivery that may not be sent now does not wait in its slot: it is postponed, each after the one
before, so that a backlog spreads over the time that it will take and few deliveries ask in vain.

An endpoint that does not respond holds its slots until its timeout. A tenant may have a hundred of
them, and one that responded well a moment ago may hang now. So endpoints that have not proved to be
fast get half of a tenant's quota, and a tenant that was slow lately gets half of the slots, unless
no other tenant needs them.
"""

from typing import Final
from uuid import UUID

import msgspec

SLOW_SECONDS: Final = 3.0
DEFAULT_SLOTS: Final = 10
_SHORTEST_WAIT_SECONDS: Final = 0.2

_TRIPS_AFTER: Final = 5
"""After so many failures in a row, only one delivery at a time tests whether it is up again."""
_FIRST_PAUSE_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 900.0
_SLOW_DIVISOR: Final = 4
_EXPECTED_SECONDS: Final = 0.02
_WEIGHT: Final = 0.3
_ENDPOINT_REMEMBERED_SECONDS: Final = 2 * _LONGEST_PAUSE_SECONDS

_TENANT_REMEMBERED_SECONDS: Final = 600.0
_LONGEST_TENANT_WAIT_SECONDS: Final = 120.0


class _Endpoint(msgspec.Struct):
    """What this process knows of an endpoint; instants are monotonic."""

    asked_at: float
    running: dict[UUID, float] = msgspec.field(default_factory=dict)
    is_proven: bool = False
    """Whether it responded fast the last time."""
    failures: int = 0
    paused_until: float = 0.0
    usual_seconds: float = _EXPECTED_SECONDS
    next_at: float = 0.0
    """When the last postponed delivery will ask again."""

    def seconds_each(self, now: float) -> float:
        """How long a delivery takes: as usual, or as long as one has been running by now."""
        return max(self.usual_seconds, *(now - began for began in self.running.values()), 0.0)


class EndpointLimits:
    """The limits of this process. A slow endpoint gets a quarter of its concurrency, one that is
    down a single delivery now and then, so that neither holds the slots that others need."""

    def __init__(self) -> None:
        self.quotas = TenantQuotas()
        self._endpoints: dict[UUID, _Endpoint] = {}
        self._forgot_at = 0.0

    def acquire(
        self, tenant_id: str, webhook_id: UUID, run: UUID, *, concurrency: int, now: float
    ) -> float | None:
        """Acquire a permit, or return after how many seconds to ask again. End it by `release`."""
        endpoint = self._endpoint(webhook_id, now)
        limit = self._limit(endpoint, concurrency, now)
        if now >= endpoint.paused_until and len(endpoint.running) < limit:
            return self._enter(tenant_id, endpoint, run, now)
        interval = endpoint.seconds_each(now) / limit
        endpoint.next_at = max(endpoint.next_at, endpoint.paused_until, now) + interval
        wait = endpoint.next_at - now
        if wait > _LONGEST_PAUSE_SECONDS:  # later ones ask together with the first ones
            endpoint.next_at = max(endpoint.paused_until, now)
        return min(max(wait, _SHORTEST_WAIT_SECONDS), _LONGEST_PAUSE_SECONDS)

    def acquire_for_test(
        self, tenant_id: str, webhook_id: UUID, run: UUID, now: float
    ) -> float | None:
        """As `acquire`, also where the endpoint is paused: somebody waits for the response."""
        return self._enter(tenant_id, self._endpoint(webhook_id, now), run, now)

    def release(
        self,
        tenant_id: str,
        webhook_id: UUID,
        run: UUID,
        *,
        is_up: bool,
        pause_seconds: float,
        now: float,
    ) -> None:
        """Release a permit: whether the endpoint is up, and how long to send nothing to it."""
        self.quotas.release(tenant_id, run, now=now)
        endpoint = self._endpoints[webhook_id]
        taken = now - endpoint.running.pop(run)
        endpoint.usual_seconds += _WEIGHT * (taken - endpoint.usual_seconds)
        endpoint.is_proven = is_up and taken <= SLOW_SECONDS
        if not is_up:
            endpoint.failures += 1
            pause_seconds = max(pause_seconds, _pause_after(endpoint.failures))
        elif endpoint.failures:
            endpoint.failures = 0
            endpoint.paused_until = endpoint.next_at = 0.0  # it is up again
        if pause_seconds:
            endpoint.paused_until = max(endpoint.paused_until, now + pause_seconds)

    def abandon(self, tenant_id: str, webhook_id: UUID, run: UUID, *, now: float) -> None:
        """Release a permit whose run was stopped: nothing was learnt of the endpoint."""
        self.quotas.release(tenant_id, run, now=now)
        self._endpoints[webhook_id].running.pop(run)

    def _enter(self, tenant_id: str, endpoint: _Endpoint, run: UUID, now: float) -> float | None:
        is_proven = endpoint.is_proven and endpoint.seconds_each(now) <= SLOW_SECONDS
        wait = self.quotas.acquire(tenant_id, run, is_proven=is_proven, now=now)
        if wait is None:
            endpoint.running[run] = now
        return wait

    def _endpoint(self, webhook_id: UUID, now: float) -> _Endpoint:
        if now - self._forgot_at > _ENDPOINT_REMEMBERED_SECONDS:
            self._forgot_at = now
            self._forget(before=now - _ENDPOINT_REMEMBERED_SECONDS)
        endpoint = self._endpoints.setdefault(webhook_id, _Endpoint(now))
        endpoint.asked_at = now
        return endpoint

    def _forget(self, *, before: float) -> None:
        """Forget endpoints without deliveries: most of them were deleted."""
        self.quotas.forget(before=before)
        for webhook_id in [
            one for one, it in self._endpoints.items() if not it.running and it.asked_at < before
        ]:
            del self._endpoints[webhook_id]

    def _limit(self, endpoint: _Endpoint, concurrency: int, now: float) -> int:
        concurrency = min(concurrency, _half(self.quotas.slots))
        if endpoint.failures >= _TRIPS_AFTER:
            return 1
        if endpoint.seconds_each(now) > SLOW_SECONDS:
            return max(1, concurrency // _SLOW_DIVISOR)
        return concurrency


class _Tenant(msgspec.Struct):
    """What this process knows of a tenant; instants are monotonic."""

    asked_at: float
    running: dict[UUID, float] = msgspec.field(default_factory=dict)
    unproven: set[UUID] = msgspec.field(default_factory=set)
    slow_until: float = 0.0
    next_at: float = 0.0
    """When the last postponed delivery will ask again."""

    def longest(self, now: float) -> float:
        return max((now - began for began in self.running.values()), default=0.0)

    def is_slow(self, now: float) -> bool:
        return now < self.slow_until or self.longest(now) > SLOW_SECONDS


class TenantQuotas:
    """How many of the slots of this process each tenant may hold."""

    def __init__(self, slots: int = DEFAULT_SLOTS) -> None:
        self.slots = slots
        self._tenants: dict[str, _Tenant] = {}

    def acquire(self, tenant_id: str, run: UUID, *, is_proven: bool, now: float) -> float | None:
        """Acquire a slot, or return after how many seconds to ask again. End it by `release`."""
        tenant = self._tenants.setdefault(tenant_id, _Tenant(now))
        tenant.asked_at = now
        quota = self._quota(tenant, now)
        if len(tenant.running) < quota and (is_proven or len(tenant.unproven) < _half(quota)):
            tenant.running[run] = now
            if not is_proven:
                tenant.unproven.add(run)
            return None
        tenant.next_at = max(tenant.next_at, now) + tenant.longest(now) / quota
        wait = tenant.next_at - now
        if wait > _LONGEST_TENANT_WAIT_SECONDS:  # later ones ask together with the first ones
            tenant.next_at = now
        return min(max(wait, _SHORTEST_WAIT_SECONDS), _LONGEST_TENANT_WAIT_SECONDS)

    def release(self, tenant_id: str, run: UUID, *, now: float) -> None:
        tenant = self._tenants[tenant_id]
        taken = now - tenant.running.pop(run)
        tenant.unproven.discard(run)
        if taken > SLOW_SECONDS:
            tenant.slow_until = now + _TENANT_REMEMBERED_SECONDS

    def forget(self, *, before: float) -> None:
        """Forget tenants that have asked for nothing since."""
        for tenant_id in [
            one for one, it in self._tenants.items() if not it.running and it.asked_at < before
        ]:
            del self._tenants[tenant_id]

    def _quota(self, tenant: _Tenant, now: float) -> int:
        is_halved = tenant.is_slow(now) and self._has_others(tenant, now)
        return _half(self.slots) if is_halved else self.slots

    def _has_others(self, tenant: _Tenant, now: float) -> bool:
        return any(
            other is not tenant and other.asked_at > now - _TENANT_REMEMBERED_SECONDS
            for other in self._tenants.values()
        )


def _half(slots: int) -> int:
    return max(1, slots // 2)


def _pause_after(failures: int) -> float:
    if failures < _TRIPS_AFTER:
        return 0.0
    doublings = min(failures - _TRIPS_AFTER, 10)
    return min(_FIRST_PAUSE_SECONDS * 2.0**doublings, _LONGEST_PAUSE_SECONDS)
