"""Documents of a battery's manufacturer, and the facts that are in them.

A bill of materials comes as CSV, a carbon footprint as JSON, a due diligence report as XML.
"""

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Final, Literal
from xml.etree.ElementTree import ParseError

import msgspec
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring
from msgspec import Meta

from examples.battery_passport.canonical import canonical, decimal_text, digest
from gantline import Permanent

LARGEST_DOCUMENT: Final = 256 * 1024
MOST_FACTS: Final = 500
SCHEMA_VERSION: Final = 1

Name = Annotated[str, Meta(min_length=1, max_length=80)]
Serial = Annotated[str, Meta(pattern=r"^[A-Z0-9][A-Z0-9-]{2,39}$")]


class Kind(StrEnum):
    """What a document is about. A passport needs one of each."""

    BOM = "BOM"
    PCF = "PCF"
    DUE_DILIGENCE = "DUE_DILIGENCE"


class Fact(msgspec.Struct, frozen=True):
    """One thing that a document says; `body` is canonical JSON, `hash` is that of it."""

    type: str
    key: str
    body: bytes
    hash: str

    @classmethod
    def of(cls, type_: str, key: str, **payload: str) -> "Fact":
        body = canonical({"type": type_, "key": key, "schema": SCHEMA_VERSION, **payload})
        return cls(type_, key, body, digest(body))


class Reading(msgspec.Struct, frozen=True):
    """What was read from a document."""

    kind: Kind
    serial: str
    facts: tuple[Fact, ...]


class Material(msgspec.Struct, forbid_unknown_fields=True):
    """A row of a bill of materials."""

    battery: Serial
    material: Name
    mass_kg: Decimal
    recycled_percent: Decimal


class Battery(msgspec.Struct, forbid_unknown_fields=True):
    serial: Serial
    model: Name
    manufacturer: Name
    category: Literal["EV", "LMT", "INDUSTRIAL"]
    chemistry: Name
    manufactured: Annotated[str, Meta(pattern=r"^20\d\d-(0[1-9]|1[0-2])$")]
    capacity_kwh: Decimal
    mass_kg: Decimal


class CarbonFootprint(msgspec.Struct, forbid_unknown_fields=True):
    """A declaration: kilograms of CO2 equivalent for each kWh of capacity, by stage of life."""

    battery: Battery
    stages: Annotated[dict[Name, Decimal], Meta(min_length=1)]


class Mineral(msgspec.Struct, forbid_unknown_fields=True):
    """Where a mineral comes from, and when its supplier was last audited."""

    name: Name
    origin: Annotated[str, Meta(pattern=r"^[A-Z]{2}$")]
    supplier: Name
    audited: Annotated[str, Meta(pattern=r"^20\d\d$")]


def read(content: bytes) -> Reading:
    """Read a document into facts. Another attempt would not help: raise Permanent."""
    if len(content) > LARGEST_DOCUMENT:
        raise Permanent("PAYLOAD_TOO_LARGE", f"A document has {LARGEST_DOCUMENT} bytes at most.")
    try:
        reading = _read(content)
    except DefusedXmlException as error:
        raise _refused("XML that declares a DTD or entities is refused") from error
    except (ValueError, csv.Error, ParseError) as error:
        raise _refused(str(error) or type(error).__name__) from error
    keys = [(fact.type, fact.key) for fact in reading.facts]
    if not 0 < len(keys) <= MOST_FACTS or len(keys) != len(set(keys)):
        raise _refused("it says nothing, too much, or one thing twice")
    return reading


def _read(content: bytes) -> Reading:
    match content.lstrip()[:1]:
        case b"{":
            return _read_carbon_footprint(content)
        case b"<":
            return _read_due_diligence(content)
        case _:
            return _read_bill_of_materials(content)


def _read_bill_of_materials(content: bytes) -> Reading:
    rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
    materials = [msgspec.convert(row, Material, strict=False) for row in rows]
    serials = {row.battery for row in materials}
    if len(serials) != 1:
        raise ValueError("a bill of materials is of one battery, and has a row at least")
    return Reading(
        Kind.BOM,
        serials.pop(),
        tuple(
            Fact.of(
                "MATERIAL",
                f"{row.battery}/{row.material}",
                material=row.material,
                mass_kg=_quantity(row.mass_kg),
                recycled_percent=_quantity(row.recycled_percent, most=100),
            )
            for row in materials
        ),
    )


def _read_carbon_footprint(content: bytes) -> Reading:
    declared = msgspec.json.decode(content, type=CarbonFootprint)
    battery = declared.battery
    about = {
        name: _quantity(value) if isinstance(value, Decimal) else value
        for name, value in msgspec.structs.asdict(battery).items()
    }
    stages = [
        Fact.of(
            "CARBON_STAGE",
            f"{battery.serial}/{stage}",
            stage=stage,
            kg_co2e_per_kwh=_quantity(amount),
        )
        for stage, amount in declared.stages.items()
    ]
    return Reading(Kind.PCF, battery.serial, (Fact.of("BATTERY", battery.serial, **about), *stages))


def _read_due_diligence(content: bytes) -> Reading:
    # Entities, DTDs and what is fetched from elsewhere are refused by defusedxml.
    report = fromstring(content, forbid_dtd=True)
    if report.tag != "dueDiligence":
        raise ValueError(f"its root is {report.tag[:40]!r}, not dueDiligence")
    serial = msgspec.convert(report.get("battery"), Serial)
    minerals = [msgspec.convert(dict(each.attrib), Mineral) for each in report.iter("mineral")]
    facts = [
        Fact.of("MINERAL", f"{serial}/{each.name}", **msgspec.structs.asdict(each))
        for each in minerals
    ]
    return Reading(Kind.DUE_DILIGENCE, serial, tuple(facts))


def _quantity(number: Decimal, *, most: int = 10**9) -> str:
    if not number.is_finite() or not 0 <= number <= most or number.as_tuple().exponent < -6:  # type: ignore[operator]  # a finite one has a number there
        raise ValueError(f"{number} is no quantity from 0 to {most} with six decimals at most")
    return decimal_text(number)


def _refused(why: str) -> Permanent:
    return Permanent("VALIDATION_ERROR", f"The document cannot be read: {why[:300]}.")


def kinds_missing(kinds: Sequence[Kind]) -> list[Kind]:
    """Which documents a battery still needs."""
    return [kind for kind in Kind if kind not in kinds]
