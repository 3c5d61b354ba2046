"""Envelopes that code hands in: a job of each, which the type completes where one is declared."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gantline.contract.envelope import Envelope, check_created_at
from gantline.contract.errors import InvalidEnvelope, Problem
from gantline.contract.submission import NewJob
from gantline.contract.webhook import RESERVED_TYPES
from gantline.manager.submitter import Submission

if TYPE_CHECKING:
    from gantline.app.gantline import Gantline


def prepare_envelope(app: "Gantline", said: Envelope, *, tenant: str) -> NewJob:
    """Make a job of an envelope without storing it; raise InvalidInput.

    `tenant`: whose it is where the envelope does not say it.
    """
    options = {"tenant": tenant, **said.options()}
    if (declared := app.find_type(said.job_type)) is not None:
        handler = declared.handler
        version = said.payload_version or handler.version
        if version > handler.version:
            detail = f"is newer than {handler.version}, the newest known"
            raise InvalidEnvelope([Problem("#/payloadVersion", detail)])
        payload = handler.codec.decode(handler.upgraded(said.body, version))
        return declared.prepare(payload, **options)
    return app.manager.submitter.prepare(undeclared(said, tenant=tenant, now=app.clock.now()))


def undeclared(said: Envelope, *, tenant: str, now: datetime) -> Submission:
    """A job of a type that is not declared here; a worker elsewhere may know it."""
    if said.job_type.startswith(RESERVED_TYPES):
        raise InvalidEnvelope([Problem("#/jobType", "is one of Gantline's own")])
    job = said.job(tenant_id=tenant, created_at=now)
    check_created_at(job.created_at, now)
    return Submission(job, timedelta(seconds=said.delay_seconds or 0))
