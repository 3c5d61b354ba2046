"""A published key set (JWKS): fetched, kept for a while, and fetched again when a key is new."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from gantline.auth.fetch import check_url, fetch
from gantline.auth.jwt_keys import VerificationKey, key_from_jwk, matching
from gantline.contract.clock import Clock
from gantline.contract.errors import IdentityProviderUnavailable

_log = logging.getLogger("gantline.auth")

Fetch = Callable[[str], Awaitable[bytes]]

_MOST_KEYS: Final = 100


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class PublishedKeys:
    """The keys that an identity provider publishes at a URL.

    From `fresh_seconds` on they are fetched again beside the requests, which go on with what is
    known; from `longest_seconds` on nothing is known any more. A key id that is not in the set is a
    reason to fetch it too, but no more often than every `pause_seconds`: so a key that was rotated
    in works at once, and made-up ids cannot make us ask without end.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        fetch: Fetch = fetch,
        fresh_seconds: float = 300.0,
        longest_seconds: float = 3600.0,
        pause_seconds: float = 10.0,
    ) -> None:
        check_url(url)
        self._url = url
        self._clock = clock
        self._fetch = fetch
        self._fresh_seconds = fresh_seconds
        self._longest_seconds = longest_seconds
        self._pause_seconds = pause_seconds
        self._keys: list[VerificationKey] = []
        self._fetched_at: float | None = None
        self._asked_at: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        age = self._since(self._fetched_at)
        if age >= self._longest_seconds:
            await self._refresh()
        elif age >= self._fresh_seconds:
            self._start_refresh()
        key = matching(self._keys, kid, algorithm)
        if key is None and self._since(self._asked_at) >= self._pause_seconds:
            await self._refresh()
            key = matching(self._keys, kid, algorithm)
        return key

    def _since(self, instant: float | None) -> float:
        """For ever where it never was, or where the clock says that it is still to come."""
        if instant is None:
            return float("inf")
        since = self._clock.monotonic() - instant
        return since if since >= 0 else float("inf")

    async def _refresh(self) -> None:
        """Wait for the set; raise IdentityProviderUnavailable where nothing is known without it."""
        task = self._start_refresh()
        if task is not None:
            await asyncio.shield(task)
        if self._since(self._fetched_at) >= self._longest_seconds:
            raise IdentityProviderUnavailable(
                "The identity provider's keys cannot be fetched, so no token can be checked.",
                next_step="Try again later.",
            )

    def _start_refresh(self) -> asyncio.Task[None] | None:
        """One fetch at a time, and none right after another."""
        running = self._fetching
        if running and not running.done() and running.get_loop() is asyncio.get_running_loop():
            return running
        if self._since(self._asked_at) < self._pause_seconds:
            return None
        self._asked_at = self._clock.monotonic()
        self._fetching = asyncio.ensure_future(self._fetch_and_keep())
        return self._fetching

    async def _fetch_and_keep(self) -> None:
        asked_at = self._clock.monotonic()
        try:
            self._keys = _read(await self._fetch(self._url))
        except IdentityProviderUnavailable as error:
            _log.warning("the key set could not be fetched: %s", error)
        else:
            self._fetched_at = asked_at


def _read(body: bytes) -> list[VerificationKey]:
    try:
        published = msgspec.json.decode(body, type=_KeySet).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise IdentityProviderUnavailable("This is not a key set.") from None
    if len(published) > _MOST_KEYS:
        raise IdentityProviderUnavailable(f"The key set has more than {_MOST_KEYS} keys.")
    keys = [key for key in map(key_from_jwk, published) if key]
    if not keys:
        raise IdentityProviderUnavailable("The key set has no key that tokens can be checked with.")
    return keys
