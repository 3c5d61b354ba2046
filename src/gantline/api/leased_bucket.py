"""A process's part of a rate limit: tokens leased in blocks, so that few requests ask the store."""

import asyncio
import logging
import math
from typing import Final, NamedTuple

from gantline.api.quota import Quota
from gantline.api.shared_bucket import SharedBucket, Taken
from gantline.auth.rate_limit import RateLimit
from gantline.contract.clock import Clock

_log = logging.getLogger("gantline.api")

# A block is first what a second brings. It grows while blocks are used up quickly, and shrinks when
# tokens go back; but it is a quarter of the bucket at most, so that others find some.
_BLOCK_SECONDS: Final = 1.0
_BLOCKS: Final = 4
# What is not used by then goes back. Until then it may come on top of a full bucket.
_LEASE_SECONDS: Final = 10.0
# Who was denied is denied again without asking, until there can be something; but others may have
# given tokens back before.
_SHORTEST_DENIAL_SECONDS: Final = 0.1
_LONGEST_DENIAL_SECONDS: Final = 1.0
_ASK_SECONDS: Final = 1.0
_ASK_AGAIN_SECONDS: Final = 1.0


class Verdict(NamedTuple):
    is_admitted: bool
    quota: Quota
    retry_after_seconds: float = 0.0


class LeasedBucket:
    """Admit or deny requests. Most are decided here; the store is asked a few times a second."""

    def __init__(
        self, shared: SharedBucket, limit: RateLimit, *, share: float, clock: Clock
    ) -> None:
        self.limit = limit
        self._shared = shared
        self._clock = clock
        self._own = _OwnBucket(limit, share)
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

    async def take(self) -> Verdict:
        """Take a token; wait for the store only where this process has none."""
        return self._decided() or await self._asked()

    def give_back(self) -> None:
        """Undo a `take` that was admitted here and denied elsewhere."""
        if self._clock.monotonic() >= self._alone_until:
            self._tokens += 1

    def _decided(self) -> Verdict | None:
        """The verdict, where it can be told without asking."""
        now = self._clock.monotonic()
        if now < self._alone_until:
            return self._own.take(now)
        if self._tokens > 0 and now < self._lease_ends:
            self._tokens -= 1
            return Verdict(True, self._quota(now))
        if now < self._denied_until:
            return Verdict(False, self._quota(now), self._next_at - now)
        return None

    async def _asked(self) -> Verdict:
        """One asks for all; who has waited for him looks again first."""
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

    def _on_its_own(self, error: Exception) -> Verdict:
        now = self._clock.monotonic()
        self._alone_until = now + _ASK_AGAIN_SECONDS
        _log.warning(
            "the store cannot be asked about a rate limit (%s); granting a part of it here",
            type(error).__name__,
        )
        return self._own.take(now)

    def _settled(self, taken: Taken) -> Verdict:
        now = self._clock.monotonic()
        self._left, self._left_at = taken.left, now
        if taken.tokens > 0:
            self._tokens = taken.tokens - 1
            self._lease_ends = now + _LEASE_SECONDS
            return Verdict(True, self._quota(now))
        of_a_block = self._block * self.limit.seconds_per_token
        pause = max(taken.next_seconds, min(of_a_block, _SHORTEST_DENIAL_SECONDS))
        self._next_at = now + pause
        self._denied_until = now + min(pause, _LONGEST_DENIAL_SECONDS)
        return Verdict(False, self._quota(now), pause)

    def _quota(self, now: float) -> Quota:
        """What was left when the store was asked last, and what has been refilled since."""
        refilled = int((now - self._left_at) * self.limit.per_second)
        remaining = min(self._tokens + self._left + refilled, self.limit.burst)
        return _quota(self.limit, remaining)


class _OwnBucket:
    """A part of the limit, for while the store cannot be asked."""

    def __init__(self, limit: RateLimit, share: float) -> None:
        self._limit = limit
        self._per_second = share * limit.per_second
        self._burst = max(1.0, share * limit.burst)
        self._tokens = self._burst
        self._at = -math.inf

    def take(self, now: float) -> Verdict:
        if self._at > -math.inf:
            refilled = (now - self._at) * self._per_second
            self._tokens = min(self._burst, self._tokens + refilled)
        self._at = now
        if self._tokens < 1:
            wait = (1 - self._tokens) / self._per_second
            return Verdict(False, _quota(self._limit, 0), wait)
        self._tokens -= 1
        return Verdict(True, _quota(self._limit, int(self._tokens)))


def _quota(limit: RateLimit, remaining: int) -> Quota:
    reset_seconds = (limit.burst - remaining) * limit.seconds_per_token
    return Quota(limit.burst, remaining, reset_seconds)
