"""The books: every row that the application keeps, written and read in the caller's transaction.

Rows are only added. What is there already stays as it is, so whatever is written may be written
again. Every call names the tenant.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from examples.battery_passport.canonical import digest
from examples.battery_passport.documents import SCHEMA_VERSION, Fact, Kind, Reading
from examples.battery_passport.passport import PassportVersion, Snapshot
from examples.battery_passport.rules import RulePackage, package_from
from examples.battery_passport.signing import Signature
from gantline import Permanent

Row = Sequence[Any]


class ReadDocument(NamedTuple):
    """A document that was read, with the hashes of its facts."""

    kind: Kind
    received_at: str
    fact_hashes: tuple[str, ...]


class ListedPassport(NamedTuple):
    passport_version_id: str
    serial: str
    issued_at: str


class Books:
    """One transaction. SQL is written with `?`, as SQLite has it."""

    def __init__(self, connection: Any) -> None:
        """A connection of sqlite3, or an AsyncConnection of psycopg."""
        self._connection = connection

    async def _rows(self, sql: str, *values: object) -> Sequence[Row]:
        if isinstance(self._connection, sqlite3.Connection):
            return self._connection.execute(sql, values).fetchall()
        cursor = await self._connection.execute(sql.replace("?", "%s"), values)
        rows: Sequence[Row] = await cursor.fetchall() if cursor.description else ()
        return rows

    async def _one(self, what: str, sql: str, *values: object) -> Row:
        rows = await self._rows(sql, *values)
        if not rows:
            raise Permanent("NOT_FOUND", f"There is no such {what}.")
        return rows[0]

    async def _add(self, table: str, row: Mapping[str, object]) -> None:
        columns, marks = ", ".join(row), ", ".join("?" * len(row))
        # Names of our own tables and columns; values are bound.
        sql = f"INSERT INTO {table} ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608
        await self._rows(sql, *row.values())

    # -- documents and facts ----------------------------------------------------------------------

    async def add_document(self, tenant: str, name: str, content: bytes, *, now: str) -> str:
        """Keep a document, once; its id is the hash of its content."""
        document_id = digest(content)
        row = {"document_id": document_id, "name": name, "content": content, "received_at": now}
        await self._add("document", {"tenant_id": tenant, **row})
        return document_id

    async def content_of(self, tenant: str, document_id: str) -> bytes:
        sql = "SELECT content FROM document WHERE tenant_id = ? AND document_id = ?"
        return bytes((await self._one("document", sql, tenant, document_id))[0])

    async def add_reading(self, tenant: str, document_id: str, reading: Reading) -> None:
        of = {"tenant_id": tenant, "document_id": document_id}
        await self._add("reading", {**of, "kind": reading.kind, "serial": reading.serial})
        for fact in reading.facts:
            await self._add_fact(tenant, fact)
            await self._add("reading_fact", {**of, "payload_hash": fact.hash})

    async def _add_fact(self, tenant: str, fact: Fact) -> None:
        key = {"fact_type": fact.type, "fact_key": fact.key, "schema_version": SCHEMA_VERSION}
        row = {"tenant_id": tenant, **key, "payload_hash": fact.hash, "body": fact.body}
        await self._add("fact", row)

    async def newest_readings(self, tenant: str, serial: str) -> list[ReadDocument]:
        """Of each kind the document of a battery that came last."""
        rows = await self._rows(
            "SELECT kind, document_id, received_at FROM reading JOIN document"
            " USING (tenant_id, document_id) WHERE tenant_id = ? AND serial = ?"
            " ORDER BY received_at, document_id",
            *(tenant, serial),
        )
        newest = {kind: (document_id, received_at) for kind, document_id, received_at in rows}
        return [
            ReadDocument(Kind(kind), received_at, await self._fact_hashes(tenant, document_id))
            for kind, (document_id, received_at) in newest.items()
        ]

    async def _fact_hashes(self, tenant: str, document_id: str) -> tuple[str, ...]:
        sql = "SELECT payload_hash FROM reading_fact WHERE tenant_id = ? AND document_id = ?"
        return tuple(row[0] for row in await self._rows(sql, tenant, document_id))

    # -- snapshots and rules ----------------------------------------------------------------------

    async def add_snapshot(self, tenant: str, snapshot: Snapshot, hashes: Sequence[str]) -> None:
        of = {"tenant_id": tenant, "snapshot_id": snapshot.snapshot_id}
        status = "SEALED" if snapshot.is_sealed else "OPEN"
        about = {"serial": snapshot.serial, "status": status, "issued_at": snapshot.issued_at}
        await self._add("snapshot", {**of, **about})
        for payload_hash in hashes:
            await self._add("snapshot_fact", {**of, "payload_hash": payload_hash})

    async def snapshot(self, tenant: str, snapshot_id: str) -> Snapshot:
        serial, status, issued_at = await self._one(
            "snapshot",
            "SELECT serial, status, issued_at FROM snapshot"
            " WHERE tenant_id = ? AND snapshot_id = ?",
            *(tenant, snapshot_id),
        )
        facts = await self._rows(
            "SELECT body FROM snapshot_fact JOIN fact USING (tenant_id, payload_hash)"
            " WHERE tenant_id = ? AND snapshot_id = ? ORDER BY payload_hash",
            *(tenant, snapshot_id),
        )
        bodies = tuple(bytes(row[0]) for row in facts)
        return Snapshot(snapshot_id, serial, issued_at, status == "SEALED", bodies)

    async def publish(self, package: RulePackage, *, cases: int) -> None:
        row = {"rules_id": package.rules_id, "body": package.body, "cases": cases}
        await self._add("rule_package", row)

    async def published(self, rules_id: str) -> RulePackage | None:
        rows = await self._rows("SELECT body FROM rule_package WHERE rules_id = ?", rules_id)
        return package_from(bytes(rows[0][0])) if rows else None

    async def cases_of(self, rules_id: str) -> int:
        """With how many cases a package was tested; 0 where it is not published."""
        rows = await self._rows("SELECT cases FROM rule_package WHERE rules_id = ?", rules_id)
        return int(rows[0][0]) if rows else 0

    # -- passports --------------------------------------------------------------------------------

    async def add_version(self, tenant: str, version: PassportVersion) -> None:
        row = {name: getattr(version, name) for name in version.__struct_fields__}
        await self._add("passport_version", {"tenant_id": tenant, **row})

    async def version(self, tenant: str, version_id: str) -> PassportVersion:
        names = PassportVersion.__struct_fields__
        row = await self._one(
            "passport",
            f"SELECT {', '.join(names)} FROM passport_version"  # noqa: S608  # our own columns
            " WHERE tenant_id = ? AND passport_version_id = ?",
            *(tenant, version_id),
        )
        return PassportVersion(**dict(zip(names, row, strict=True)))

    async def passports(self, tenant: str) -> list[ListedPassport]:
        """Those that are done, with the last of their artefacts; newest first."""
        rows = await self._rows(
            "SELECT passport_version_id, serial, passport_version.issued_at FROM passport_version"
            " JOIN snapshot USING (tenant_id, snapshot_id)"
            " JOIN artefact USING (tenant_id, passport_version_id)"
            " WHERE tenant_id = ? AND artefact.name = 'passport.json'"
            " ORDER BY passport_version.issued_at DESC, passport_version_id LIMIT 100",
            tenant,
        )
        return [ListedPassport(*row) for row in rows]

    async def add_signature(self, tenant: str, version_id: str, signature: Signature) -> None:
        about = {
            "key_id": signature.key_id,
            "public_key": signature.public_key,
            "signature": signature.signature,
        }
        of = {"tenant_id": tenant, "passport_version_id": version_id}
        await self._add("signature", {**of, **about})

    async def signature(self, tenant: str, version_id: str) -> Signature:
        key_id, public_key, signature = await self._one(
            "signature",
            "SELECT key_id, public_key, signature FROM signature"
            " WHERE tenant_id = ? AND passport_version_id = ?",
            *(tenant, version_id),
        )
        return Signature(key_id, bytes(public_key), bytes(signature))

    async def add_artefact(self, tenant: str, version_id: str, name: str, body: bytes) -> None:
        of = {"tenant_id": tenant, "passport_version_id": version_id}
        await self._add("artefact", {**of, "name": name, "body": body, "body_hash": digest(body)})

    async def artefact(self, tenant: str, version_id: str, name: str) -> bytes:
        sql = (
            "SELECT body FROM artefact WHERE tenant_id = ? AND passport_version_id = ? AND name = ?"
        )
        return bytes((await self._one("artefact", sql, tenant, version_id, name))[0])

    async def artefacts_of(self, tenant: str, version_id: str) -> list[str]:
        """The names of those that there are so far."""
        sql = "SELECT name FROM artefact WHERE tenant_id = ? AND passport_version_id = ?"
        return sorted(row[0] for row in await self._rows(sql, tenant, version_id))

    async def signed_by(self, tenant: str, version_id: str) -> str | None:
        """The id of the key; None where it is not signed yet."""
        sql = "SELECT key_id FROM signature WHERE tenant_id = ? AND passport_version_id = ?"
        rows = await self._rows(sql, tenant, version_id)
        return rows[0][0] if rows else None

    # -- retention --------------------------------------------------------------------------------

    async def unused_documents(self, *, before: str, limit: int) -> list[tuple[str, str]]:
        """Documents of all tenants, as (tenant, id), from which nothing was sealed for so long."""
        rows = await self._rows(
            "SELECT tenant_id, document_id FROM document WHERE received_at < ? AND NOT EXISTS ("
            " SELECT 1 FROM reading_fact JOIN snapshot_fact USING (tenant_id, payload_hash)"
            " JOIN snapshot USING (tenant_id, snapshot_id)"
            " WHERE reading_fact.tenant_id = document.tenant_id"
            " AND reading_fact.document_id = document.document_id AND status = 'SEALED')"
            " ORDER BY received_at, document_id LIMIT ?",
            *(before, limit),
        )
        return [(tenant, document_id) for tenant, document_id in rows]

    async def forget_open_snapshots(self, *, before: str) -> None:
        old = "SELECT 1 FROM snapshot WHERE snapshot.tenant_id = snapshot_fact.tenant_id"
        await self._rows(
            f"DELETE FROM snapshot_fact WHERE EXISTS ({old}"  # noqa: S608  # as above
            " AND snapshot.snapshot_id = snapshot_fact.snapshot_id"
            " AND status = 'OPEN' AND issued_at < ?)",
            before,
        )
        await self._rows("DELETE FROM snapshot WHERE status = 'OPEN' AND issued_at < ?", before)

    async def forget_document(self, tenant: str, document_id: str) -> None:
        """Remove a document and what was read in it; facts that other documents hold too stay."""
        for table in ("reading_fact", "reading", "document"):
            sql = f"DELETE FROM {table} WHERE tenant_id = ? AND document_id = ?"  # noqa: S608  # as above
            await self._rows(sql, tenant, document_id)
        await self._rows(
            "DELETE FROM fact WHERE tenant_id = ?"
            " AND NOT EXISTS (SELECT 1 FROM reading_fact AS other"
            " WHERE other.tenant_id = fact.tenant_id AND other.payload_hash = fact.payload_hash)"
            " AND NOT EXISTS (SELECT 1 FROM snapshot_fact AS kept"
            " WHERE kept.tenant_id = fact.tenant_id AND kept.payload_hash = fact.payload_hash)",
            tenant,
        )
