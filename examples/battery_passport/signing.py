"""Signatures: Ed25519 over the hash of a receipt; the same key and hash, the same signature."""

import base64
import binascii
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from examples.battery_passport.canonical import digest
from gantline import Permanent

KEY_VARIABLE: Final = "PASSPORT_SIGNING_KEY"


class Signature(msgspec.Struct, frozen=True):
    key_id: str
    public_key: bytes
    signature: bytes


class Signer:
    """Holds the key of the installation."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self._public_key = self._key.public_key().public_bytes_raw()

    def sign(self, receipt_hash: str) -> Signature:
        signature = self._key.sign(bytes.fromhex(receipt_hash))
        return Signature(digest(self._public_key)[:16], self._public_key, signature)


def signer_from(environment: Mapping[str, str]) -> Signer:
    """Raise Permanent where there is no key: another attempt would not help."""
    text = environment.get(KEY_VARIABLE, "")
    try:
        return Signer(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error):
        raise Permanent(
            "SIGNING_KEY_MISSING", f"{KEY_VARIABLE} holds no key: 32 bytes in base64."
        ) from None


def new_key() -> str:
    """A key as the variable holds it."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


def is_signed(receipt_hash: str, signature: Signature) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(signature.public_key).verify(
            signature.signature, bytes.fromhex(receipt_hash)
        )
    except InvalidSignature:
        return False
    return True
