"""Signatures: Standard Webhooks 1.0, and the plain HMAC in a header of the sender's own."""

import hmac
import secrets
from base64 import b64decode, b64encode
from typing import Final

from gantline.contract.errors import InvalidInput

PREFIX: Final = "whsec_"
_SHORTEST: Final = 24
_LONGEST: Final = 64
_NEW_BYTES: Final = 32

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"


def new_secret() -> str:
    """Make a secret as it is shown to people: `whsec_` and 32 random bytes in base64."""
    return PREFIX + b64encode(secrets.token_bytes(_NEW_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The bytes by which Standard Webhooks signs; raise InvalidInput, which never quotes them."""
    try:
        key = b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(PREFIX) or not _SHORTEST <= len(key) <= _LONGEST:
        raise InvalidInput(
            "This is no webhook secret.",
            next_step=f"It is {PREFIX} and {_SHORTEST} to {_LONGEST} bytes in base64.",
        )
    return key


def signature(secret: str, webhook_id: str, timestamp: str, body: bytes) -> str:
    """Sign by Standard Webhooks: `v1,` and the HMAC-SHA256 over id, timestamp and body."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.digest(key_of(secret), signed, "sha256")).decode()


def plain_signature(secret: str, body: bytes) -> str:
    """Sign the body alone, by the secret just as it is shown: `sha256=` and hex."""
    return "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()
