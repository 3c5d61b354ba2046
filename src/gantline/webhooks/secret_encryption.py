"""Encryption of the endpoints' secrets, by keys that are never in the store."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from gantline.auth.peppers import Peppers
from gantline.contract.errors import AuthMisconfigured, StoreCorrupt, WebhooksOff
from gantline.runtime import random_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_VARIABLE: Final = "GANTLINE_WEBHOOK_KEY"
_PURPOSE: Final = "webhook secrets"
_NONCE_BYTES: Final = 12


class SealedSecret(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An encrypted secret: AES-256-GCM, with the key of this id."""

    key_id: str
    sealed: bytes
    until: datetime | None = None
    """How long it still signs, once there is a newer one."""

    def __repr__(self) -> str:
        return f"SealedSecret({self.key_id}, hidden)"


class Vault:
    """Encrypts and decrypts. Each secret is bound to its endpoint: none can be exchanged."""

    def __init__(self, keys: Peppers) -> None:
        self._keys = keys

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Vault | None":
        """Read GANTLINE_WEBHOOK_KEY, written as peppers are; None where it is not set."""
        text = environment.get(KEY_VARIABLE, "")
        return cls(Peppers.read(text, variable=KEY_VARIABLE)) if text.strip() else None

    @property
    def current(self) -> str:
        """The id of the key in use."""
        return self._keys.current

    def prepare(self) -> None:
        """Import what decryption needs; call it in a thread, since that takes a while."""
        self._cipher(self._keys.current)

    def seal(self, secret: str, *, of: str) -> SealedSecret:
        nonce, key_id = random_bytes(_NONCE_BYTES), self._keys.current
        sealed = self._cipher(key_id).encrypt(nonce, secret.encode(), of.encode())
        return SealedSecret(key_id, nonce + sealed)

    def open(self, secret: SealedSecret, *, of: str) -> str:
        """Decrypt; raise AuthMisconfigured without the key, StoreCorrupt where it was changed."""
        from cryptography.exceptions import InvalidTag

        if secret.key_id not in self._keys:
            raise AuthMisconfigured(
                f"{KEY_VARIABLE} has no key {secret.key_id!r}, which a webhook's secret needs.",
                next_step="Put it back after the new one, or rotate the webhook's secret.",
            )
        nonce, sealed = secret.sealed[:_NONCE_BYTES], secret.sealed[_NONCE_BYTES:]
        try:
            opened: bytes = self._cipher(secret.key_id).decrypt(nonce, sealed, of.encode())
        except InvalidTag:
            raise StoreCorrupt(
                "A webhook's secret was changed in the store, or sealed by another key."
            ) from None
        return opened.decode()

    def _cipher(self, key_id: str) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # an extra

        return AESGCM(self._keys.mac(_PURPOSE, b"", pepper_id=key_id))


def webhooks_off() -> WebhooksOff:
    return WebhooksOff(
        "Webhooks are off: there is no key for their secrets.",
        next_step=f"Make one with `gantline key pepper`, and set {KEY_VARIABLE}=1:<key> for "
        "workers and for everything that makes endpoints.",
    )
