"""Exports of a signed passport: JSON with its proof, JSON-LD, and a PDF with the QR code."""

from collections.abc import Callable, Mapping
from typing import Final

from examples.battery_passport.canonical import canonical
from examples.battery_passport.pdf import as_pdf
from examples.battery_passport.signed import Signed

_VOCABULARY: Final = "https://example.org/battery-passport#"


def as_json(signed: Signed) -> bytes:
    return canonical({"passport": signed.payload, "proof": signed.proof, "qr": signed.qr_text})


def as_json_ld(signed: Signed) -> bytes:
    """The vocabulary is named in the document itself, so that no reader has to fetch a context."""
    return canonical(
        {
            "@context": {"@version": "1.1", "@vocab": _VOCABULARY},
            "@id": f"urn:uuid:{signed.version.passport_version_id}",
            "@type": "BatteryPassport",
            **signed.payload,
            "proof": {"@type": "Ed25519Signature", **signed.proof},
        }
    )


FORMATS: Final[Mapping[str, Callable[[Signed], bytes]]] = {
    "json": as_json,
    "jsonld": as_json_ld,
    "pdf": as_pdf,
}
