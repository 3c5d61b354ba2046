"""Dedupe keys: who holds one, taking one, and what becomes of it when its job ends."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from psycopg.errors import SerializationFailure

from windlass.contract.clock import later_micros
from windlass.contract.submission import DedupeKey, KeyKind
from windlass.stores.postgres.arrays import Uuids
from windlass.stores.postgres.sql import Sql


class HeldKey(NamedTuple):
    job_id: UUID
    fingerprint: bytes


_HOLDER = """
SELECT job_id, fingerprint FROM windlass.dedupe
WHERE kind = %s::text::windlass.key_kind AND tenant = %s AND scope = %s AND key = %s
  AND (until IS NULL OR until > coalesce(%s, windlass.micros()))
"""
_OF_REQUESTS = """
SELECT job_id, tenant, scope, key, fingerprint FROM windlass.dedupe
WHERE kind = 'request' AND job_id = ANY (%s)
  AND (until IS NULL OR until > coalesce(%s, windlass.micros()))
"""
_TAKE = """
INSERT INTO windlass.dedupe AS held (kind, tenant, scope, key, job_id, fingerprint, until)
VALUES (%s::text::windlass.key_kind, %s, %s, %s, %s, %s, %s)
ON CONFLICT (tenant, scope, key, kind) DO UPDATE
SET job_id = excluded.job_id, fingerprint = excluded.fingerprint, until = excluded.until
WHERE held.kind = 'once' OR held.job_id = excluded.job_id OR held.until <= %s
"""
# Only the owner may touch a key: after a job failed, the key can belong to a newer one.
_OWNED = "WHERE kind = 'job' AND tenant = %s AND scope = %s AND key = %s AND job_id = %s"
HOLD = f"UPDATE windlass.dedupe SET until = %s {_OWNED}"  # noqa: S608  # constants only
FREE = f"DELETE FROM windlass.dedupe {_OWNED}"  # noqa: S608  # constants only


async def holder(sql: Sql, key: DedupeKey, now: int | None) -> HeldKey | None:
    kind, tenant, scope, name = key.identity
    row = await sql.row(_HOLDER, str(kind), tenant, scope, name, now)
    return HeldKey(*row) if row else None


async def of_requests(sql: Sql, job_ids: Sequence[UUID], now: int | None) -> list[DedupeKey | None]:
    rows = await sql.rows(_OF_REQUESTS, Uuids(list(dict.fromkeys(job_ids))), now)
    found = {row[0]: DedupeKey(KeyKind.REQUEST, *row[1:]) for row in rows}
    return [found.get(job_id) for job_id in job_ids]


async def take(sql: Sql, keys: Sequence[tuple[DedupeKey, UUID]], now: int) -> None:
    """Give keys to jobs. The caller has looked; who was faster since then wins, and we go again."""
    for key, job_id in sorted(keys, key=lambda item: item[0].identity[1:]):
        kind, tenant, scope, name = key.identity
        until = None if key.hold is None else later_micros(now, key.hold)
        values = (str(kind), tenant, scope, name, job_id, key.fingerprint, until, now)
        if not await sql.run(_TAKE, *values):
            raise SerializationFailure("a key was taken meanwhile")
