"""The intake: makes a durable job of each message, once, however often it is delivered."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from gantline.bridge.broker import BridgedApp, BridgedJobType, Trusted
from gantline.bridge.message import (
    MEMBERS,
    Message,
    Rejected,
    Rejection,
    build_job,
    read_envelope,
    read_job_type,
)
from gantline.contract.envelope import ignored
from gantline.contract.errors import (
    Code,
    GantlineError,
    InvalidInput,
    StoreError,
    StoreUnavailable,
    SubmitConflict,
    SubmitRefused,
)
from gantline.contract.job import Job, key_of_owner
from gantline.contract.results import Conflict, Duplicate, InsertResult
from gantline.contract.submission import NewJob
from gantline.manager.submitter import Submission
from gantline.runtime import random

_log = logging.getLogger("gantline.bridge")

OWNER: Final = "bridge"
"""Who submitted what comes in, where an envelope may not say it."""
_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 15.0


class Intake:
    """Takes messages in. One that has to wait stays unacknowledged, so that it is not lost, and the
    broker sends no more than the prefetch allows."""

    def __init__(self, app: BridgedApp, *, tenant: str, trusts: Collection[Trusted] = ()) -> None:
        self._app = app
        self._tenant = tenant
        self._trusts = trusts
        self._waiting_types: set[str] = set()
        self._passed_over: set[tuple[str, str]] = set()
        self.taken = Counter[str]()
        """How many were accepted, duplicate or rejected since the start."""

    async def take(self, message: Message) -> None:
        """Store the job durably, if it is not stored yet; raise Rejected."""
        try:
            result = await self._submit(await self._prepare(message))
        except Rejected:
            self.taken["rejected"] += 1
            raise
        self.taken["duplicate" if isinstance(result, Duplicate) else "accepted"] += 1

    async def _prepare(self, message: Message) -> NewJob:
        given = read_envelope(message)
        job_type = self._app.find_type(read_job_type(given))
        if job_type is None:
            raise Rejected(
                Rejection.NO_HANDLER, Code.NO_HANDLER, "No such type of job is declared here."
            )
        self._log_ignored(job_type.name, given)
        handler = job_type.handler
        defaults = {"maxAttempts": handler.policy.retry.attempts, "payloadVersion": handler.version}
        own = {"queue": handler.queue, "priority": job_type.priority, "createdBy": OWNER}
        job = build_job(
            defaults | own | given | self._replaced(job_type.name, own, given),
            message,
            tenant=self._tenant,
            trusts_tenant="tenantId" in self._trusts,
        )
        if handler.policy.key_scope == "owner":
            key = key_of_owner(job.created_by, job.idempotency_key)
            job = msgspec.structs.replace(job, idempotency_key=key)
        try:
            job = await self._grouped(job, job_type)
            return self._app.manager.submitter.prepare(Submission(job))
        except InvalidInput as error:
            raise Rejected(Rejection.INVALID_FORMAT, error.code, error.cause) from None

    async def _grouped(self, job: Job, job_type: BridgedJobType) -> Job:
        """In the group that counts: who makes groups up must not get round limits."""
        if job.group and "group" in self._trusts:
            return job
        if job.group and not job_type.has_groups and not await self._is_limited(job_type):
            return job  # it only divides its tenant's own turns
        group = job_type.group_of_encoded(bytes(job.payload), job.payload_version)
        if job.group not in ("", group):
            self._log_passed_over(job_type.name, "group")
        return msgspec.structs.replace(job, group=group) if group != job.group else job

    async def _is_limited(self, job_type: BridgedJobType) -> bool:
        try:
            await self._app.limits.refresh()
        except StoreError:  # as nobody knows
            return True
        names = job_type.handler.job_types
        return job_type.flows is not None or any(map(self._app.limits.holding, names))

    def _log_ignored(self, job_type: str, given: Mapping[str, Any]) -> None:
        """Log once for each type which members of its envelopes do not count."""
        unknown = ignored(given, MEMBERS)
        if unknown and (job_type, "") not in self._passed_over:
            self._passed_over.add((job_type, ""))
            names = ", ".join(pointer for pointer, _ in unknown)
            _log.warning("messages of %s have members that are ignored, as %s", job_type, names)

    def _replaced(
        self, job_type: str, own: Mapping[str, Any], given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What an envelope says and is not trusted with, each with what counts instead.

        It is not rejected for it: publishers may send all fields of an envelope, as we do.
        """
        replaced = {
            name: value
            for name, value in own.items()
            if name in given
            and name not in self._trusts
            and bytes(given[name]) != msgspec.json.encode(value)
        }
        for name in replaced:
            self._log_passed_over(job_type, name)
        return replaced

    def _log_passed_over(self, job_type: str, name: str) -> None:
        """Log once for each type what does not count."""
        if (job_type, name) not in self._passed_over:
            self._passed_over.add((job_type, name))
            _log.warning(
                "messages of %s say a %s, which does not count: the bridge is not set to trust it",
                job_type,
                name,
            )

    async def _submit(self, new: NewJob) -> InsertResult:
        """Retry until the store accepts it: an outage and a full queue pass."""
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                result = await self._app.submit_prepared(new)
                break
            except (StoreUnavailable, SubmitRefused) as error:
                self._log_wait(new.job.job_type, error)
            await asyncio.sleep(wait * (0.5 + 0.5 * random()))
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
        if new.job.job_type in self._waiting_types:
            self._waiting_types.discard(new.job.job_type)
            _log.info("messages of %s are taken in again", new.job.job_type)
        if isinstance(result, Conflict):
            raise Rejected(
                Rejection.CONFLICT,
                SubmitConflict.of(result.by).code,
                "The id or the key belongs to a job with another payload.",
            )
        return result

    def _log_wait(self, job_type: str, error: GantlineError) -> None:
        """Log once for all messages of a type that wait."""
        if job_type not in self._waiting_types:
            self._waiting_types.add(job_type)
            _log.warning("messages of %s wait with the broker: %s", job_type, error)
