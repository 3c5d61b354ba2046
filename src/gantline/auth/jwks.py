"""A published key set (JWKS): fetched, kept for a while, and fetched again when a key is new."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gantline.auth.hosts import LOOPBACK
from gantline.auth.jwt_keys import VerificationKey, find_key, key_from_jwk
from gantline.contract.clock import Clock
from gantline.contract.errors import AuthMisconfigured, IdentityProviderUnavailable

TIMEOUT_SECONDS: Final = 5.0
LARGEST: Final = 256 * 1024
# Not compressed: a small response could expand into a large one.
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}


def check_url(url: str) -> None:
    """Raise AuthMisconfigured unless what is fetched is protected on its way."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    if not is_safe or not parts.hostname:
        raise AuthMisconfigured(
            "The URL of a key set must start with https://.",
            next_step="Only on this very machine may it be http://.",
        )


async def fetch(url: str) -> bytes:
    """Read a small public document; raise IdentityProviderUnavailable.

    The operator has named the address: no redirect is followed, and no proxy of the environment.
    Time and size are bounded as a whole, so that a slow response cannot block us.
    """
    import httpx2  # an extra, which takes 100 ms to import

    try:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            httpx2.AsyncClient(follow_redirects=False, trust_env=False) as client,
            client.stream("GET", url, headers=_HEADERS) as response,
        ):
            if response.status_code != 200:
                raise IdentityProviderUnavailable(
                    f"The identity provider answered {response.status_code}, not with its keys."
                )
            body = bytearray()
            async for part in response.aiter_raw():
                body += part
                if len(body) > LARGEST:
                    raise IdentityProviderUnavailable("The key set is too large.")
            return bytes(body)
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise IdentityProviderUnavailable(
            f"The identity provider's keys cannot be fetched ({type(error).__name__}).",
            next_step="Try again later.",
        ) from error


_log = logging.getLogger("gantline.auth")

Fetch = Callable[[str], Awaitable[bytes]]

_MOST_KEYS: Final = 100


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class PublishedKeys:
    """The keys that an identity provider publishes at a URL.

    After `fresh_seconds` they are fetched again in the background, while requests use the known
    ones; after `longest_seconds` the known ones are not used any more. An unknown key id makes us
    fetch too, but at most once in `pause_seconds`: so a new key works at once, and invented ids
    cannot make us fetch without end.
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
        key = find_key(self._keys, kid, algorithm)
        if key is None and self._since(self._asked_at) >= self._pause_seconds:
            await self._refresh()
            key = find_key(self._keys, kid, algorithm)
        return key

    def _since(self, instant: float | None) -> float:
        """Return the age of an instant; infinite for None, and for one in the future."""
        if instant is None:
            return float("inf")
        since = self._clock.monotonic() - instant
        return since if since >= 0 else float("inf")

    async def _refresh(self) -> None:
        """Fetch the set and wait; raise IdentityProviderUnavailable where no usable set is left."""
        task = self._start_refresh()
        if task is not None:
            await asyncio.shield(task)
        if self._since(self._fetched_at) >= self._longest_seconds:
            raise IdentityProviderUnavailable(
                "The identity provider's keys cannot be fetched, so no token can be checked.",
                next_step="Try again later.",
            )

    def _start_refresh(self) -> asyncio.Task[None] | None:
        """Begin a fetch: one at a time, and none within `pause_seconds` of another."""
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
            self._keys = _decode_key_set(await self._fetch(self._url))
        except IdentityProviderUnavailable as error:
            _log.warning("the key set could not be fetched: %s", error)
        else:
            self._fetched_at = asked_at


def _decode_key_set(body: bytes) -> list[VerificationKey]:
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
