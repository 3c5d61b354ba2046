"""The jobs that are measured: an ordinary envelope with about 200 bytes of payload."""

from datetime import timedelta
from typing import Any, Final
from uuid import uuid4
from weakref import WeakSet

import msgspec

from gantline.contract.job import Job
from gantline.contract.outcome import Outcome
from gantline.contract.query import LaneRequest
from gantline.contract.snapshot import Run
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.manager.manager import Ending, JobManager
from gantline.testing.factories import register_sessions

JOB_TYPE: Final = "invoices.send"
QUEUE: Final = "default"
SESSION: Final = "benchmark"
LEASE: Final = timedelta(minutes=5)
PAYLOAD: Final = msgspec.Raw(
    b'{"invoice":123456,"customer":"c-000001","lines":[1,2,3],"note":"%b"}' % (b"x" * 130)
)


def new_job(*, job_type: str = JOB_TYPE, delay: timedelta = timedelta(0), **fields: Any) -> NewJob:
    job = Job(job_type=job_type, payload=PAYLOAD, queue=QUEUE, **fields)
    return NewJob(job, job.fingerprint, delay)


def new_jobs(count: int, *, keyed: bool = False) -> list[NewJob]:
    return [new_job(idempotency_key=f"invoice-{n}" if keyed else "") for n in range(count)]


def lane_requests(limit: int, *job_types: str) -> tuple[LaneRequest, ...]:
    return (LaneRequest(QUEUE, job_types or (JOB_TYPE,), limit),)


_registered: WeakSet[JobStore] = WeakSet()


async def claim(store: JobStore, requests: tuple[LaneRequest, ...]) -> list[Run]:
    if store not in _registered:
        await register_sessions(store, SESSION)
        _registered.add(store)
    return await store.claim(SESSION, uuid4(), requests, lease=LEASE)


async def settle(manager: JobManager, runs: list[Run], outcome: Outcome) -> None:
    """End runs all alike, and insist that the store took every one."""
    settled = await manager.settle([Ending(run, outcome) for run in runs])
    assert all(answer.accepted for answer in settled)
