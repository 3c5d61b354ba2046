"""The application's own data: documents, who may read them, and what was found out about them.

They are in the same SQLite file as the jobs, so that a document and its job, or what a job found
and its completion, are written in one transaction.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import msgspec

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS document (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    redacted TEXT,          -- the text without personal data
    hidden INTEGER          -- how much of it there was
);
CREATE TABLE IF NOT EXISTS reader (
    person TEXT, document_id TEXT REFERENCES document, is_owner INTEGER,
    PRIMARY KEY (person, document_id)
);
CREATE TABLE IF NOT EXISTS finding (
    document_id TEXT REFERENCES document, kind TEXT, body TEXT NOT NULL,
    PRIMARY KEY (document_id, kind)
);
"""


class Texts(NamedTuple):
    original: str
    redacted: str | None
    """None until it was processed."""


class Listed(msgspec.Struct, rename="camel"):
    """A document, as its readers see it."""

    document_id: str
    title: str
    is_mine: bool
    redacted: str | None
    hidden: int | None
    findings: dict[str, Any]


class Documents:
    """One method per question. A caller that asks for a text names the reader, jobs too."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        with self._connected() as connection:
            connection.executescript(_SCHEMA)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=10)) as connection:
            yield connection

    def is_empty(self) -> bool:
        with self._connected() as connection:
            return connection.execute("SELECT 1 FROM document").fetchone() is None

    def add(
        self,
        connection: sqlite3.Connection,
        *,
        owner: str,
        title: str,
        text: str,
        readers: Iterable[str] = (),
    ) -> UUID:
        """Write a document that its owner, and the readers, may read."""
        document_id = uuid4()
        connection.execute(
            "INSERT INTO document (id, title, text) VALUES (?, ?, ?)",
            [str(document_id), title, text],
        )
        connection.executemany(
            "INSERT INTO reader VALUES (?, ?, ?)",
            [(person, str(document_id), person == owner) for person in {owner, *readers}],
        )
        return document_id

    def readable_by(self, person: str) -> frozenset[str]:
        with self._connected() as connection:
            rows = connection.execute("SELECT document_id FROM reader WHERE person = ?", [person])
            return frozenset(document_id for (document_id,) in rows)

    def read(self, document_id: UUID, *, reader: str) -> Texts | None:
        """None where there is no such document, or none that this person may read."""
        with self._connected() as connection:
            row = connection.execute(
                "SELECT text, redacted FROM document JOIN reader ON document_id = id"
                " WHERE id = ? AND person = ?",
                [str(document_id), reader],
            ).fetchone()
        return Texts(*row) if row else None

    def listed(self, person: str) -> list[Listed]:
        with self._connected() as connection:
            documents = connection.execute(
                "SELECT id, title, is_owner, redacted, hidden FROM document"
                " JOIN reader ON document_id = id WHERE person = ? ORDER BY document.rowid DESC",
                [person],
            ).fetchall()
            return [
                Listed(
                    document_id=document_id,
                    title=title,
                    is_mine=bool(is_owner),
                    redacted=redacted,
                    hidden=hidden,
                    findings=self._findings(connection, document_id),
                )
                for document_id, title, is_owner, redacted, hidden in documents
            ]

    def _findings(self, connection: sqlite3.Connection, document_id: str) -> dict[str, Any]:
        rows = connection.execute(
            "SELECT kind, body FROM finding WHERE document_id = ?", [document_id]
        )
        return {kind: msgspec.json.decode(body) for kind, body in rows}


# -- what jobs write, each in the transaction that completes it -----------------------------------


def keep_redacted(
    connection: sqlite3.Connection, document_id: UUID, redacted: str, hidden: int
) -> None:
    connection.execute(
        "UPDATE document SET redacted = ?, hidden = ? WHERE id = ?",
        [redacted, hidden, str(document_id)],
    )


def keep_finding(
    connection: sqlite3.Connection, document_id: UUID, kind: str, body: Mapping[str, Any]
) -> None:
    connection.execute(
        "INSERT INTO finding VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body",
        [str(document_id), kind, msgspec.json.encode(body).decode()],
    )
