"""The raw limit: what SQLite itself can do on this disk, equally durable, with no contract at all.

Thin tables, no history, no keys, no tenants, no leases, no event loop; one thread.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gantline.contract.job_id import new_job_id

_PAYLOAD: Final = bytes(200)
# As the store has it, so that both write the same file equally often.
_CHECKPOINT_PAGES: Final = 4_000


def insert_rate(path: Path, jobs: int, *, batch: int) -> float:
    """Jobs per second: an id and a payload, `batch` of them per synced transaction."""
    rows = [(new_job_id().bytes, _PAYLOAD) for _ in range(jobs)]
    with _connected(path, "CREATE TABLE job (id BLOB PRIMARY KEY, payload BLOB)") as connection:
        start = time.perf_counter()
        for first in range(0, jobs, batch):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO job VALUES (?, ?)", rows[first : first + batch])
            connection.execute("COMMIT")
        return jobs / (time.perf_counter() - start)


def claim_and_delete_rate(path: Path, jobs: int, *, batch: int) -> float:
    """Jobs per second: marked and read in one synced transaction, deleted in the next."""
    thin = """
        CREATE TABLE queue (
            number INTEGER PRIMARY KEY, id BLOB, payload BLOB, taken INTEGER DEFAULT 0
        )
    """
    rows = [(new_job_id().bytes, _PAYLOAD) for _ in range(jobs)]
    with _connected(path, thin) as connection:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO queue (id, payload) VALUES (?, ?)", rows)
        connection.execute("COMMIT")
        start = time.perf_counter()
        done = 0
        while taken := _claim(connection, batch):
            _delete(connection, taken)
            done += len(taken)
        assert done == jobs
        return jobs / (time.perf_counter() - start)


def _claim(connection: sqlite3.Connection, batch: int) -> list[tuple[int, bytes, bytes]]:
    connection.execute("BEGIN IMMEDIATE")
    taken = connection.execute(
        """
        UPDATE queue SET taken = 1
        WHERE number IN (SELECT number FROM queue WHERE taken = 0 ORDER BY number LIMIT ?)
        RETURNING number, id, payload
        """,
        (batch,),
    ).fetchall()
    connection.execute("COMMIT")
    return taken


def _delete(connection: sqlite3.Connection, taken: list[tuple[int, bytes, bytes]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("DELETE FROM queue WHERE number = ?", [row[:1] for row in taken])
    connection.execute("COMMIT")


@contextmanager
def _connected(path: Path, table: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    connection.execute(table)
    try:
        yield connection
    finally:
        connection.close()
