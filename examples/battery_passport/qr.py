"""The QR code of a passport: BPC-QR-1, level M, ten pixels a module, a quiet zone of four."""

import io
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import segno

from examples.battery_passport.canonical import base32
from examples.battery_passport.passport import PassportVersion

MODULE_PIXELS: Final = 10
QUIET_ZONE: Final = 4
_HASH: Final = r"([A-Z2-7]{52})"
_FORMAT: Final = re.compile(rf"BPC1\|pv=([0-9a-f-]{{36}})\|ph={_HASH}\|pr={_HASH}\|rh={_HASH}")


class QrText(NamedTuple):
    """What a code says: which version it is of, and three hashes in base32."""

    passport_version_id: str
    payload_hash: str
    proof_root: str
    receipt_hash: str

    def __str__(self) -> str:
        version, payload, proof, receipt = self
        return f"BPC1|pv={version}|ph={payload}|pr={proof}|rh={receipt}"

    @classmethod
    def of(cls, version: PassportVersion) -> "QrText":
        hashes = (version.payload_hash, version.proof_root, version.receipt_hash)
        return cls(version.passport_version_id, *map(base32, hashes))

    @classmethod
    def read(cls, text: str) -> "QrText | None":
        """Take apart what a scanner read; None where it is no code of ours."""
        found = _FORMAT.fullmatch(text)
        return cls(*found.groups()) if found else None


def qr_code(text: str) -> segno.QRCode:
    # Not boosted: where a higher level fits into the same size, segno would take it.
    return segno.make_qr(text, error="m", boost_error=False)


def qr_png(text: str) -> bytes:
    png = io.BytesIO()
    qr_code(text).save(png, kind="png", scale=MODULE_PIXELS, border=QUIET_ZONE)
    return png.getvalue()


def qr_modules(text: str) -> Sequence[Sequence[int]]:
    """The code as rows of dark (1) and light (0) modules, for those who draw it themselves."""
    return [list(row) for row in qr_code(text).matrix]
