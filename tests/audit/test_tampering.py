"""Whoever reaches the store past us, and changes what was written, is found out, by name."""

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec
import psycopg
import pytest

from gantline.audit.chain import AuditEvent, NewAuditEvent, chain_event
from gantline.audit.verification import ChainReport, Checkpoint
from gantline.contract.clock import EPOCH
from tests.audit.conftest import TENANT, Trail, draft

Rows = list[tuple[str, bytes]]


class Raw:
    """The records of the chain in the database itself."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _run(self, sqlite: str, postgres: str, *values: Any) -> list[Any]:
        if self._url.startswith("sqlite"):
            connection = sqlite3.connect(self._url.removeprefix("sqlite:///"))
            try:
                rows = connection.execute(sqlite, values).fetchall()
                connection.commit()
            finally:
                connection.close()
            return rows
        location, _, schema = self._url.partition("?schema=")
        with psycopg.connect(location, autocommit=True) as connected:
            cursor = connected.execute(postgres.replace("SCHEMA", schema).encode(), values)
            return cursor.fetchall() if cursor.description else []

    def rows(self) -> Rows:
        """Oldest first."""
        found = self._run(
            "SELECT key, value FROM gantline_record WHERE namespace = 'audit' ORDER BY key DESC",
            "SELECT key, value FROM SCHEMA.record WHERE namespace = 'audit' ORDER BY key DESC",
        )
        return [(key, bytes(value)) for key, value in found]

    def put(self, key: str, value: bytes) -> None:
        self._run(
            "UPDATE gantline_record SET value = ? WHERE namespace = 'audit' AND key = ?",
            "UPDATE SCHEMA.record SET value = %s WHERE namespace = 'audit' AND key = %s",
            value,
            key,
        )

    def add(self, key: str, value: bytes) -> None:
        columns = "(namespace, key, value, replaced)"
        self._run(
            f"INSERT INTO gantline_record {columns} VALUES ('audit', ?, ?, 0)",  # noqa: S608
            f"INSERT INTO SCHEMA.record {columns} VALUES ('audit', %s, %s, 0)",  # noqa: S608
            key,
            value,
        )

    def remove(self, key: str) -> None:
        self._run(
            "DELETE FROM gantline_record WHERE namespace = 'audit' AND key = ?",
            "DELETE FROM SCHEMA.record WHERE namespace = 'audit' AND key = %s",
            key,
        )

    # -- what one could think of, about the events by their numbers, from 1 on -------------------

    def change(self, number: int, change: Callable[[list[dict[str, Any]]], None]) -> None:
        key, value = self.rows()[number - 1]
        events = msgspec.json.decode(value)
        change(events)
        self.put(key, msgspec.json.encode(events))

    def replace_text(self, number: int, old: bytes, new: bytes) -> None:
        key, value = self.rows()[number - 1]
        assert old in value
        self.put(key, value.replace(old, new, 1))

    def change_both(self, one: int, other: int) -> None:
        for number in (one, other):
            self.change(number, set_to(actor="me"))

    def swap(self, one: int, other: int) -> None:
        rows = self.rows()
        self.put(rows[one - 1][0], rows[other - 1][1])
        self.put(rows[other - 1][0], rows[one - 1][1])

    def remove_number(self, *numbers: int) -> None:
        rows = self.rows()
        for number in numbers:
            self.remove(rows[number - 1][0])

    def copy(self, number: int) -> None:
        """Put one in a second time, between it and the next."""
        key, value = self.rows()[number - 1]
        self.add(key[:-1] + chr(ord(key[-1]) - 1) + "x", value)


def set_to(**fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda events: events[0].update(fields)


def rewritten(**changes: Any) -> Callable[[list[dict[str, Any]]], None]:
    """The newest with its hash, by somebody who knows how to compute it."""

    def change(events: list[dict[str, Any]]) -> None:
        old = msgspec.convert(events[0], AuditEvent)
        changed = msgspec.structs.replace(old, **changes)
        made = msgspec.structs.replace(changed, hash=changed.sealed.hash)
        events[0] = msgspec.to_builtins(made)

    return change


def actor_rewritten(events: list[dict[str, Any]]) -> None:
    """By somebody who knows how to compute the hash."""
    old = events[0]
    made = chain_event(
        NewAuditEvent(
            aggregate=old["aggregate"],
            type=old["type"],
            actor="somebody else",
            payload=old["payload"],
        ),
        tenant_id=old["tenantId"],
        version=old["version"],
        time=msgspec.convert(old["time"], type=type(EPOCH)),
        previous_hash=old["previousHash"],
    )
    events[0] = msgspec.to_builtins(made)


def forged(raw: Raw) -> None:
    """A sound event put between 5 and 6, which says that it is 6."""
    key, value = raw.rows()[4]
    (fifth,) = msgspec.json.decode(value)
    made = chain_event(
        draft(99),
        tenant_id=TENANT,
        version=6,
        time=msgspec.convert(fifth["time"], type=type(EPOCH)),
        previous_hash=fifth["hash"],
    )
    raw.add(key + "x", msgspec.json.encode([made]))


TAMPERED: dict[str, tuple[Callable[[Raw], None], set[tuple[str, int | None]]]] = {
    "nothing": (lambda raw: None, set()),
    "actor": (lambda raw: raw.change(5, set_to(actor="me")), {("edited", 5)}),
    "type": (lambda raw: raw.change(5, set_to(type="x")), {("edited", 5)}),
    "time": (lambda raw: raw.change(5, set_to(time="2020-01-01T00:00:00Z")), {("edited", 5)}),
    "aggregate": (lambda raw: raw.change(5, set_to(aggregate="x")), {("edited", 5)}),
    "payload": (lambda raw: raw.change(5, set_to(payload={})), {("edited", 5)}),
    "payload hash": (lambda raw: raw.change(5, set_to(payloadHash="0" * 64)), {("edited", 5)}),
    "previous": (lambda raw: raw.change(5, set_to(previousHash="0" * 64)), {("edited", 5)}),
    "hash": (lambda raw: raw.change(5, set_to(hash="0" * 64)), {("edited", 5)}),
    "tenant": (lambda raw: raw.change(5, set_to(tenantId="evil")), {("edited", 5)}),
    "version": (lambda raw: raw.change(5, set_to(version=50)), {("edited", 5)}),
    "version that is there": (lambda raw: raw.change(5, set_to(version=7)), {("edited", 5)}),
    "the first": (lambda raw: raw.change(1, set_to(actor="me")), {("edited", 1)}),
    "the newest": (lambda raw: raw.change(10, set_to(actor="me")), {("edited", 10)}),
    "two beside each other": (
        lambda raw: raw.change_both(5, 6),
        {("edited", 5), ("edited", 6)},
    ),
    "with its hash": (lambda raw: raw.change(5, actor_rewritten), {("edited", 5)}),
    "the first with its hash": (lambda raw: raw.change(1, actor_rewritten), {("edited", 1)}),
    "not readable": (
        lambda raw: raw.put(raw.rows()[4][0], b"\xff"),
        {("edited", None), ("missing", 5)},
    ),
    "empty": (
        lambda raw: raw.put(raw.rows()[4][0], b"[]"),
        {("edited", None), ("missing", 5)},
    ),
    "a member more": (lambda raw: raw.change(5, set_to(note="x")), {("edited", None)}),
    "a member twice": (
        lambda raw: raw.replace_text(5, b'"actor":', b'"actor":"me","actor":'),
        {("edited", None)},
    ),
    "a member of the payload twice": (
        lambda raw: raw.replace_text(5, b'"number":5', b'"number":7,"number":5'),
        {("edited", None)},
    ),
    "written with blanks": (lambda raw: raw.replace_text(5, b'"actor":', b'"actor" : '), set()),
    "a time that goes back": (
        lambda raw: raw.change(10, rewritten(time=EPOCH)),
        {("edited", 10)},
    ),
    "a time without a zone": (
        lambda raw: raw.change(5, set_to(time="2020-01-01T00:00:00")),
        {("edited", None), ("missing", 5)},
    ),
    "one removed": (lambda raw: raw.remove_number(5), {("missing", 5)}),
    "the first removed": (lambda raw: raw.remove_number(1), {("missing", 1)}),
    "some removed": (lambda raw: raw.remove_number(3, 5, 6), {("missing", 3), ("missing", 5)}),
    "every other removed": (
        lambda raw: raw.remove_number(2, 4, 6, 8),
        {("missing", 2), ("missing", 4), ("missing", 6), ("missing", 8)},
    ),
    "neighbours swapped": (lambda raw: raw.swap(5, 6), {("reordered", 5)}),
    "far ones swapped": (lambda raw: raw.swap(3, 8), {("reordered", 3), ("reordered", 8)}),
    "the ends swapped": (lambda raw: raw.swap(1, 10), {("reordered", 1), ("reordered", 10)}),
    "one copied": (lambda raw: raw.copy(5), {("inserted", 5)}),
    "one forged": (forged, {("inserted", 6)}),
    "a far version forged": (
        lambda raw: raw.change(10, lambda events: _far(events)),
        {("missing", 10)},
    ),
}  # fmt: skip


def _far(events: list[dict[str, Any]]) -> None:
    """Sound, but of a version that would take for ever to count to."""
    made = chain_event(
        draft(99),
        tenant_id=TENANT,
        version=10**14,
        time=msgspec.convert(events[0]["time"], type=type(EPOCH)),
        previous_hash=events[0]["previousHash"],
    )
    events[0] = msgspec.to_builtins(made)


def named(result: ChainReport) -> set[tuple[str, int | None]]:
    return {(finding.what.value, finding.version) for finding in result.findings}


@pytest.mark.parametrize("what", TAMPERED)
async def test_what_was_done_to_a_chain_is_named(sql_trail: Trail, what: str) -> None:
    await sql_trail.append(10)
    tamper, expected = TAMPERED[what]
    tamper(Raw(sql_trail.url))
    result = await sql_trail.verified()
    assert named(result) == expected, result.findings
    assert all(finding.tenant_id == TENANT for finding in result.findings)


async def test_a_finding_names_what_it_is_about(sql_trail: Trail) -> None:
    await sql_trail.append(10)
    Raw(sql_trail.url).change(5, set_to(actor="me"))
    (finding,) = (await sql_trail.verified()).findings
    assert (finding.aggregate, finding.version) == ("queue:q5", 5)


@pytest.mark.parametrize("cut", [1, 3, 10])
async def test_a_cut_tail_shows_against_a_checkpoint(sql_trail: Trail, cut: int) -> None:
    events = await sql_trail.append(10)
    newest = events[-1]
    known = Checkpoint(tenant_id=TENANT, version=newest.version, hash=newest.hash, time=newest.time)
    assert (await sql_trail.verified(checkpoint=known)).findings == []
    Raw(sql_trail.url).remove_number(*range(11 - cut, 11))
    assert (await sql_trail.verified()).findings == []  # which is why one keeps checkpoints
    (finding,) = (await sql_trail.verified(checkpoint=known)).findings
    assert (finding.what, finding.version) == ("tail-cut", 11 - cut)
    assert finding.last_version == (10 if cut > 1 else None)


async def test_a_chain_written_anew_shows_against_a_checkpoint(sql_trail: Trail) -> None:
    events = await sql_trail.append(10)
    known = Checkpoint(tenant_id=TENANT, version=10, hash=events[-1].hash, time=events[-1].time)
    Raw(sql_trail.url).remove_number(*range(6, 11))
    await sql_trail.append(7)
    assert (await sql_trail.verified()).findings == []
    (finding,) = (await sql_trail.verified(checkpoint=known)).findings
    assert (finding.what, finding.version) == ("edited", 10)


async def test_appending_goes_on_behind_what_was_changed(sql_trail: Trail) -> None:
    await sql_trail.append(5)
    Raw(sql_trail.url).change(5, set_to(actor="me"))
    await sql_trail.append(3)
    result = await sql_trail.verified()
    assert (result.events, named(result)) == (8, {("edited", 5)})
