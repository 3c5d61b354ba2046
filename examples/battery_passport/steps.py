"""The steps from a document to a passport: one handler each, chained by follow-ups.

PARSE_FACTS → BUILD_SNAPSHOT → COMPILE_PASSPORT → SIGN_PASSPORT → GENERATE_QR → EXPORT_PASSPORT

Each reads what it needs, computes without writing, and takes one step in the end. So each may be
killed anywhere and run again: what was written stands, and what is computed has the same bytes.
"""

import os
from datetime import timedelta
from typing import Any, Final

import msgspec

from examples.battery_passport import documents, exports, qr, signing
from examples.battery_passport.books import ReadDocument
from examples.battery_passport.canonical import instant_text
from examples.battery_passport.database import Database
from examples.battery_passport.passport import Snapshot, compile_passport, snapshot_id_of
from examples.battery_passport.rule_cases import cases_of
from examples.battery_passport.rules import current_package
from examples.battery_passport.signed import Signed
from gantline import Backoff, Context, JobGroup, Permanent, provide

KEEP_UNUSED: Final = timedelta(days=30)
SWEEP_BATCH: Final = 100
QR_NAME: Final = "qr.png"
PASSPORT_SIGNED: Final = "PASSPORT_SIGNED"
_FIVE: Final = Backoff(attempts=5)
_LOGGED: Final = ("submitted", "started")

steps = JobGroup(queue="passports")


class Document(msgspec.Struct):
    document_id: str


class Battery(msgspec.Struct):
    serial: str
    document_id: str
    """The document that came last, so that each one makes one snapshot job."""


class SealedSnapshot(msgspec.Struct):
    snapshot_id: str
    rules_id: str


class Version(msgspec.Struct):
    passport_version_id: str


class Rules(msgspec.Struct):
    rules_id: str


def database(ctx: Context) -> Database:
    """What the application's lifespan opened."""
    opened: Database = ctx.state
    return opened


def signer() -> signing.Signer:
    """The key is read for each run, so that a worker need not be restarted for a new one."""
    return signing.signer_from(os.environ)


@steps.job(
    "PARSE_FACTS",
    subject="{document_id}",
    idempotency_key="parse-{document_id}",
    priority=2,
    retry=_FIVE,
    events=_LOGGED,
)
async def parse_facts(
    task: Document, ctx: Context, *, db: Database = provide(database)
) -> dict[str, Any]:
    """Read the facts of a document, and have its battery looked at."""
    tenant = ctx.job.tenant_id
    async with db.opened() as books:
        content = await books.content_of(tenant, task.document_id)
    reading = documents.read(content)
    result = {"serial": reading.serial, "kind": reading.kind, "facts": len(reading.facts)}
    async with db.step(ctx, result) as step:
        await step.books.add_reading(tenant, task.document_id, reading)
        step.follow_up(build_snapshot, Battery(reading.serial, task.document_id))
    return result


@steps.job(
    "BUILD_SNAPSHOT",
    subject="{serial}",
    idempotency_key="snapshot-{serial}-{document_id}",
    priority=1,
    retry=_FIVE,
    events=_LOGGED,
)
async def build_snapshot(
    task: Battery, ctx: Context, *, db: Database = provide(database)
) -> dict[str, Any]:
    """Seal the newest facts of a battery, once there are documents of every kind."""
    tenant = ctx.job.tenant_id
    async with db.opened() as books:
        readings = await books.newest_readings(tenant, task.serial)
    missing = documents.kinds_missing([one.kind for one in readings])
    hashes = [payload_hash for one in readings for payload_hash in one.fact_hashes]
    snapshot = Snapshot(
        snapshot_id=snapshot_id_of(hashes),
        serial=task.serial,
        issued_at=_newest(readings),
        is_sealed=not missing,
        facts=(),
    )
    result = {"snapshot_id": snapshot.snapshot_id, "serial": task.serial, "missing": missing}
    async with db.step(ctx, result) as step:
        await step.books.add_snapshot(tenant, snapshot, hashes)
        if snapshot.is_sealed:
            rules_id = current_package().rules_id
            step.follow_up(compile_version, SealedSnapshot(snapshot.snapshot_id, rules_id))
    return result


def _newest(readings: list[ReadDocument]) -> str:
    """A passport is dated by its newest document: a clock would make a replay differ."""
    return max((one.received_at for one in readings), default="")


@steps.job(
    "COMPILE_PASSPORT",
    subject="{snapshot_id}",
    idempotency_key="compile-{snapshot_id}-{rules_id}",
    priority=1,
    retry=_FIVE,
    events=_LOGGED,
)
async def compile_version(
    task: SealedSnapshot, ctx: Context, *, db: Database = provide(database)
) -> dict[str, Any]:
    """Compile a sealed snapshot by published rules."""
    tenant = ctx.job.tenant_id
    async with db.opened() as books:
        package = await books.published(task.rules_id)
        snapshot = await books.snapshot(tenant, task.snapshot_id)
    if package is None:
        raise Permanent("RULE_PKG_NOT_PUBLISHED", "The rules have not passed their tests yet.")
    version = compile_passport(tenant, snapshot, package)
    result = {
        "passport_version_id": version.passport_version_id,
        "serial": snapshot.serial,
        "payload_hash": version.payload_hash,
    }
    async with db.step(ctx, result) as step:
        await step.books.add_version(tenant, version)
        step.follow_up(sign_passport, Version(version.passport_version_id))
    return result


@steps.job(
    "SIGN_PASSPORT",
    subject="{passport_version_id}",
    idempotency_key="sign-{passport_version_id}",
    priority=1,
    retry=_FIVE,
    events=_LOGGED,
)
async def sign_passport(
    task: Version,
    ctx: Context,
    *,
    db: Database = provide(database),
    key: signing.Signer = provide(signer),
) -> dict[str, Any]:
    """Sign the hash of the receipt, and say so: to whoever listens, and in the audit trail."""
    tenant, version_id = ctx.job.tenant_id, task.passport_version_id
    async with db.opened() as books:
        version = await books.version(tenant, version_id)
    signature = key.sign(version.receipt_hash)
    result = {"passport_version_id": version_id, "key_id": signature.key_id}
    async with db.step(ctx, result) as step:
        await step.books.add_signature(tenant, version_id, signature)
        ctx.emit(PASSPORT_SIGNED, "PassportVersion", result)
        ctx.audit(PASSPORT_SIGNED, "PassportVersion", result)
        step.follow_up(generate_qr, Version(version_id))
    return result


@steps.job(
    "GENERATE_QR",
    subject="{passport_version_id}",
    idempotency_key="qr-{passport_version_id}",
    priority=2,
    retry=_FIVE,
    events=_LOGGED,
)
async def generate_qr(
    task: Version, ctx: Context, *, db: Database = provide(database)
) -> dict[str, Any]:
    """Draw the code that is printed on the battery."""
    tenant, version_id = ctx.job.tenant_id, task.passport_version_id
    async with db.opened() as books:
        version = await books.version(tenant, version_id)
    text = str(qr.QrText.of(version))
    result = {"passport_version_id": version_id, "qr": text}
    async with db.step(ctx, result) as step:
        await step.books.add_artefact(tenant, version_id, QR_NAME, qr.qr_png(text))
        step.follow_up(export_passport, Version(version_id))
    return result


@steps.job(
    "EXPORT_PASSPORT",
    subject="{passport_version_id}",
    idempotency_key="export-{passport_version_id}",
    priority=3,
    retry=_FIVE,
    events=_LOGGED,
)
async def export_passport(
    task: Version, ctx: Context, *, db: Database = provide(database)
) -> dict[str, Any]:
    """Write the passport as JSON, JSON-LD and PDF."""
    tenant, version_id = ctx.job.tenant_id, task.passport_version_id
    async with db.opened() as books:
        version = await books.version(tenant, version_id)
        signature = await books.signature(tenant, version_id)
    signed = Signed(version, signature, str(qr.QrText.of(version)))
    artefacts = {f"passport.{name}": make(signed) for name, make in exports.FORMATS.items()}
    result = {
        "passport_version_id": version_id,
        "receipt_hash": version.receipt_hash,
        "key_id": signature.key_id,
        "qr": signed.qr_text,
        "artefacts": [QR_NAME, *artefacts],
    }
    async with db.step(ctx, result) as step:
        for name, body in artefacts.items():
            await step.books.add_artefact(tenant, version_id, name, body)
    return result


@steps.job(
    "RUN_RULE_TESTS",
    subject="{rules_id}",
    idempotency_key="rules-{rules_id}",
    priority=2,
    retry=_FIVE,
    events=_LOGGED,
)
async def run_rule_tests(
    task: Rules, ctx: Context, *, db: Database = provide(database)
) -> dict[str, Any]:
    """Test the rules by their generated cases, and publish them if every case holds."""
    package = current_package()
    if package.rules_id != task.rules_id:
        raise Permanent("RULE_PKG_UNKNOWN", "This worker has other rules.")
    cases = list(cases_of(package))
    broken = [f"{case.rule.id} of {case.value}" for case in cases if not case.holds]
    if broken:
        raise Permanent("RULE_TESTS_FAILED", f"{len(broken)} cases fail, first {broken[0]}.")
    result = {"package": package.name, "rules_id": package.rules_id, "cases": len(cases)}
    async with db.step(ctx, result) as step:
        await step.books.publish(package, cases=len(cases))
    return result


@steps.every(timedelta(hours=1), overlap="skip")
@steps.job("RETENTION_SWEEP", priority=0, retry=_FIVE)
async def retention_sweep(ctx: Context, *, db: Database = provide(database)) -> dict[str, int]:
    """Remove documents from which no passport was made, a batch at a time."""
    # The instant that was due, not the clock: however late or often it runs, it means the same.
    before = instant_text((ctx.job.scheduled_at or ctx.job.created_at) - KEEP_UNUSED)
    async with db.opened() as books:
        unused = await books.unused_documents(before=before, limit=SWEEP_BATCH)
    result = {"forgotten": len(unused)}
    async with db.step(ctx, result) as step:
        await step.books.forget_open_snapshots(before=before)
        for tenant, document_id in unused:
            await step.books.forget_document(tenant, document_id)
        if len(unused) == SWEEP_BATCH:
            step.follow_up(retention_sweep, None)
    return result
