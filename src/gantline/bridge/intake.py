"""The intake: turns messages into durable jobs, each once, however often it is delivered."""

import asyncio
import logging
import random
from collections import Counter
from typing import Final

from gantline.bridge.envelope import job_of, job_type_of, read_envelope
from gantline.bridge.message import Message, Rejected, Rejection
from gantline.bridge.port import Jobs
from gantline.contract.errors import (
    Code,
    GantlineError,
    InvalidInput,
    StoreUnavailable,
    SubmitRefused,
)
from gantline.contract.results import Conflict, Duplicate, InsertResult
from gantline.contract.submission import NewJob
from gantline.manager.submitter import Submission

_log = logging.getLogger("gantline.bridge")

_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 15.0


class Intake:
    """Take messages in. One that has to wait is kept from the broker's point of view: not
    acknowledged, so that nothing is lost and no more than its share comes in."""

    def __init__(self, jobs: Jobs, *, tenant: str, trusts_tenant: bool = False) -> None:
        self._jobs = jobs
        self._tenant = tenant
        self._trusts_tenant = trusts_tenant
        self._held_up: set[str] = set()
        self.taken = Counter[str]()
        """How many were accepted, duplicate or rejected since the start."""

    async def take(self, message: Message) -> None:
        """Store the job durably, if it is not stored yet; raise Rejected."""
        try:
            answer = await self._submitted(self._prepared(message))
        except Rejected:
            self.taken["rejected"] += 1
            raise
        self.taken["duplicate" if isinstance(answer, Duplicate) else "accepted"] += 1

    def _prepared(self, message: Message) -> NewJob:
        given = read_envelope(message)
        job_type = self._jobs.find_type(job_type_of(given))
        if job_type is None:
            raise Rejected(
                Rejection.NO_HANDLER, Code.NO_HANDLER, "No such type of job is declared here."
            )
        handler = job_type.handler
        defaults = {
            "queue": handler.queue,
            "priority": job_type.priority,
            "maxAttempts": handler.policy.retry.attempts,
            "payloadVersion": handler.version,
        }
        job = job_of(
            defaults | given, message, tenant=self._tenant, trusts_tenant=self._trusts_tenant
        )
        try:
            return self._jobs.manager.submitter.prepare(Submission(job))
        except InvalidInput as error:
            raise Rejected(Rejection.INVALID_FORMAT, error.code, error.cause) from None

    async def _submitted(self, new: NewJob) -> InsertResult:
        """Try until the store takes it: a store that is away and a queue that is full pass."""
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                answer = await self._jobs.submit_prepared(new)
                break
            except (StoreUnavailable, SubmitRefused) as error:
                self._tell(new.job.job_type, error)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311  # not a secret
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
        if new.job.job_type in self._held_up:
            self._held_up.discard(new.job.job_type)
            _log.info("messages of %s are taken in again", new.job.job_type)
        if isinstance(answer, Conflict):
            raise Rejected(
                Rejection.CONFLICT,
                Code.JOB_ID_CONFLICT if answer.by is None else Code.IDEMPOTENCY_CONFLICT,
                "The id or the key belongs to a job with another payload.",
            )
        return answer

    def _tell(self, job_type: str, error: GantlineError) -> None:
        """Once for all that wait."""
        if job_type not in self._held_up:
            self._held_up.add(job_type)
            _log.warning("messages of %s wait with the broker: %s", job_type, error)
