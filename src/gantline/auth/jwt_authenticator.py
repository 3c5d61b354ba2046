"""Authentication by JSON Web Token (RFC 7519), checked as RFC 8725 advises."""

import base64
import binascii
import logging
import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from gantline.auth.api_key import PREFIX
from gantline.auth.authenticator import Credentials
from gantline.auth.jwt_claims import ClaimMapping
from gantline.auth.jwt_keys import ALGORITHMS, StaticKeys, VerificationKeys
from gantline.auth.principal import Principal
from gantline.contract.clock import Clock
from gantline.contract.errors import AuthMisconfigured, InvalidCredentials
from gantline.importing import extra

with extra("api"):
    import jwt

_log = logging.getLogger("gantline.auth")

DEFAULT_ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
LARGEST: Final = 16 * 1024
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_OPTIONS: Final[Any] = {
    # And the claim that says who it is, which the mapping reads.
    "require": ["exp", "iss", "aud"],
    "strict_aud": False,
    # Checked by our own clock, below.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


class JwtAuthenticator:
    """Knows the tokens of one issuer, sent as `Authorization: Bearer …`.

    The algorithm must be among those that are allowed and one of the key's own; the key is chosen
    by the token's `kid` among the keys that were configured, never by what else its header says.
    Every token must expire. For several issuers, put one of these per issuer into `AnyOf`.
    """

    challenge = 'Bearer realm="gantline"'

    def __init__(
        self,
        keys: VerificationKeys,
        *,
        issuer: str,
        audience: str | Sequence[str],
        clock: Clock,
        algorithms: Sequence[str] = DEFAULT_ALGORITHMS,
        leeway: timedelta = timedelta(seconds=30),
        claims: ClaimMapping | None = None,
    ) -> None:
        if unknown := set(algorithms) - ALGORITHMS:
            raise AuthMisconfigured(
                f"Tokens cannot be checked with {', '.join(sorted(unknown))}.",
                next_step=f"Allow some of {', '.join(sorted(ALGORITHMS))}.",
            )
        if not (issuer and audience and algorithms):
            raise AuthMisconfigured("Tokens need an issuer, an audience and algorithms.")
        if isinstance(keys, StaticKeys) and keys.algorithms.isdisjoint(algorithms):
            raise AuthMisconfigured(
                "The keys fit none of the allowed algorithms, so no token could be good.",
                next_step=f"Allow the keys' own: algorithms={sorted(keys.algorithms)}.",
            )
        self._keys = keys
        self._issuer = issuer
        self._audience = [audience] if isinstance(audience, str) else list(audience)
        self._clock = clock
        self._algorithms = frozenset(algorithms)
        self._leeway_seconds = leeway.total_seconds()
        self._claims = claims or ClaimMapping()

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        token = credentials.bearer
        if token is None or token.startswith(PREFIX) or token.count(".") != 2:
            return None
        try:
            header, unchecked = _read_unchecked(token)
            if unchecked.get("iss") != self._issuer:
                return None  # another issuer's: its authenticator may come after this one
            claims = await self._check_signature(token, header)
            self._check_times(claims)
            return self._claims.principal(claims)
        except InvalidCredentials as error:
            _log.warning("a token was refused: %s", error.internal or error.cause)
            raise

    async def _check_signature(self, token: str, header: dict[str, Any]) -> dict[str, Any]:
        algorithm, kid, kind = header.get("alg"), header.get("kid", ""), header.get("typ", "JWT")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise _build_error("its algorithm is not allowed")
        if "crit" in header:
            raise _build_error("it wants something understood that we do not know")
        if not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise _build_error("it is another kind of token")
        if not isinstance(kid, str):
            raise _build_error("its key id is not a text")
        key = await self._keys.find(kid, algorithm)
        if key is None or algorithm not in key.algorithms:
            raise _build_error("no key is known for it")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                options=_OPTIONS,
                audience=self._audience,
                issuer=self._issuer,
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise _build_error(type(error).__name__) from None
        return claims

    def _check_times(self, claims: dict[str, Any]) -> None:
        now = self._clock.now().timestamp()
        ends, starts = _read_seconds(claims["exp"]), _read_seconds(claims.get("nbf", 0))
        if ends is None or starts is None:
            raise _build_error("its times are not numbers")
        if ends + self._leeway_seconds <= now:
            raise InvalidCredentials("The token has expired.", next_step="Ask for a new one.")
        if starts - self._leeway_seconds > now:
            raise InvalidCredentials(
                "The token is not good yet.", next_step="Check the clocks of both sides."
            )


def _read_unchecked(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the header and the claims of a token, before its signature is checked."""
    if len(token) > LARGEST:
        raise _build_error("it is too large")
    header, claims, _ = token.split(".")
    return _decode_json(header), _decode_json(claims)


def _decode_json(part: str) -> dict[str, Any]:
    try:
        text = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError):
        raise _build_error("it cannot be read") from None


def _read_seconds(value: Any) -> float | None:
    """Read a finite number of seconds; None for anything else, such as a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None


def _build_error(internal: str) -> InvalidCredentials:
    return InvalidCredentials(
        "The token is not valid.",
        next_step="Ask the identity provider for a new one.",
        internal=internal,
    )
