"""Stream tokens: short-lived credentials for the URL of an event stream.

A browser's EventSource sends no headers, and an API key never goes into a URL.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gantline.auth.action import Action
from gantline.auth.peppers import PEPPER_VARIABLE, Peppers
from gantline.auth.principal import Principal
from gantline.contract.clock import Clock
from gantline.contract.errors import InvalidCredentials, InvalidInput

LIFETIME: Final = timedelta(seconds=60)
LONGEST: Final = 6_000
"""The longest that proxies and servers accept in a URL."""
_PURPOSE: Final = "stream token"
_MAC_BYTES: Final = 32


class _Claims(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    version: int = 1
    pepper_id: str
    stream: str
    until: datetime
    principal: Principal


_encoder: Final = msgspec.json.Encoder(order="sorted")
_decoder: Final = msgspec.json.Decoder(_Claims)


class StreamTokens:
    """Issues and checks tokens, signed with a key derived from the pepper; nothing is stored.

    A token opens one stream for the principal, and only to read. It may be used again while it
    lives, since an EventSource reconnects by itself. It says in clear who it is for, and outlives a
    key that is revoked by its lifetime at most.
    """

    def __init__(self, peppers: Peppers, *, clock: Clock, lifetime: timedelta = LIFETIME) -> None:
        self._peppers = peppers
        self._clock = clock
        self.lifetime = lifetime

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], clock: Clock
    ) -> "StreamTokens | None":
        """Sign with `GANTLINE_KEY_PEPPER`; None where it is not set. Raise AuthMisconfigured.

        Never with a random pepper: other processes would not accept the tokens.
        """
        if not environment.get(PEPPER_VARIABLE, "").strip():
            return None
        return cls(Peppers.from_environment(environment), clock=clock)

    def issue(self, principal: Principal, stream: str) -> str:
        """Make a token for one stream: a job's id, or a name for the multiplexed one."""
        claims = _Claims(
            pepper_id=self._peppers.current,
            stream=stream,
            until=self._clock.now() + self.lifetime,
            principal=_narrow_to_reading(principal),
        )
        body = _encoder.encode(claims)
        token = base64.urlsafe_b64encode(self._mac(body, claims.pepper_id) + body)
        if len(token) > LONGEST:
            raise InvalidInput(
                "Too many subjects are granted for a stream token.",
                next_step="Follow one job, or send credentials in a header.",
            )
        return token.decode().rstrip("=")

    def principal_of(self, token: str, stream: str) -> Principal:
        """Check a token and return its principal; raise InvalidCredentials."""
        claims = self._claims(token)
        if claims is None or claims.version != 1 or claims.stream != stream:
            raise InvalidCredentials(
                "The stream token is not valid.", next_step="Ask for one for this stream."
            )
        if claims.until <= self._clock.now():
            raise InvalidCredentials(
                "The stream token has expired.", next_step="Ask for a new one."
            )
        return claims.principal

    def _claims(self, token: str) -> _Claims | None:
        """Read the claims of a token; None unless we have signed it."""
        if len(token) > LONGEST:
            return None
        try:
            signed = base64.b64decode(
                token + "=" * (-len(token) % 4), altchars=b"-_", validate=True
            )
            mac, body = signed[:_MAC_BYTES], signed[_MAC_BYTES:]
            claims = _decoder.decode(body)
        except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError):
            return None
        is_ours = claims.pepper_id in self._peppers
        expected = self._mac(body, claims.pepper_id if is_ours else self._peppers.current)
        return claims if hmac.compare_digest(mac, expected) and is_ours else None

    def _mac(self, body: bytes, pepper_id: str) -> bytes:
        return self._peppers.mac(_PURPOSE, body, pepper_id=pepper_id)


def _narrow_to_reading(principal: Principal) -> Principal:
    reading = frozenset({Action.READ})
    scopes = reading if principal.scopes is None else principal.scopes & reading
    return msgspec.structs.replace(principal, scopes=scopes)
