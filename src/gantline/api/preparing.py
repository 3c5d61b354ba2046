"""Preparing a job of an envelope: as its type has it, or of a type that nobody here declares."""

from datetime import datetime, timedelta

from gantline.api.envelopes import Envelope
from gantline.api.port import Jobs
from gantline.contract.envelope import check_created_at
from gantline.contract.errors import InvalidEnvelope, Problem
from gantline.contract.submission import NewJob
from gantline.contract.webhook import RESERVED_TYPES
from gantline.manager.submitter import Submission


def prepare_envelope(jobs: Jobs, said: Envelope, *, tenant: str) -> NewJob:
    """Make a job of an envelope without storing it; raise InvalidInput.

    A declared type checks the payload and completes the rest. `tenant`: whose it is where the
    envelope does not say it.
    """
    options = {"tenant": tenant, **said.options()}
    if (declared := jobs.find_type(said.job_type)) is not None:
        handler = declared.handler
        version = said.payload_version or handler.version
        if version > handler.version:
            detail = f"is newer than {handler.version}, the newest known"
            raise InvalidEnvelope([Problem("#/payloadVersion", detail)])
        payload = handler.codec.decode(handler.upgraded(said.body, version))
        return declared.prepare(payload, **options)
    return jobs.manager.submitter.prepare(undeclared(said, tenant=tenant, now=jobs.clock.now()))


def undeclared(said: Envelope, *, tenant: str, now: datetime) -> Submission:
    """A job of a type that is not declared here; a worker elsewhere may know it."""
    if said.job_type.startswith(RESERVED_TYPES):
        raise InvalidEnvelope([Problem("#/jobType", "is one of Gantline's own")])
    job = said.job(tenant_id=tenant, created_at=now)
    check_created_at(job.created_at, now)
    return Submission(job, timedelta(seconds=said.delay_seconds or 0))
