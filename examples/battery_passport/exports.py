"""Exports of a signed passport: JSON with its proof, JSON-LD, and a PDF with the QR code."""

import base64
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from fpdf import FPDF

from examples.battery_passport.canonical import canonical
from examples.battery_passport.passport import PassportVersion
from examples.battery_passport.qr import QUIET_ZONE, qr_modules
from examples.battery_passport.signing import Signature

_VOCABULARY: Final = "https://example.org/battery-passport#"
_INK: Final = (22, 38, 32)
_GREY: Final = (110, 122, 116)


class Signed(msgspec.Struct, frozen=True):
    """All that an export is made of."""

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


def as_json(signed: Signed) -> bytes:
    return canonical({"passport": signed.payload, "proof": signed.proof, "qr": signed.qr_text})


def as_json_ld(signed: Signed) -> bytes:
    """The vocabulary is named in the document itself, so that nobody has to fetch a context."""
    return canonical(
        {
            "@context": {"@version": "1.1", "@vocab": _VOCABULARY},
            "@id": f"urn:uuid:{signed.version.passport_version_id}",
            "@type": "BatteryPassport",
            **signed.payload,
            "proof": {"@type": "Ed25519Signature", **signed.proof},
        }
    )


def as_pdf(signed: Signed) -> bytes:
    """One page. Dated by the passport and not by the clock, so that a replay gives its bytes."""
    payload, battery = signed.payload, signed.payload["battery"]
    pdf = FPDF()
    pdf.set_creation_date(datetime.fromisoformat(signed.version.issued_at))
    pdf.set_title(f"Battery passport {battery['serial']}")
    pdf.add_page()
    pdf.set_text_color(*_INK)
    pdf.set_font("helvetica", "B", 24)
    pdf.cell(0, 14, "Battery passport", new_x="LMARGIN", new_y="NEXT")
    _draw_code(pdf, signed.qr_text, x=138, y=14, size=58)
    lines = {
        "Serial number": battery["serial"],
        "Model": f"{battery['model']}, {battery['manufacturer']}",
        "Category, chemistry": f"{battery['category']}, {battery['chemistry']}",
        "Capacity, mass": f"{battery['capacity_kwh']} kWh, {battery['mass_kg']} kg",
        "Made": battery["manufactured"],
        "Carbon footprint": f"{payload['carbon_footprint']['total_kg_co2e_per_kwh']} kg CO2e/kWh",
        "Issued": signed.version.issued_at,
    }
    for name, value in lines.items():
        _line(pdf, name, value, width=40)
    pdf.ln(6)
    for one in payload["rules"]["results"]:
        unit = one["unit"].replace("₂", "2")
        said = f"{one['value'] or '-'} {unit} ({one['limit']})  {one['verdict']}"
        _line(pdf, f"{one['rule']} {one['title']}", said, width=66)
    pdf.ln(6)
    for name, value in {
        "Version": signed.version.passport_version_id,
        "Receipt": signed.version.receipt_hash,
        "Signed by": signed.signature.key_id,
    }.items():
        _line(pdf, name, value, width=24)
    return bytes(pdf.output())


def _line(pdf: FPDF, name: str, value: str, *, width: int) -> None:
    pdf.set_font("helvetica", "", 9)
    pdf.set_text_color(*_GREY)
    pdf.cell(width, 6.4, _latin(name))
    pdf.set_text_color(*_INK)
    pdf.cell(0, 6.4, _latin(value), new_x="LMARGIN", new_y="NEXT")


def _latin(text: str) -> str:
    """The fonts that every PDF reader has know Latin-1 only."""
    return text.encode("latin-1", "replace").decode("latin-1")


def _draw_code(pdf: FPDF, text: str, *, x: float, y: float, size: float) -> None:
    modules = qr_modules(text)
    side = size / (len(modules) + 2 * QUIET_ZONE)
    pdf.set_fill_color(0, 0, 0)
    for row, line in enumerate(modules):
        for column, is_dark in enumerate(line):
            if is_dark:
                left, top = x + (column + QUIET_ZONE) * side, y + (row + QUIET_ZONE) * side
                # A hair larger, or viewers show white lines between modules.
                pdf.rect(left, top, side * 1.02, side * 1.02, style="F")


FORMATS: Final[Mapping[str, Callable[[Signed], bytes]]] = {
    "json": as_json,
    "jsonld": as_json_ld,
    "pdf": as_pdf,
}
