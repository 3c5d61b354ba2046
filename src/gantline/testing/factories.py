"""Jobs for tests: valid by default, any field at will."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from gantline.contract.flow import TypeFlow
from gantline.contract.job import Job
from gantline.contract.payload import encode_payload
from gantline.contract.query import LaneRequest
from gantline.contract.records import SESSIONS, RecordWrite
from gantline.contract.store import JobStore
from gantline.contract.submission import DedupeKey, NewJob
from gantline.contract.version import __version__
from gantline.manager.sessions import Session

JOB_TYPE = "test"
CREATED_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def make_job(payload: Any = None, *, job_type: str = JOB_TYPE, **fields: Any) -> Job:
    """Make an envelope; its creation time is fixed unless given."""
    fields.setdefault("created_at", CREATED_AT)
    return Job(job_type=job_type, payload=msgspec.Raw(encode_payload(payload).body), **fields)


def make_new(
    payload: Any = None,
    *,
    delay: timedelta = timedelta(0),
    request_key: DedupeKey | None = None,
    logged: bool = False,
    **fields: Any,
) -> NewJob:
    """Make what a store inserts."""
    job = make_job(payload, **fields)
    return NewJob(job, job.fingerprint, delay, request_key, logged)


def lane_requests(
    *job_types: str,
    limit: int = 100,
    queue: str = "default",
    at_most: dict[str, int] | None = None,
    suspects: tuple[int, ...] = (),
    flow: tuple[TypeFlow, ...] = (),
) -> tuple[LaneRequest, ...]:
    """Make the request of a claim; for the default type if none is named."""
    kinds = job_types or (JOB_TYPE,)
    limits = tuple((at_most or {}).items())
    return (LaneRequest(queue, kinds, limit, at_most=limits, suspects=suspects, flow=flow),)


async def register_sessions(store: JobStore, *names: str) -> None:
    """Let sessions of these names claim. They serve nothing, and live as long as the store."""
    for name in names:
        session = Session(
            session_id=name,
            host="test",
            pid=1,
            version=__version__,
            started_at=CREATED_AT,
            last_seen_at=CREATED_AT,
            queues={},
            job_types=(),
        )
        await store.write_records([RecordWrite(SESSIONS, name, msgspec.json.encode(session))])


def number(value: int) -> UUID:
    """Make an id that sorts by its number."""
    return UUID(int=value)
