"""The compiler: a sealed snapshot and a rule package become a passport, always the same bytes."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec

from examples.battery_passport.canonical import canonical, decimal_text, digest, merkle_root
from examples.battery_passport.rules import RulePackage, Verdict, judge_all
from gantline import Permanent

BUILD_ID: Final = "battery-passport-compiler/1"
"""Names the compiler: with another one the same facts may become other bytes."""
_NAMESPACE: Final = UUID("8f1a1f5c-6f0e-5d6a-9c0b-2d1e6b7a4c33")


class Snapshot(msgspec.Struct, frozen=True):
    """The facts of one battery at one instant, sorted by their hashes."""

    snapshot_id: str
    serial: str
    issued_at: str
    is_sealed: bool
    facts: tuple[bytes, ...]


class PassportVersion(msgspec.Struct, frozen=True):
    """A compiled passport: what it says, and the receipt over all that it was made of."""

    passport_version_id: str
    passport_id: str
    snapshot_id: str
    rules_id: str
    build_id: str
    issued_at: str
    payload: bytes
    payload_hash: str
    proof_root: str
    receipt: bytes
    receipt_hash: str


def snapshot_id_of(fact_hashes: Sequence[str]) -> str:
    """A snapshot is known by what is in it, so that it cannot be made twice."""
    return digest(canonical(sorted(fact_hashes)))


def compile_passport(tenant: str, snapshot: Snapshot, package: RulePackage) -> PassportVersion:
    """Raise Permanent where the snapshot is not sealed, or a rule is not met."""
    if not snapshot.is_sealed:
        raise Permanent("SNAPSHOT_NOT_READY", "The snapshot is not sealed: documents are missing.")
    facts = [msgspec.json.decode(body) for body in snapshot.facts]
    passport_id = uuid5(_NAMESPACE, f"{tenant}/{snapshot.serial}")
    made_of = {
        "snapshot_id": snapshot.snapshot_id,
        "rules_id": package.rules_id,
        "build_id": BUILD_ID,
        "issued_at": snapshot.issued_at,
    }
    version_id = str(uuid5(passport_id, canonical(made_of).decode()))
    payload = canonical(
        {
            "schema": "bpc-passport/1",
            "passport_id": str(passport_id),
            "passport_version_id": version_id,
            **made_of,
            **_contents(facts),
            "rules": {"package": package.name, "results": _results(package, facts)},
        }
    )
    payload_hash = digest(payload)
    proof_root = merkle_root([digest(body) for body in snapshot.facts])
    receipt = canonical(
        {
            "schema": "bpc-receipt/1",
            "passport_version_id": version_id,
            "payload_hash": payload_hash,
            "proof_root": proof_root,
            **made_of,
        }
    )
    return PassportVersion(
        passport_version_id=version_id,
        passport_id=str(passport_id),
        **made_of,
        payload=payload,
        payload_hash=payload_hash,
        proof_root=proof_root,
        receipt=receipt,
        receipt_hash=digest(receipt),
    )


def _contents(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def of(kind: str) -> list[dict[str, Any]]:
        """Facts without what only we need, in the order of their keys."""
        found = sorted((fact for fact in facts if fact["type"] == kind), key=lambda one: one["key"])
        ours = ("type", "key", "schema")
        return [{name: one[name] for name in one if name not in ours} for one in found]

    (battery,) = of("BATTERY")
    stages = {one["stage"]: one["kg_co2e_per_kwh"] for one in of("CARBON_STAGE")}
    total = sum(map(Decimal, stages.values()), Decimal(0))
    return {
        "battery": battery,
        "carbon_footprint": {"total_kg_co2e_per_kwh": decimal_text(total), "stages": stages},
        "materials": of("MATERIAL"),
        "due_diligence": of("MINERAL"),
    }


def _results(package: RulePackage, facts: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    results = judge_all(package, facts)
    broken = [one for one in results if one.verdict is Verdict.FAIL]
    if broken:
        said = "; ".join(
            f"{one.rule.id} {one.rule.title.lower()} is {one.value or 'not declared'}, "
            f"must be {one.rule.comparison} {one.rule.limit} {one.rule.unit}".rstrip()
            for one in broken
        )
        raise Permanent("RULES_NOT_MET", f"No passport: {said}.")
    return [
        {
            "rule": one.rule.id,
            "title": one.rule.title,
            "value": one.value,
            "limit": f"{one.rule.comparison} {one.rule.limit}",
            "unit": one.rule.unit,
            "verdict": one.verdict,
        }
        for one in results
    ]
