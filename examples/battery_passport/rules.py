"""The rule package: a small table of comparisons, modelled on Regulation (EU) 2023/1542.

It shows how such a compiler works, and is no legal advice.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import msgspec

from examples.battery_passport.canonical import canonical, decimal_text, digest
from gantline import Permanent

PACKAGE: Final = "eu-2023-1542/2027.1"
_COMPARISONS: Final[Mapping[str, Callable[[Decimal, Decimal], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
}
_LEAST_PRECISION: Final = Decimal("0.000001")
_HUNDRED: Final = Decimal(100)


class Verdict(StrEnum):
    PASS = "PASS"  # noqa: S105  # no password
    FAIL = "FAIL"
    NOT_APPLICABLE = "NOT_APPLICABLE"


class Rule(msgspec.Struct, frozen=True):
    """One comparison: a quantity against its limit. A quantity that is absent breaks `required`."""

    id: str
    title: str
    quantity: str
    comparison: str
    limit: str
    unit: str
    required: bool = False


RULES: Final = (
    Rule("R01", "Rated capacity", "capacity", ">=", "2", "kWh", required=True),
    Rule("R02", "Carbon footprint", "carbon_footprint", "<=", "90", "kg CO₂e/kWh", required=True),
    Rule("R03", "Recycled cobalt", "recycled.cobalt", ">=", "16", "%"),
    Rule("R04", "Recycled lead", "recycled.lead", ">=", "85", "%"),
    Rule("R05", "Recycled lithium", "recycled.lithium", ">=", "6", "%"),
    Rule("R06", "Recycled nickel", "recycled.nickel", ">=", "6", "%"),
    Rule("R07", "Mercury", "share.mercury", "<=", "0.0005", "%"),
    Rule("R08", "Cadmium", "share.cadmium", "<=", "0.002", "%"),
    Rule("R09", "Mass declared", "share.declared", ">=", "90", "%", required=True),
    Rule("R10", "Mass not exceeded", "share.declared", "<=", "100", "%", required=True),
    Rule("R11", "Oldest audit, in years", "audit_age", "<=", "2", ""),
    Rule("R12", "Unchecked minerals", "minerals.unchecked", "<=", "0", ""),
)
CHECKED_MINERALS: Final = ("cobalt", "graphite", "lithium", "nickel")


class RulePackage(msgspec.Struct, frozen=True):
    """A version of the rules, known by the hash of all that it says."""

    name: str
    rules: tuple[Rule, ...]

    @property
    def rules_id(self) -> str:
        return digest(self.body)

    @property
    def body(self) -> bytes:
        return canonical(msgspec.to_builtins(self))


class Result(msgspec.Struct, frozen=True):
    """What a rule says of a battery."""

    rule: Rule
    value: str
    verdict: Verdict


def current_package() -> RulePackage:
    return RulePackage(PACKAGE, RULES)


def package_from(body: bytes) -> RulePackage:
    return msgspec.json.decode(body, type=RulePackage)


def quantities(facts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Everything that rules compare, computed from a battery's facts."""
    battery = next(fact for fact in facts if fact["type"] == "BATTERY")
    materials = [fact for fact in facts if fact["type"] == "MATERIAL"]
    minerals = [fact for fact in facts if fact["type"] == "MINERAL"]
    stages = [Decimal(fact["kg_co2e_per_kwh"]) for fact in facts if fact["type"] == "CARBON_STAGE"]
    mass = Decimal(battery["mass_kg"])
    found = {
        "capacity": battery["capacity_kwh"],
        "carbon_footprint": decimal_text(sum(stages, Decimal(0))),
    }
    for each in materials:
        found[f"recycled.{each['material']}"] = each["recycled_percent"]
        if mass:
            found[f"share.{each['material']}"] = _share(Decimal(each["mass_kg"]), mass)
    if mass:
        declared = sum((Decimal(each["mass_kg"]) for each in materials), Decimal(0))
        found["share.declared"] = _share(declared, mass)
    if minerals:
        oldest = min(int(each["audited"]) for each in minerals)
        found["audit_age"] = str(max(0, int(battery["manufactured"][:4]) - oldest))
    unchecked = {each["material"] for each in materials} & set(CHECKED_MINERALS)
    unchecked -= {each["name"] for each in minerals}
    return found | {"minerals.unchecked": str(len(unchecked))}


def _share(part: Decimal, whole: Decimal) -> str:
    return decimal_text((_HUNDRED * part / whole).quantize(_LEAST_PRECISION))


def judge(rule: Rule, found: Mapping[str, str]) -> Result:
    """Compare; raise Permanent where the rule cannot be applied to such a value at all."""
    value = found.get(rule.quantity)
    if value is None:
        verdict = Verdict.FAIL if rule.required else Verdict.NOT_APPLICABLE
        return Result(rule, "", verdict)
    try:
        holds = _COMPARISONS[rule.comparison](Decimal(value), Decimal(rule.limit))
    except (ArithmeticError, KeyError) as error:
        raise Permanent(
            "RULE_TYPE_ERROR",
            f"{rule.id} cannot compare {value[:40]!r} {rule.comparison} {rule.limit}.",
        ) from error
    return Result(rule, value, Verdict.PASS if holds else Verdict.FAIL)


def judge_all(package: RulePackage, facts: Sequence[Mapping[str, Any]]) -> list[Result]:
    found = quantities(facts)
    return [judge(rule, found) for rule in package.rules]
