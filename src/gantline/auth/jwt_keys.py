"""Keys that tokens are checked with. Each is bound to its algorithms.

Else a public key could be used as an HMAC secret, and anybody could sign.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from gantline.contract.errors import AuthMisconfigured
from gantline.importing import extra

with extra("api"):
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
# A secret is at least as long as what it makes (RFC 7518, 3.2).
_HMAC: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
ALGORITHMS: Final = _RSA | frozenset(_HMAC) | frozenset(_CURVES.values()) | {"EdDSA"}
"""All that can be allowed. `none` is not among them."""
# Below it is weak; above it, one check costs milliseconds.
_RSA_BITS: Final = range(2048, 8193)


class VerificationKey(msgspec.Struct, frozen=True):
    """One key, and the algorithms that it may be used with."""

    algorithms: frozenset[str]
    key: Any
    kid: str = ""

    def __repr__(self) -> str:
        return f"VerificationKey({self.kid or 'without id'}, {', '.join(sorted(self.algorithms))})"


class VerificationKeys(Protocol):
    """Where the keys of an issuer come from."""

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """Return the key for a token; None where there is none, or it is ambiguous.

        Raise IdentityProviderUnavailable when that cannot be known now.
        """
        ...


class StaticKeys:
    """A fixed set of keys."""

    def __init__(self, *keys: VerificationKey) -> None:
        if not keys:
            raise AuthMisconfigured("There is no key to check tokens with.")
        self._keys = keys
        self.algorithms = frozenset[str]().union(*(key.algorithms for key in keys))

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        return find_key(self._keys, kid, algorithm)


def find_key(keys: Sequence[VerificationKey], kid: str, algorithm: str) -> VerificationKey | None:
    """Find the one key that fits; a token without a kid needs a set in which just one does."""
    fitting = [key for key in keys if algorithm in key.algorithms and (not kid or key.kid == kid)]
    return fitting[0] if len(fitting) == 1 else None


def public_key(pem: str | bytes, *, kid: str = "") -> VerificationKey:
    """Read a public key in PEM; raise AuthMisconfigured."""
    try:
        key = load_pem_public_key(pem.encode() if isinstance(pem, str) else pem)
    except (ValueError, TypeError) as error:
        raise AuthMisconfigured(
            "This is not a public key in PEM.", next_step="It starts with -----BEGIN PUBLIC KEY."
        ) from error
    if not (algorithms := _find_algorithms(key)):
        raise AuthMisconfigured("A public key of this kind or size cannot be used.")
    return VerificationKey(algorithms, key, kid)


def shared_secret(secret: bytes, *, kid: str = "") -> VerificationKey:
    """Use a secret that the issuer has too. It can sign as well as check: prefer a public key."""
    algorithms = frozenset(name for name, shortest in _HMAC.items() if len(secret) >= shortest)
    if not algorithms:
        raise AuthMisconfigured(f"A shared secret needs at least {min(_HMAC.values())} bytes.")
    return VerificationKey(algorithms, secret, kid)


def key_from_jwk(jwk: Mapping[str, Any]) -> VerificationKey | None:
    """Read a key of a published set; None for one that is not for signatures, or is unsupported.

    A published shared secret is refused too.
    """
    if jwk.get("kty") not in ("RSA", "EC", "OKP") or jwk.get("use", "sig") != "sig" or "d" in jwk:
        return None
    if "key_ops" in jwk and "verify" not in (jwk["key_ops"] or ()):
        return None
    try:
        key = PyJWK(dict(jwk)).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms = _find_algorithms(key)
    if "alg" in jwk:
        algorithms &= {str(jwk["alg"])}
    kid = jwk.get("kid", "")
    return VerificationKey(algorithms, key, kid) if algorithms and isinstance(kid, str) else None


def _find_algorithms(key: object) -> frozenset[str]:
    match key:
        case rsa.RSAPublicKey():
            return _RSA if key.key_size in _RSA_BITS else frozenset()
        case ec.EllipticCurvePublicKey():
            return frozenset(filter(None, (_CURVES.get(key.curve.name),)))
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return frozenset({"EdDSA"})
        case _:
            return frozenset()
