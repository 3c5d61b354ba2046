"""Canonical JSON and hashes: of the same facts always the same bytes, on every machine."""

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

_LEAF: Final = b"\0"
_NODE: Final = b"\1"
_encoder: Final = msgspec.json.Encoder(order="sorted")


def canonical(value: Any) -> bytes:
    """Encode as JSON with sorted keys and no blanks; floats, which differ by platform, are refused.

    Quantities are decimals, and are written as texts: "9.5".
    """
    _refuse_floats(value)
    return _encoder.encode(value)


def _refuse_floats(value: Any) -> None:
    match value:
        case float():
            raise TypeError(f"{value!r} is a float; write quantities as decimals")
        case dict():
            for part in value.values():
                _refuse_floats(part)
        case list() | tuple():
            for part in value:
                _refuse_floats(part)


def decimal_text(number: Decimal) -> str:
    """Write a number in one way only: 9.50 and 9.5 are the same quantity."""
    text = f"{number:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def instant_text(moment: datetime) -> str:
    """RFC 3339 in UTC, always as long, so that texts sort as instants do."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def digest(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def base32(hexadecimal: str) -> str:
    """A hash as it stands in the QR code: base32 without padding, 52 characters."""
    return base64.b32encode(bytes.fromhex(hexadecimal)).decode().rstrip("=")


def merkle_root(leaves: Sequence[str]) -> str:
    """The root over hashes, in the order given; built as in RFC 6962.

    A leaf cannot be passed off as a node, since each is hashed with a prefix of its own.
    """
    return _root([bytes.fromhex(leaf) for leaf in leaves]).hex()


def _root(leaves: Sequence[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(_LEAF + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(_NODE + _root(leaves[:split]) + _root(leaves[split:])).digest()
