"""Dedupe keys: who holds one, how a job takes one, and what happens to it when the job ends."""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from gantline.contract.clock import later_micros
from gantline.contract.submission import DedupeKey, KeyKind


class HeldKey(NamedTuple):
    job_id: bytes
    fingerprint: bytes


# Nobody holds the external id of a job whose row was removed by hand.
_HOLDER = """
SELECT job_id, fingerprint FROM gantline_dedupe
WHERE kind = ? AND tenant = ? AND scope = ? AND key = ? AND (until IS NULL OR until > ?)
  AND (kind <> 'id' OR EXISTS (SELECT 1 FROM gantline_job WHERE id = job_id))
"""
_OF_REQUEST = """
SELECT job_id, tenant, scope, key, fingerprint FROM gantline_dedupe
WHERE kind = 'request' AND job_id = ? AND (until IS NULL OR until > ?)
"""
_TAKE = """
INSERT INTO gantline_dedupe (kind, tenant, scope, key, job_id, fingerprint, until)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, tenant, scope, key) DO UPDATE
SET job_id = excluded.job_id, fingerprint = excluded.fingerprint, until = excluded.until
"""
# Only the owner may change a key: after a job failed, the key can belong to a newer job.
_OWNED = "WHERE kind = 'job' AND tenant = ? AND scope = ? AND key = ? AND job_id = ?"
HOLD = f"UPDATE gantline_dedupe SET until = ? {_OWNED}"  # noqa: S608  # constants only
FREE = f"DELETE FROM gantline_dedupe {_OWNED}"  # noqa: S608  # constants only
FREE_EXTERNAL = """
DELETE FROM gantline_dedupe
WHERE kind = 'id' AND tenant = ? AND scope = '' AND key = ? AND job_id = ?
"""


def find_holder(connection: sqlite3.Connection, key: DedupeKey, now: int) -> HeldKey | None:
    row = connection.execute(_HOLDER, (*key.identity, now)).fetchone()
    return HeldKey(*row) if row else None


def find_request_keys(
    connection: sqlite3.Connection, job_ids: Sequence[UUID], now: int
) -> list[DedupeKey | None]:
    found: dict[bytes, DedupeKey] = {}
    for job_id in dict.fromkeys(job_ids):
        row = connection.execute(_OF_REQUEST, (job_id.bytes, now)).fetchone()
        if row:
            found[row[0]] = DedupeKey(KeyKind.REQUEST, *row[1:])
    return [found.get(job_id.bytes) for job_id in job_ids]


def take(connection: sqlite3.Connection, keys: list[tuple[DedupeKey, bytes]], now: int) -> None:
    """Give keys to jobs, whoever held them. The caller has checked that it may."""
    if not keys:
        return
    connection.executemany(
        _TAKE,
        [
            (
                *key.identity,
                job_id,
                key.fingerprint,
                None if key.hold is None else later_micros(now, key.hold),
            )
            for key, job_id in keys
        ],
    )
