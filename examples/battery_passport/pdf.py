"""A passport on paper: one page, with the QR code drawn as modules, sharp at any size."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from fpdf import FPDF

from examples.battery_passport.qr import QUIET_ZONE, qr_modules
from examples.battery_passport.signed import Signed

_INK: Final = (26, 42, 35)
_GREY: Final = (102, 115, 108)
_DEEP: Final = (16, 60, 47)
_GOLD: Final = (201, 161, 74)
_LINE: Final = (224, 218, 203)
_MARGIN: Final = 18.0
_WIDTH: Final = 210.0
_COVER: Final = 26.0
_CODE: Final = 62.0


def as_pdf(signed: Signed) -> bytes:
    """Dated by the passport and not by the clock, so that a replay gives its bytes."""
    payload, battery = signed.payload, signed.payload["battery"]
    pdf = FPDF()
    pdf.set_creation_date(datetime.fromisoformat(signed.version.issued_at))
    pdf.set_title(f"Battery passport {battery['serial']}")
    pdf.set_margins(_MARGIN, _MARGIN)
    pdf.add_page()
    _draw_cover(pdf)
    _draw_code(pdf, signed.qr_text, x=_WIDTH - _MARGIN - _CODE, y=_COVER + 8)
    pdf.set_y(_COVER + 12)
    carbon = payload["carbon_footprint"]["total_kg_co2e_per_kwh"]
    about = {
        "Serial number": battery["serial"],
        "Model": f"{battery['model']}, {battery['manufacturer']}",
        "Category, chemistry": f"{battery['category']}, {battery['chemistry']}",
        "Capacity, mass": f"{battery['capacity_kwh']} kWh, {battery['mass_kg']} kg",
        "Manufactured": battery["manufactured"],
        "Carbon footprint": f"{carbon} kg CO2e/kWh",
        "Issued": f"{signed.version.issued_at[:16].replace('T', ' ')} UTC",
    }
    _write_pairs(pdf, about, names=38, values=_WIDTH - 2 * _MARGIN - _CODE - 38)
    pdf.set_y(_COVER + _CODE + 16)
    _write_rules(pdf, payload["rules"]["results"])
    pdf.ln(9)
    proof = {
        "Version": signed.version.passport_version_id,
        "Receipt": signed.version.receipt_hash,
        "Signed by": f"{signed.signature.key_id} (Ed25519)",
    }
    _write_pairs(pdf, proof, names=24, values=_WIDTH - 2 * _MARGIN - 24)
    return bytes(pdf.output())


def _draw_cover(pdf: FPDF) -> None:
    pdf.set_fill_color(*_DEEP)
    pdf.rect(0, 0, _WIDTH, _COVER, style="F")
    pdf.set_fill_color(*_GOLD)
    pdf.rect(0, _COVER, _WIDTH, 0.8, style="F")
    pdf.set_text_color(*_GOLD)
    pdf.set_font("helvetica", "B", 19)
    pdf.set_xy(_MARGIN, 0)
    pdf.cell(0, _COVER, "BATTERY PASSPORT")


def _write_pairs(pdf: FPDF, pairs: Mapping[str, str], *, names: float, values: float) -> None:
    for name, value in pairs.items():
        _cell(pdf, name, width=names, height=8, colour=_GREY)
        _cell(pdf, value, width=values, height=8, style="B", ends=True)


def _write_rules(pdf: FPDF, results: Sequence[Mapping[str, Any]]) -> None:
    pdf.set_draw_color(*_LINE)
    for one in results:
        pdf.line(_MARGIN, pdf.get_y(), _WIDTH - _MARGIN, pdf.get_y())
        value = f"{one['value']} {one['unit']}".replace("₂", "2").strip()
        verdict = one["verdict"].replace("_", " ").lower()
        _cell(pdf, one["rule"], width=13, height=7, colour=_GREY)
        _cell(pdf, one["title"], width=57, height=7)
        _cell(pdf, value if one["value"] else "", width=44, height=7, style="B")
        _cell(pdf, one["limit"], width=30, height=7, colour=_GREY)
        _cell(pdf, verdict, width=30, height=7, colour=_GREY, ends=True)


def _cell(
    pdf: FPDF,
    text: str,
    *,
    width: float,
    height: float,
    colour: tuple[int, int, int] = _INK,
    style: str = "",
    ends: bool = False,
) -> None:
    pdf.set_font("helvetica", style, 9)
    pdf.set_text_color(*colour)
    pdf.cell(
        width,
        height,
        _fitting(pdf, text, width),
        new_x="LMARGIN" if ends else "RIGHT",
        new_y="NEXT" if ends else "TOP",
    )


def _fitting(pdf: FPDF, text: str, width: float) -> str:
    """As much of a text as there is room for: beside it there may be the code."""
    # The fonts that every reader of PDF has know Latin-1 only.
    shown = text.encode("latin-1", "replace").decode("latin-1")
    while shown and pdf.get_string_width(shown) > width - 2 * pdf.c_margin:
        shown = shown[:-1]
    return shown


def _draw_code(pdf: FPDF, text: str, *, x: float, y: float) -> None:
    modules = qr_modules(text)
    side = _CODE / (len(modules) + 2 * QUIET_ZONE)
    pdf.set_fill_color(0, 0, 0)
    for row, line in enumerate(modules):
        for column, is_dark in enumerate(line):
            if is_dark:
                left, top = x + (column + QUIET_ZONE) * side, y + (row + QUIET_ZONE) * side
                # A hair larger, or viewers show white lines between modules.
                pdf.rect(left, top, side * 1.02, side * 1.02, style="F")
