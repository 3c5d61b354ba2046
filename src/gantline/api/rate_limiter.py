"""The rate limiter: whether who asks may ask now, by the limits of his key and of his tenant."""

import math
from typing import Final

from gantline.api.call import Call
from gantline.api.leased_bucket import LeasedBucket, Verdict
from gantline.api.port import Jobs
from gantline.api.rate_limits import RateLimits
from gantline.api.shared_bucket import SharedBucket
from gantline.auth.rate_limit import RateLimit
from gantline.contract.errors import RateLimited

_MOST_BUCKETS: Final = 10_000


class RateLimiter:
    """Admit requests, or raise RateLimited. Keeps the buckets that were used last."""

    def __init__(self, jobs: Jobs, limits: RateLimits) -> None:
        self._jobs = jobs
        self._limits = limits
        self._buckets: dict[str, LeasedBucket] = {}

    async def admit(self, call: Call) -> None:
        """Take a token of the key and one of the tenant, where they have limits.

        The call is told its quota: that of the two of which less is left.
        """
        principal = call.principal
        tenant_id = principal.tenant_id
        # Whoever has the same name in another tenant is somebody else.
        whose = f"{tenant_id}\n{principal.id}"
        of_key = self._bucket("key", whose, self._limits.of_key(principal))
        if of_key is not None:
            _note(call, await of_key.take(), f"The limit of this key is {of_key.limit}.")
        of_tenant = self._bucket("tenant", tenant_id, self._limits.of_tenant(principal))
        if of_tenant is None:
            return
        verdict = await of_tenant.take()
        if not verdict.is_admitted and of_key is not None:
            of_key.give_back()
        _note(call, verdict, f"The limit of this tenant is {of_tenant.limit}.")

    def _bucket(self, kind: str, whose: str, limit: RateLimit | None) -> LeasedBucket | None:
        if limit is None:
            return None
        name = f"{kind} {whose}"
        bucket = self._buckets.pop(name, None)
        if bucket is None or bucket.limit != limit:
            bucket = self._new(name, limit)
        if len(self._buckets) >= _MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[name] = bucket
        return bucket

    def _new(self, name: str, limit: RateLimit) -> LeasedBucket:
        shared = SharedBucket(lambda: self._jobs.store, name, limit)
        share = self._limits.share_without_store
        return LeasedBucket(shared, limit, share=share, clock=self._jobs.clock)


def _note(call: Call, verdict: Verdict, limit: str) -> None:
    if call.quota is None or verdict.quota.remaining < call.quota.remaining:
        call.quota = verdict.quota
    if not verdict.is_admitted:
        raise RateLimited(limit, retry_after_seconds=max(1, math.ceil(verdict.retry_after_seconds)))
