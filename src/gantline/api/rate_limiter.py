"""The rate limiter: whether a request is admitted now, by the limits of its key and its tenant.

Each limit is a bucket of tokens. All processes share it by one record of the store (SharedBucket);
each leases tokens out of it in blocks, so that few requests ask the store (LeasedBucket).
"""

import asyncio
import hashlib
import logging
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from gantline.api.call import Call
from gantline.api.port import Jobs
from gantline.api.rate_limits import RateLimits
from gantline.auth.rate_limit import RateLimit
from gantline.contract.clock import Clock, to_micros
from gantline.contract.errors import RateLimited, StoreBusy
from gantline.contract.records import Record, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.runtime import new_uuid, random

_log = logging.getLogger("gantline.api")

_MOST_BUCKETS: Final = 10_000


class RateLimiter:
    """Admit requests, or raise RateLimited. Keeps the buckets that were used last."""

    def __init__(self, jobs: Jobs, limits: RateLimits) -> None:
        self._jobs = jobs
        self._limits = limits
        self._buckets: dict[tuple[bool, str], LeasedBucket | _OwnBucket] = {}

    async def admit(self, call: Call) -> None:
        """Take a token of the key and one of the tenant, where they have limits.

        The response has one quota: that of which less is left. What is left here alone says little,
        so only a response that denies shows it.
        """
        principal, limits = call.principal, self._limits
        # The same name in another tenant is another principal.
        key = f"{principal.tenant_id}\n{principal.id}"
        asked: list[tuple[LeasedBucket | _OwnBucket, RateDecision]] = []
        quotas: list[Quota] = []
        for kind, whose, shared, here in (
            ("key", key, limits.of_key(principal), limits.per_key_here),
            ("tenant", principal.tenant_id, limits.of_tenant(principal), limits.per_tenant_here),
        ):
            limit = shared or here
            if limit is None:
                continue
            bucket = self._bucket(f"{kind} {whose}", limit, is_shared=shared is not None)
            decision = await bucket.take()
            asked.append((bucket, decision))
            if shared or not decision.is_admitted:
                quotas.append(decision.quota)
            if not decision.is_admitted:
                break
        if quotas:
            quota = min(quotas, key=lambda quota: quota.remaining)
            call.response_headers += quota.headers
        if asked and not decision.is_admitted:
            for earlier, _ in asked[:-1]:
                earlier.give_back()
            raise RateLimited(
                f"The limit of this {kind} is {limit}.",
                retry_after_seconds=max(1, math.ceil(decision.retry_after_seconds)),
            )

    def _bucket(
        self, name: str, limit: RateLimit, *, is_shared: bool
    ) -> "LeasedBucket | _OwnBucket":
        bucket = self._buckets.pop((is_shared, name), None)
        if bucket is None or bucket.limit != limit:
            clock, share = self._jobs.clock, self._limits.share_without_store
            if is_shared:
                shared = SharedBucket(lambda: self._jobs.store, name, limit)
                bucket = LeasedBucket(shared, limit, share=share, clock=clock)
            else:
                bucket = _OwnBucket(limit, share=1.0, clock=clock)
        if len(self._buckets) >= _MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[is_shared, name] = bucket
        return bucket


class Quota(NamedTuple):
    """What is left of a limit, as far as this process knows."""

    limit: int
    remaining: int
    reset_seconds: float
    """Until all of it would be there again."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """As the IETF's draft of RateLimit header fields has them."""
        return [
            (b"ratelimit-limit", b"%d" % self.limit),
            (b"ratelimit-remaining", b"%d" % self.remaining),
            (b"ratelimit-reset", b"%d" % math.ceil(self.reset_seconds)),
        ]


# -- the part of one process ----------------------------------------------------------------------

# A block is first what a second brings. It grows while blocks are used up quickly, and shrinks when
# tokens go back; but it is a quarter of the bucket at most, so that others find some.
_BLOCK_SECONDS: Final = 1.0
_BLOCKS: Final = 4
# What is not used by then goes back. Until then it may come on top of a full bucket.
_LEASE_SECONDS: Final = 10.0
# After a denial, requests are denied without asking, until there can be a token; but others may
# have given tokens back before.
_SHORTEST_DENIAL_SECONDS: Final = 0.1
_LONGEST_DENIAL_SECONDS: Final = 1.0
_ASK_SECONDS: Final = 1.0
_ASK_AGAIN_SECONDS: Final = 1.0


class RateDecision(NamedTuple):
    is_admitted: bool
    quota: Quota
    retry_after_seconds: float = 0.0


class LeasedBucket:
    """Admit or deny requests. Most are decided here; the store is asked a few times a second."""

    def __init__(
        self, shared: "SharedBucket", limit: RateLimit, *, share: float, clock: Clock
    ) -> None:
        self.limit = limit
        self._shared = shared
        self._clock = clock
        self._own = _OwnBucket(limit, share=share, clock=clock)
        self._largest_block = max(1, limit.burst // _BLOCKS)
        self._block = min(math.ceil(limit.per_second * _BLOCK_SECONDS), self._largest_block)
        self._asking = asyncio.Lock()
        self._tokens = 0
        self._lease_ends = -math.inf
        self._denied_until = -math.inf
        self._next_at = -math.inf
        self._alone_until = -math.inf
        self._left = 0
        self._left_at = clock.monotonic()

    async def take(self) -> RateDecision:
        """Take a token; wait for the store only where this process has none."""
        return self._decided() or await self._asked()

    def give_back(self) -> None:
        """Undo a `take` that was admitted here and denied elsewhere."""
        if self._clock.monotonic() >= self._alone_until:
            self._tokens += 1

    def _decided(self) -> RateDecision | None:
        """The decision, where it is known without asking."""
        now = self._clock.monotonic()
        if now < self._alone_until:
            return self._own.take_now()
        if self._tokens > 0 and now < self._lease_ends:
            self._tokens -= 1
            return RateDecision(True, self._quota(now))
        if now < self._denied_until:
            return RateDecision(False, self._quota(now), self._next_at - now)
        return None

    async def _asked(self) -> RateDecision:
        """One asks for all; those that waited for it look again first."""
        async with self._asking:
            decided = self._decided()
            if decided is not None:
                return decided
            unused, self._tokens = self._tokens, 0
            self._resize(unused)
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    taken = await self._shared.take(self._block, unused=unused)
            except Exception as error:  # whatever is wrong with the store
                return self._on_its_own(error)
            return self._settled(taken)

    def _resize(self, unused: int) -> None:
        lasted = self._clock.monotonic() - (self._lease_ends - _LEASE_SECONDS)
        if unused > 0:
            self._block = max(1, self._block // 2)
        elif lasted < _BLOCK_SECONDS:
            self._block = min(2 * self._block, self._largest_block)

    def _on_its_own(self, error: Exception) -> RateDecision:
        now = self._clock.monotonic()
        self._alone_until = now + _ASK_AGAIN_SECONDS
        _log.warning(
            "the store cannot be asked about a rate limit (%s); granting a part of it here",
            type(error).__name__,
        )
        return self._own.take_now()

    def _settled(self, taken: "Taken") -> RateDecision:
        now = self._clock.monotonic()
        self._left, self._left_at = taken.left, now
        if taken.tokens > 0:
            self._tokens = taken.tokens - 1
            self._lease_ends = now + _LEASE_SECONDS
            return RateDecision(True, self._quota(now))
        of_a_block = self._block * self.limit.seconds_per_token
        pause = max(taken.next_seconds, min(of_a_block, _SHORTEST_DENIAL_SECONDS))
        self._next_at = now + pause
        self._denied_until = now + min(pause, _LONGEST_DENIAL_SECONDS)
        return RateDecision(False, self._quota(now), pause)

    def _quota(self, now: float) -> Quota:
        """What was left when the store was asked last, and what has been refilled since."""
        refilled = int((now - self._left_at) * self.limit.per_second)
        remaining = min(self._tokens + self._left + refilled, self.limit.burst)
        return _quota(self.limit, remaining)


class _OwnBucket:
    """What this process grants by itself: a part of the limit, for while the store cannot be asked,
    or all of a limit that is for one process."""

    def __init__(self, limit: RateLimit, *, share: float, clock: Clock) -> None:
        self.limit = limit
        self._clock = clock
        self._per_second = share * limit.per_second
        self._burst = max(1.0, share * limit.burst)
        self._tokens = self._burst
        self._at = -math.inf

    async def take(self) -> RateDecision:
        return self.take_now()

    def give_back(self) -> None:
        """Undo a `take` that was admitted here and denied elsewhere."""
        self._tokens += 1

    def take_now(self) -> RateDecision:
        now = self._clock.monotonic()
        if self._at > -math.inf:
            refilled = (now - self._at) * self._per_second
            self._tokens = min(self._burst, self._tokens + refilled)
        self._at = now
        if self._tokens < 1:
            wait = (1 - self._tokens) / self._per_second
            return RateDecision(False, _quota(self.limit, 0), wait)
        self._tokens -= 1
        return RateDecision(True, _quota(self.limit, int(self._tokens)))


def _quota(limit: RateLimit, remaining: int) -> Quota:
    reset_seconds = (limit.burst - remaining) * limit.seconds_per_token
    return Quota(limit.burst, remaining, reset_seconds)


# -- what all processes share ---------------------------------------------------------------------

NAMESPACE: Final = "rate-limits"
_ROUNDS: Final = 20
_STEP_BACK_SECONDS: Final = 0.002
_KEEP_FULL: Final = timedelta(minutes=1)


class Taken(NamedTuple):
    """What a bucket gave, and what it has left."""

    tokens: int
    left: int
    next_seconds: float
    """Until there is a token again, where there is none."""


class _StoredBucket(msgspec.Struct, frozen=True, rename="camel"):
    full_at: int
    """Microseconds since 1970."""
    written_by: str
    """Unlike in every other write: two processes that write the same must not both be believed."""


_decoder: Final = msgspec.json.Decoder(_StoredBucket)


class SharedBucket:
    """One bucket: one record, taken from by compare-and-set.

    The record says when the bucket will be full again. That is all there is to know: each token
    that is taken moves that instant by the time in which one is refilled, and time itself refills
    it. It is the store's time, so that the clocks of hosts do not matter. Raises StoreError; then
    it is not known whether something was taken.
    """

    def __init__(self, store: Callable[[], JobStore], name: str, limit: RateLimit) -> None:
        self._store = store
        # A name may have any length and any characters.
        self._key = hashlib.sha256(name.encode()).hexdigest()
        self._limit = limit
        self._per_token = max(1, round(1_000_000 * limit.seconds_per_token))
        self._whole = limit.burst * self._per_token

    async def take(self, most: int, *, unused: int = 0) -> Taken:
        """Put back what was taken before and not used; take up to `most`, or what there is."""
        store = self._store()
        for round_ in range(_ROUNDS):
            # Else the process that has just taken would be first again and again.
            await asyncio.sleep(round_ * _STEP_BACK_SECONDS * random())
            now = to_micros(await store.ping())
            record = await self._read(store)
            stored = _lacking(record, now)
            # Never more than empty, whatever clock or limit it was written by.
            lacking = max(0, min(stored, self._whole) - unused * self._per_token)
            free = self._limit.burst - -(-lacking // self._per_token)
            tokens = min(most, free)
            if tokens <= 0 and stored <= self._whole:
                spare = self._whole - self._per_token
                return Taken(0, 0, (lacking - spare) / 1_000_000)
            lacking += tokens * self._per_token
            if await self._write(store, record, now, lacking):
                return Taken(tokens, free - tokens, 0.0 if tokens else self._per_token / 1_000_000)
        raise StoreBusy("The bucket of a rate limit is taken from by too many at once.")

    async def _read(self, store: JobStore) -> Record | None:
        records = await store.read_records(NAMESPACE, prefix=self._key, limit=1)
        return records[0] if records else None

    async def _write(self, store: JobStore, record: Record | None, now: int, lacking: int) -> bool:
        value = msgspec.json.encode(_StoredBucket(now + lacking, new_uuid().hex))
        keep = timedelta(microseconds=lacking) + _KEEP_FULL
        expected = record.version if record else 0
        write = RecordWrite(NAMESPACE, self._key, value, expected, time_to_live=keep)
        return isinstance((await store.write_records([write]))[0], Applied)


def _lacking(record: Record | None, now: int) -> int:
    """The time after which a bucket will be full again."""
    if record is None:
        return 0
    try:
        return max(0, _decoder.decode(record.value).full_at - now)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
