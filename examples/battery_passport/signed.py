"""A signed passport, whole: what every export is made of."""

import base64
from typing import Any

import msgspec

from examples.battery_passport.passport import PassportVersion
from examples.battery_passport.signing import Signature


class Signed(msgspec.Struct, frozen=True):
    version: PassportVersion
    signature: Signature
    qr_text: str

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = msgspec.json.decode(self.version.payload)
        return payload

    @property
    def proof(self) -> dict[str, Any]:
        return {
            "receipt": msgspec.json.decode(self.version.receipt),
            "receipt_hash": self.version.receipt_hash,
            "algorithm": "Ed25519",
            "key_id": self.signature.key_id,
            "public_key": base64.b64encode(self.signature.public_key).decode(),
            "signature": base64.b64encode(self.signature.signature).decode(),
        }
