"""Fetching a small public document of an identity provider."""

import asyncio
from typing import Final
from urllib.parse import urlsplit

from gantline.contract.errors import AuthMisconfigured, IdentityProviderUnavailable

TIMEOUT_SECONDS: Final = 5.0
LARGEST: Final = 256 * 1024
# Not compressed, for a small answer could unfold into a large one.
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def check_url(url: str) -> None:
    """Raise AuthMisconfigured unless nobody on the way can change what is fetched."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not is_safe or not parts.hostname:
        raise AuthMisconfigured(
            "The URL of a key set must start with https://.",
            next_step="Only on this very machine may it be http://.",
        )


async def fetch(url: str) -> bytes:
    """Read a document; raise IdentityProviderUnavailable.

    The operator has named the address, so it is asked itself: no redirect, no proxy of the
    environment. Time and size are bounded as a whole, so that a slow answer cannot hold us.
    """
    import httpx2  # an extra, and 100 ms that only those pay who use it

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
