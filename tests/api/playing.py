"""Playing the worker, so that a test says what becomes of a job."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from gantline import Gantline
from gantline.contract.codec import codec_for, encode_result
from gantline.contract.outcome import ErrorInfo, Failure, Outcome, Success
from gantline.contract.query import JobFilter, LaneRequest
from gantline.contract.snapshot import JobSnapshot, Run
from gantline.manager.manager import Ending
from gantline.testing.factories import register_sessions

PERMANENT = Failure(
    ErrorInfo("DOCUMENT_UNKNOWN", "There is no such document.", "Traceback: secret detail"),
    retryable=False,
)
RETRYABLE = Failure(ErrorInfo("NETWORK_ERROR", "No answer.", "Traceback: secret detail"))


def success(result: Any = None) -> Success:
    return Success(*encode_result(result, codec_for(Any)))


async def claim(jobs: Gantline, limit: int = 100) -> list[Run]:
    """Start what is due."""
    queues = {lane.queue for lane in await jobs.store.counts(tenant_id=None)}
    requests = [LaneRequest(queue, jobs.registry.job_types, limit) for queue in sorted(queues)]
    lease = timedelta(minutes=1)
    await register_sessions(jobs.store, "host-1-worker")
    return await jobs.store.claim("host-1-worker", uuid4(), requests, lease=lease)


async def settle(jobs: Gantline, run: Run, outcome: Outcome) -> None:
    (settled,) = await jobs.manager.settle([Ending(run, outcome)])
    assert settled.accepted


async def run_all(jobs: Gantline, outcome: Outcome | None = None) -> None:
    """Run what is due, with one outcome for all."""
    for run in await claim(jobs):
        await settle(jobs, run, outcome or success())


async def stored(jobs: Gantline) -> list[JobSnapshot]:
    """All jobs of all tenants, newest first."""
    return list((await jobs.store.find(JobFilter(tenant_id=None), limit=200)).items)


async def standing(jobs: Gantline, job_id: str) -> JobSnapshot:
    (job,) = await jobs.store.get([UUID(job_id)], tenant_id=None)
    assert job is not None
    return job
