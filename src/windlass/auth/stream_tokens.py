"""Stream tokens: short-lived stand-ins for credentials in the URL of an event stream.

A browser's EventSource sends no headers, and an API key never goes into a URL.
"""

from datetime import timedelta
from typing import Final

from windlass.auth.peppers import Peppers
from windlass.auth.principal import Principal
from windlass.contract.clock import Clock

LIFETIME: Final = timedelta(seconds=60)


class StreamTokens:
    """Issue and check tokens, signed with a key made from the pepper; nothing is stored.

    A token opens one stream for who asked for it, and only to read. It may be used again while it
    lives, since an EventSource reconnects by itself; a revoked key's tokens die with it at the
    latest after `lifetime`.
    """

    def __init__(self, peppers: Peppers, *, clock: Clock, lifetime: timedelta = LIFETIME) -> None:
        self._peppers = peppers
        self._clock = clock
        self.lifetime = lifetime

    def issue(self, principal: Principal, stream: str) -> str:
        """Make a token for one stream: a job's id, or `all` for the multiplexed one."""
        raise NotImplementedError

    def principal_of(self, token: str, stream: str) -> Principal:
        """Check a token and say whose it is; raise InvalidCredentials."""
        raise NotImplementedError
