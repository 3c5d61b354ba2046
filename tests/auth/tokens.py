"""An identity provider for tests: keys of every kind, and tokens made with them."""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from gantline.auth.authenticator import Credentials

ISSUER = "https://login.example"
AUDIENCE = "gantline"


@dataclass
class SigningKey:
    """A private key, and how it is published."""

    algorithm: str
    private: Any
    kid: str

    @classmethod
    def of(cls, algorithm: str, kid: str) -> "SigningKey":
        match algorithm[:2]:
            case "RS" | "PS":
                private: Any = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            case "ES":
                private = ec.generate_private_key(ec.SECP256R1())
            case _:
                private = ed25519.Ed25519PrivateKey.generate()
        return cls(algorithm, private, kid)

    @property
    def pem(self) -> bytes:
        pem: bytes = self.private.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        return pem

    @property
    def jwk(self) -> dict[str, Any]:
        kinds: dict[str, Any] = {"ES": ECAlgorithm, "Ed": OKPAlgorithm}
        kind = kinds.get(self.algorithm[:2], RSAAlgorithm)
        return {**json.loads(kind.to_jwk(self.private.public_key())), "kid": self.kid, "use": "sig"}

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        return jwt.encode(claims, self.private, self.algorithm, headers={"kid": self.kid, **header})


@dataclass
class Claims:
    """Good claims, and others at will; None takes one out."""

    now: datetime
    fields: dict[str, Any] = field(default_factory=dict)

    def of(self, **changes: Any) -> dict[str, Any]:
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "ada",
            "tenant": "a",
            "exp": int(self.now.timestamp()) + 300,
        }
        return {name: value for name, value in (claims | changes).items() if value is not None}


def encoded(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def signed_by_hmac(header: Any, claims: Any, secret: bytes) -> str:
    """A token as an attacker makes it, who is held back by no library."""
    text = f"{encoded(header)}.{encoded(claims)}"
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def bearing(token: str) -> Credentials:
    return Credentials(headers={"authorization": f"Bearer {token}"})
