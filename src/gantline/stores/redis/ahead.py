"""ahead: how many due jobs are claimed before one."""

from collections.abc import Collection
from uuid import UUID

from gantline.contract.text import is_storable
from gantline.stores.redis import query, scripts
from gantline.stores.redis.calls import Calls
from gantline.stores.redis.rows import encode_lane, encode_tenant


async def ahead(
    calls: Calls,
    job_id: UUID,
    job_types: Collection[str],
    *,
    tenant_id: str | None,
    limit: int,
    now: bytes,
) -> dict[int, int] | None:
    (job,) = await query.get(calls, [job_id], tenant_id)
    if job is None:
        return None
    kinds = filter(is_storable, dict.fromkeys(job_types))
    lanes = (encode_lane(job.job.queue, kind) for kind in kinds)
    reply = await calls.run(
        scripts.AHEAD, now, job_id.bytes, encode_tenant(tenant_id), limit, *lanes
    )
    if not reply:
        return None
    return {priority: jobs for priority, jobs in enumerate(reply) if jobs}
