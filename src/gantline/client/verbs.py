"""The verbs of the API as flows: what is sent, and what is made of the answer."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar, Unpack
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from gantline.api.documents import (
    AcceptedDocument,
    AttemptDocument,
    AttemptsDocument,
    AuditPage,
    BatchDocument,
    DeadSummary,
    HistoryDocument,
    HistoryEntry,
    JobDocument,
    JobPage,
    JobTypeDocument,
    JobTypesDocument,
    JobTypeState,
    ListedJob,
    QueuesDocument,
    QueueState,
    RedriveReport,
    ScaleDocument,
    StatisticsDocument,
    StatusDocument,
)
from gantline.api.sent import DepthCap, JobToSubmit, RedriveByFilter
from gantline.audit.chain import AuditEvent
from gantline.client.asking import JobId, decoded, key_or_new
from gantline.client.following import JobEvent
from gantline.client.schedule_verbs import ScheduleVerbs
from gantline.client.steps import Feed, Flow, Request
from gantline.client.submission import (
    EditOptions,
    JobOptions,
    batches,
    edited_job,
    encoded,
    new_job,
)
from gantline.client.webhook_verbs import WebhookVerbs
from gantline.contract.errors import InvalidInput
from gantline.contract.status import JobStatus

D = TypeVar("D")

# A proxy may hang up on who waits for long.
_LONGEST_WAIT_SECONDS: Final = 20


class Verbs(ScheduleVerbs, WebhookVerbs):
    """All that can be asked of a server. Every method is a flow, for one of the two clients."""

    # -- submitting -------------------------------------------------------------------------------

    def submit(
        self,
        job_type: str,
        payload: Any = None,
        *,
        request_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Flow[AcceptedDocument]:
        """Submit a job; it is durable when this returns.

        `request_key` is the Idempotency-Key of the request: with the same one, a repeat within a
        day finds the job of the first. One is made for each call, so that it can be tried again
        when the answer is lost; give your own to be safe across a restart of yours.
        """
        request = self._submit(job_type, payload, request_key, options)
        return self.ask(request, AcceptedDocument)

    def submit_and_wait(
        self,
        job_type: str,
        payload: Any = None,
        *,
        timeout: float | None = None,
        request_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Flow[StatusDocument]:
        """Submit a job and wait until it has ended, however; raise TimeoutError after `timeout`."""
        end = self.end_of(timeout)
        longest = _LONGEST_WAIT_SECONDS
        seconds = longest if timeout is None else int(min(longest, max(0.0, timeout)))
        request = self._submit(job_type, payload, request_key, options, wait_seconds=seconds)
        reply = yield from self.reply_to(request)
        if reply.status == 200:
            return decoded(reply, StatusDocument)
        accepted = decoded(reply, AcceptedDocument)
        return (yield from self.until_ended(accepted.job_id, end))

    def submit_many(
        self, jobs: Iterable[JobToSubmit], *, request_key: str | None = None
    ) -> Flow[BatchDocument]:
        """Submit many jobs, made by `new_job`; each is accepted or refused on its own.

        They are sent in as many requests as it takes; with the same `request_key` the same jobs
        must come in the same order.
        """
        key = key_or_new(request_key)
        accepted = rejected = 0
        items = []
        for number, body in enumerate(batches(map(self._for_tenant, jobs))):
            request = self.request("POST", "/api/jobs/batch", body=body, key=f"{key}.{number}")
            batch = yield from self.ask(request, BatchDocument)
            accepted += batch.accepted
            rejected += batch.rejected
            items += batch.items
        return BatchDocument(accepted=accepted, rejected=rejected, items=items)

    def _submit(
        self,
        job_type: str,
        payload: Any,
        request_key: str | None,
        options: JobOptions,
        *,
        wait_seconds: int = 0,
    ) -> Request:
        job = self._for_tenant(new_job(job_type, payload, **options))
        return self.request(
            "POST",
            "/api/jobs",
            body=encoded(job),
            key=key_or_new(request_key),
            wait_seconds=wait_seconds,
        )

    def _for_tenant(self, job: JobToSubmit) -> JobToSubmit:
        if self.tenant is None or job.tenant_id is not None:
            return job
        return msgspec.structs.replace(job, tenant_id=self.tenant)

    # -- reading ----------------------------------------------------------------------------------

    def status(self, job_id: JobId) -> Flow[StatusDocument]:
        """Tell where a job stands."""
        return self.read("/api/jobs/{job_id}/status", StatusDocument, job_id=job_id)

    def job(self, job_id: JobId) -> Flow[JobDocument]:
        """Show all of a job."""
        return self.read("/api/jobs/{job_id}", JobDocument, job_id=job_id)

    def history(self, job_id: JobId) -> Flow[list[HistoryEntry]]:
        """Tell what happened to a job, oldest first."""
        path = "/api/jobs/{job_id}/history"
        return (yield from self.read(path, HistoryDocument, job_id=job_id)).items

    def attempts(self, job_id: JobId) -> Flow[list[AttemptDocument]]:
        """List the runs of a job, oldest first; the last may be going on."""
        path = "/api/jobs/{job_id}/attempts"
        return (yield from self.read(path, AttemptsDocument, job_id=job_id)).items

    def wait(self, job_id: JobId, *, timeout: float | None = None) -> Flow[StatusDocument]:
        """Wait until a job has ended, however; raise TimeoutError after `timeout` seconds."""
        return self.until_ended(job_id, self.end_of(timeout))

    def jobs(
        self,
        *,
        status: Sequence[JobStatus | str] = (),
        job_type: Sequence[str] = (),
        queue: Sequence[str] = (),
        subject: str | None = None,
        created_by: str | None = None,
        correlation_id: str | None = None,
        parent_job_id: JobId | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
    ) -> Feed[ListedJob, None]:
        """List jobs, newest first, a page at a time; all, or the first `limit`."""
        values = {
            "status": status,
            "jobType": job_type,
            "queue": queue,
            "subjectId": subject,
            "createdBy": created_by,
            "correlationId": correlation_id,
            "parentJobId": parent_job_id,
            "createdFrom": created_from,
            "createdBefore": created_before,
        }
        return self.pages("/api/jobs", values, limit, page_of=JobPage)

    def follow(self, job_id: JobId, *, last_event_id: str = "") -> Feed[JobEvent, None]:
        """Follow a job to its end: how it stands, then its progress and all that happens to it.

        Goes on by itself where the connection is lost, without missing an event. With the
        `last_event_id` of an earlier event it begins behind that one.
        """
        request = self.request("GET", "/api/jobs/{job_id}/events", job_id=job_id)
        return self.events(request, last_event_id, is_of_one_job=True)

    def follow_jobs(
        self,
        job_ids: Sequence[JobId] = (),
        *,
        job_type: Sequence[str] = (),
        subject: str | None = None,
        last_event_id: str = "",
    ) -> Feed[JobEvent, None]:
        """Follow many jobs, for ever: those named, with their progress, or all that match."""
        values = {
            "jobId": job_ids,
            "jobType": job_type,
            "subjectId": subject,
            **self.of_tenant,
        }
        request = self.request("GET", "/api/events", values=values)
        return self.events(request, last_event_id, is_of_one_job=False)

    # -- acting -----------------------------------------------------------------------------------

    def cancel(
        self, job_id: JobId, *, only_if: StatusDocument | None = None
    ) -> Flow[StatusDocument]:
        """Cancel a job; one that runs is asked to stop. `only_if` it still stands like this."""
        return self._act(job_id, "cancel", only_if)

    def redrive(
        self, job_id: JobId, *, only_if: StatusDocument | None = None
    ) -> Flow[StatusDocument]:
        """Queue a failed, poisoned or cancelled job again, with its id and history."""
        return self._act(job_id, "redrive", only_if)

    def redrive_edited(
        self,
        job_id: JobId,
        payload: Any = UNSET,
        *,
        request_key: str | None = None,
        **options: Unpack[EditOptions],
    ) -> Flow[AcceptedDocument]:
        """Submit a new job, made of a dead one and what is different."""
        request = self.request(
            "POST",
            "/api/jobs/{job_id}/edited-redrive",
            body=encoded(edited_job(payload, options)),
            key=key_or_new(request_key),
            job_id=job_id,
        )
        return self.ask(request, AcceptedDocument)

    def delete(self, job_id: JobId) -> Flow[None]:
        """Remove a job that has ended, and all that is known of it."""
        yield from self.reply_to(self.request("DELETE", "/api/jobs/{job_id}", job_id=job_id))

    # -- dead letters -----------------------------------------------------------------------------

    def dead_letters(
        self,
        *,
        reason: Sequence[str] = (),
        job_type: Sequence[str] = (),
        queue: Sequence[str] = (),
        subject: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
    ) -> Feed[ListedJob, None]:
        """List dead letters, newest first; all, or the first `limit`."""
        values = {
            "reason": reason,
            "jobType": job_type,
            "queue": queue,
            "subjectId": subject,
            "createdFrom": created_from,
            "createdBefore": created_before,
        }
        return self.pages("/api/dead-letters", values, limit, page_of=JobPage)

    def dead_letter(self, job_id: JobId) -> Flow[JobDocument]:
        """Show all of a dead letter; one that is none is not found."""
        return self.read("/api/dead-letters/{job_id}", JobDocument, job_id=job_id)

    def dead_summary(self) -> Flow[DeadSummary]:
        """Count dead letters by type and reason."""
        return self.read("/api/dead-letters/summary", DeadSummary, self.of_tenant)

    def redrive_dead_letters(self, chosen: RedriveByFilter) -> Flow[RedriveReport]:
        """Queue the dead letters that match again; a dry run only counts them."""
        if self.tenant is not None and chosen.tenant_id is None:
            chosen = msgspec.structs.replace(chosen, tenant_id=self.tenant)
        request = self.request("POST", "/api/dead-letters/redrive", body=encoded(chosen))
        return self.ask(request, RedriveReport)

    # -- operating --------------------------------------------------------------------------------

    def queues(self, *, queue: Sequence[str] = (), limit: int = 200) -> Flow[QueuesDocument]:
        """List queues with the tenant's jobs in them, and how they are switched.

        Where there are more than `limit`, at most 1000, the fullest; `omitted` counts the others.
        """
        values = {"queue": queue, "limit": limit, **self.of_tenant}
        return self.read("/api/queues", QueuesDocument, values)

    def pause_queue(self, queue: str) -> Flow[QueueState]:
        """Start nothing more out of a queue, for all tenants; what runs goes on."""
        return self._switch("queues", queue, "pause", QueueState)

    def resume_queue(self, queue: str) -> Flow[QueueState]:
        """Start jobs out of a queue again."""
        return self._switch("queues", queue, "resume", QueueState)

    def cap_queue(self, queue: str, max_depth: int | None) -> Flow[QueueState]:
        """Refuse new jobs while so many wait in a queue; None takes the cap away."""
        body = msgspec.json.encode(DepthCap(max_depth=max_depth))
        request = self.request("PUT", f"/api/queues/{quote(queue, safe='')}/depth-cap", body=body)
        return self.ask(request, QueueState)

    def job_types(self) -> Flow[list[JobTypeDocument]]:
        """List the types of jobs, with their JSON Schemas and switches."""
        return (yield from self.read("/api/job-types", JobTypesDocument)).items

    def job_type(self, name: str) -> Flow[JobTypeDocument]:
        """Show a type of job."""
        return self.read(f"/api/job-types/{quote(name, safe='')}", JobTypeDocument)

    def pause_type(self, name: str) -> Flow[JobTypeState]:
        """Start no more jobs of a type; new ones are taken."""
        return self._switch("job-types", name, "pause", JobTypeState)

    def resume_type(self, name: str) -> Flow[JobTypeState]:
        """Start jobs of a type again."""
        return self._switch("job-types", name, "resume", JobTypeState)

    def disable_type(self, name: str) -> Flow[JobTypeState]:
        """Refuse new jobs of a type, and fail those that would run."""
        return self._switch("job-types", name, "disable", JobTypeState)

    def enable_type(self, name: str) -> Flow[JobTypeState]:
        """Take jobs of a type again."""
        return self._switch("job-types", name, "enable", JobTypeState)

    def audit_events(
        self,
        *,
        aggregate: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> Feed[AuditEvent, None]:
        """List the audit trail, newest first, with all that is needed to verify it."""
        values = {"aggregate": aggregate, "actor": actor, "action": action, "since": since}
        return self.pages("/api/audit", values, limit, page_of=AuditPage)

    def statistics(
        self, *, queue: Sequence[str] = (), job_type: Sequence[str] = (), limit: int = 200
    ) -> Flow[StatisticsDocument]:
        """Count the jobs of the tenant by where they are, in all and by lane.

        Where there are more lanes than `limit`, at most 1000, the fullest are told;
        `lanes_omitted` counts the others.
        """
        values = {"queue": queue, "jobType": job_type, "limit": limit, **self.of_tenant}
        return self.read("/api/stats", StatisticsDocument, values)

    def scale(
        self, *, queue: Sequence[str] = (), job_type: Sequence[str] = ()
    ) -> Flow[ScaleDocument]:
        """Tell how much work there is, for an autoscaler."""
        values = {"queue": queue, "jobType": job_type, **self.of_tenant}
        return self.read("/api/stats/scale", ScaleDocument, values)

    # -- what they share --------------------------------------------------------------------------

    def _act(
        self, job_id: JobId, verb: str, only_if: StatusDocument | None
    ) -> Flow[StatusDocument]:
        headers = {} if only_if is None else {"if-match": _tag_of(only_if)}
        path = "/api/jobs/{job_id}/" + verb
        request = self.request("POST", path, headers=headers, job_id=job_id)
        return self.ask(request, StatusDocument)

    def _switch(self, kind: str, name: str, verb: str, state: type[D]) -> Flow[D]:
        if not name:
            raise InvalidInput("The name is empty.")
        path = f"/api/{kind}/{quote(name, safe='')}/{verb}"
        return self.ask(self.request("POST", path), state)


def _tag_of(status: StatusDocument) -> str:
    """The ETag of a job that stands like this."""
    return f'"{status.job_id}-{status.version}-{status.state}"'
