"""Dedupe keys: who holds one, how a job takes one, and what happens to it when the job ends.

Everywhere keys are locked in the order of tenant, scope, key and kind, by their bytes. Python's
order of texts is that of their UTF-8; the server's functions say COLLATE "C".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from psycopg.errors import SerializationFailure

from gantline.contract.clock import later_micros
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.stores.postgres.arrays import Texts, Uuids
from gantline.stores.postgres.sql import Sql


class HeldKey(NamedTuple):
    job_id: UUID
    fingerprint: bytes


_HOLDER = """
SELECT job_id, fingerprint FROM gantline.dedupe
WHERE kind = %s::text::gantline.key_kind AND tenant = %s AND scope = %s AND key = %s
  AND (until IS NULL OR until > coalesce(%s, gantline.micros()))
"""
_OF_REQUESTS = """
SELECT job_id, tenant, scope, key, fingerprint FROM gantline.dedupe
WHERE kind = 'request' AND job_id = ANY (%s)
  AND (until IS NULL OR until > coalesce(%s, gantline.micros()))
"""
_TAKE = """
INSERT INTO gantline.dedupe AS held (kind, tenant, scope, key, job_id, fingerprint, until)
VALUES (%s::text::gantline.key_kind, %s, %s, %s, %s, %s, %s)
ON CONFLICT (tenant, scope, key, kind) DO UPDATE
SET job_id = excluded.job_id, fingerprint = excluded.fingerprint, until = excluded.until
WHERE held.kind = 'once' OR held.job_id = excluded.job_id OR held.until <= %s
"""
_LOCK = """
SELECT FROM unnest(%s, %s, %s, %s) AS given (kind, tenant, scope, key)
CROSS JOIN LATERAL (
    SELECT FROM gantline.dedupe AS held
    WHERE held.tenant = given.tenant AND held.scope = given.scope AND held.key = given.key
      AND held.kind = given.kind::gantline.key_kind
    OFFSET 0 FOR UPDATE
) AS held
"""
# Only the owner may change a key: after a job failed, the key can belong to a newer job.
_OWNED = "WHERE kind = 'job' AND tenant = %s AND scope = %s AND key = %s AND job_id = %s"
HOLD = f"UPDATE gantline.dedupe SET until = %s {_OWNED}"  # noqa: S608  # constants only
FREE = f"DELETE FROM gantline.dedupe {_OWNED}"  # noqa: S608  # constants only
FREE_EXTERNAL = """
    DELETE FROM gantline.dedupe AS held USING jobs
    WHERE jobs.external_id IS NOT NULL AND held.tenant = jobs.tenant AND held.scope = ''
      AND held.key = replace(jobs.external_id::text, '-', '') AND held.kind = 'id'
      AND held.job_id = jobs.id
"""
"""Frees the external ids of `jobs`, a CTE of the rows that were deleted."""


async def find_holder(sql: Sql, key: DedupeKey, now: int | None) -> HeldKey | None:
    kind, tenant, scope, name = key.identity
    row = await sql.row(_HOLDER, str(kind), tenant, scope, name, now)
    return HeldKey(*row) if row else None


async def lock(sql: Sql, keys: Iterable[DedupeKey]) -> None:
    """Lock the keys that are held, so that they can be written in any order."""
    ordered = sort_for_locking(set(keys))
    if len(ordered) > 1:
        tenants, scopes, names, kinds = (Texts(column) for column in zip(*ordered, strict=True))
        await sql.rows(_LOCK, kinds, tenants, scopes, names)


def sort_for_locking(keys: Iterable[DedupeKey]) -> list[tuple[str, str, str, str]]:
    return sorted((key.tenant_id, key.scope, key.key, str(key.kind)) for key in keys)


async def find_request_keys(
    sql: Sql, job_ids: Sequence[UUID], now: int | None
) -> list[DedupeKey | None]:
    rows = await sql.rows(_OF_REQUESTS, Uuids(list(dict.fromkeys(job_ids))), now)
    found = {row[0]: DedupeKey(KeyKind.REQUEST, *row[1:]) for row in rows}
    return [found.get(job_id) for job_id in job_ids]


async def take(sql: Sql, keys: Sequence[tuple[DedupeKey, UUID]], now: int) -> None:
    """Give keys to jobs. The caller has checked; if a key was taken since then, it must retry."""
    for key, job_id in sorted(keys, key=lambda item: sort_for_locking(item[:1])):
        kind, tenant, scope, name = key.identity
        until = None if key.hold is None else later_micros(now, key.hold)
        values = (str(kind), tenant, scope, name, job_id, key.fingerprint, until, now)
        if not await sql.run(_TAKE, *values):
            raise SerializationFailure("a key was taken meanwhile")


async def free(sql: Sql, keys: Mapping[UUID, DedupeKey]) -> None:
    """Free the keys of jobs."""
    await lock(sql, keys.values())
    await sql.each(
        FREE, [(key.tenant_id, key.scope, key.key, job_id) for job_id, key in keys.items()]
    )
