"""The asynchronous client: every verb of the API, what is sent and what is made of the answer."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, cast
from urllib.parse import quote

import httpx2
import msgspec
from msgspec import UNSET, UnsetType

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
    WhyDocument,
    WorkerDocument,
    WorkersPage,
)
from gantline.api.requests import DepthCap, JobToSubmit, RedriveByFilter
from gantline.api.searching import FindOptions, query_of
from gantline.audit.chain import AuditEvent
from gantline.client.address import setup
from gantline.client.asking import Items, JobId, decoded, key_or_new
from gantline.client.event_stream import StreamEvent
from gantline.client.exchange import Retries
from gantline.client.http import Http, Request
from gantline.client.limit_verbs import LimitVerbs
from gantline.client.schedule_verbs import ScheduleVerbs
from gantline.client.submission import (
    EditOptions,
    JobOptions,
    batches,
    edited_job,
    encoded,
    envelope_body,
    new_job,
    seconds_of,
)
from gantline.client.webhook_verbs import WebhookVerbs
from gantline.contract.clock import Clock, SystemClock
from gantline.contract.codec import codec_for
from gantline.contract.envelope import AnyEnvelope
from gantline.contract.errors import InvalidInput, InvalidPayload
from gantline.contract.not_completed import NOT_COMPLETED

D = TypeVar("D")
T = TypeVar("T")

# A proxy may close a connection that waits for long.
_LONGEST_WAIT_SECONDS: Final = 20
# What a server that waits for a job is left to answer in.
_TO_ANSWER_SECONDS: Final = 0.5


class AsyncClient(ScheduleVerbs, WebhookVerbs, LimitVerbs):
    """A server's jobs, for programs with an event loop; to be used in one loop.

    >>> async with AsyncClient("https://jobs.example.com", api_key=key) as jobs:
    ...     accepted = await jobs.submit("document-indexing", {"documentId": "d1"})
    ...     status = await jobs.wait(accepted.job_id, timeout=30)

    All else is as with `Client`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        tenant: str | None = None,
        timeout_seconds: float = 30.0,
        retries: Retries | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(retries, Retries | None):
            raise InvalidInput(
                f"retries is {retries!r}.",
                next_step="Give Retries(attempts=…), of gantline.client.",
            )
        super().__init__(
            Http(setup(url, api_key), transport),
            tenant=tenant,
            timeout_seconds=timeout_seconds,
            retries=retries or Retries(),
            clock=clock or SystemClock(),
        )

    async def close(self) -> None:
        """Close the connections, and what still follows jobs by them."""
        for stream in list(self._streams):
            with suppress(RuntimeError):  # another task is waiting for its next event
                await stream.aclose()
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient {self._http.url}>"

    # -- submitting -------------------------------------------------------------------------------

    async def submit(
        self,
        job_type: str,
        payload: Any = None,
        *,
        request_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AcceptedDocument:
        """Submit a job; it is durable when this returns.

        `request_key` is the Idempotency-Key of the request: with the same one, a repeat within a
        day finds the job of the first. One is made for each call, so that it can be tried again
        when the answer is lost; give your own to be safe across a restart of yours.
        """
        request = self._submit(job_type, payload, request_key, options)
        return await self._ask(request, AcceptedDocument)

    async def submit_envelope(
        self, envelope: AnyEnvelope, *, request_key: str | None = None
    ) -> AcceptedDocument:
        """Submit a job by its envelope: JSON, or data that can be JSON; else as `submit`.

        What the server ignored of it is in the `warnings` of the answer.
        """
        body, key = envelope_body(envelope, self._tenant), key_or_new(request_key)
        return await self._ask(
            self._request("POST", "/api/jobs", body=body, key=key), AcceptedDocument
        )

    async def submit_and_wait(
        self,
        job_type: str,
        payload: Any = None,
        *,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  # as in the blocking client
        request_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> StatusDocument:
        """Submit a job and wait until it has ended, however; raise TimeoutError after `timeout`,
        seconds or a timedelta, which is for the submit and its retries too."""
        end, seconds = self._end_of(timeout), seconds_of(timeout)
        longest = _LONGEST_WAIT_SECONDS
        left = longest if seconds is None else max(0.0, seconds - _TO_ANSWER_SECONDS)
        wait = int(min(longest, left))
        request = self._submit(job_type, payload, request_key, options, wait_seconds=wait)
        reply = await self._reply_to(self._ending_by(request, end))
        if reply.status == 200:
            return decoded(reply, StatusDocument)
        accepted = decoded(reply, AcceptedDocument)
        return await self._until_ended(accepted.job_id, end)

    async def submit_many(
        self, jobs: Iterable[JobToSubmit], *, request_key: str | None = None
    ) -> BatchDocument:
        """Submit many jobs, made by `new_job`; each is accepted or refused on its own.

        They are sent in as many requests as it takes; with the same `request_key` the same jobs
        must come in the same order.
        """
        batches = self._batches(jobs, request_key)
        return joined([await self._ask(request, BatchDocument) for request in batches])

    def _batches(self, jobs: Iterable[JobToSubmit], request_key: str | None) -> Iterator[Request]:
        key = key_or_new(request_key)
        for number, body in enumerate(batches(map(self._for_tenant, jobs))):
            yield self._request("POST", "/api/jobs/batch", body=body, key=f"{key}.{number}")

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
        return self._request(
            "POST",
            "/api/jobs",
            body=encoded(job),
            key=key_or_new(request_key),
            wait_seconds=wait_seconds,
        )

    # -- reading ----------------------------------------------------------------------------------

    async def status(self, job_id: JobId) -> StatusDocument:
        """Show where a job stands."""
        return await self._call("GET", "/api/jobs/{job_id}/status", StatusDocument, job_id=job_id)

    async def job(self, job_id: JobId) -> JobDocument:
        """Show all of a job."""
        return await self._call("GET", "/api/jobs/{job_id}", JobDocument, job_id=job_id)

    async def history(self, job_id: JobId) -> list[HistoryEntry]:
        """List what happened to a job, oldest first."""
        path = "/api/jobs/{job_id}/history"
        return (await self._call("GET", path, HistoryDocument, job_id=job_id)).items

    async def attempts(self, job_id: JobId) -> list[AttemptDocument]:
        """List the runs of a job, oldest first; the last may be going on."""
        path = "/api/jobs/{job_id}/attempts"
        return (await self._call("GET", path, AttemptsDocument, job_id=job_id)).items

    async def why(self, job_id: JobId) -> WhyDocument:
        """Say why a job waits: what hinders it, and what to do."""
        return await self._call("GET", "/api/jobs/{job_id}/why", WhyDocument, job_id=job_id)

    async def wait(
        self,
        job_id: JobId,
        *,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  # as in the blocking client
    ) -> StatusDocument:
        """Wait until a job has ended, however; raise TimeoutError after `timeout`, seconds or a
        timedelta."""
        return await self._until_ended(job_id, self._end_of(timeout))

    async def result(
        self,
        job_id: JobId,
        result_type: type[T],
        *,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  # as in the blocking client
    ) -> T:
        """Wait for the result, as the type that its handler returns: a pydantic model, a dataclass
        and so on. None where the job type omits its results.

        Raise JobFailed, JobPoisoned or JobCancelled if there is none, TimeoutError as `wait`.
        """
        ended = await self.wait(job_id, timeout=timeout)
        if not_completed := NOT_COMPLETED.get(ended.status):
            raise not_completed(ended.job_id, ended, ended.error_code, ended.error_message)
        if ended.result_omitted is not None:
            return cast("T", None)
        try:
            return cast("T", codec_for(result_type).decode(msgspec.json.encode(ended.result)))
        except InvalidPayload as invalid:
            why = " ".join(invalid.problems[0])
            raise InvalidInput(f"The result is not of the type that you named: {why}.") from None

    def jobs(self, *, limit: int | None = None, **options: Unpack[FindOptions]) -> Items[ListedJob]:
        """List jobs, newest first, a page at a time; all, or the first `limit`."""
        return self._list("/api/jobs", self._search(options), limit, page_of=JobPage)

    def follow(self, job_id: JobId, *, last_event_id: str = "") -> Items[StreamEvent]:
        """Follow a job to its end: how it stands, then its progress and all that happens to it.

        Goes on by itself where the connection is lost, without missing an event. With the
        `last_event_id` of an earlier event it begins after that one.
        """
        request = self._request("GET", "/api/jobs/{job_id}/events", job_id=job_id)
        return self._follow(request, last_event_id, is_of_one_job=True)

    def follow_jobs(
        self,
        job_ids: Sequence[JobId] = (),
        *,
        job_type: Sequence[str] = (),
        subject: str | None = None,
        last_event_id: str = "",
    ) -> Items[StreamEvent]:
        """Follow many jobs, for ever: those named, with their progress, or all that match."""
        values = {
            "jobId": job_ids,
            "jobType": job_type,
            "subjectId": subject,
            **self._of_tenant,
        }
        request = self._request("GET", "/api/events", values=values)
        return self._follow(request, last_event_id, is_of_one_job=False)

    # -- acting -----------------------------------------------------------------------------------

    async def cancel(
        self, job_id: JobId, *, only_if: StatusDocument | None = None
    ) -> StatusDocument:
        """Cancel a job; one that runs is asked to stop. `only_if` it still stands like this."""
        return await self._act(job_id, "cancel", only_if)

    async def redrive(
        self, job_id: JobId, *, only_if: StatusDocument | None = None
    ) -> StatusDocument:
        """Queue a failed, poisoned or cancelled job again, with its id and history."""
        return await self._act(job_id, "redrive", only_if)

    async def redrive_edited(
        self,
        job_id: JobId,
        payload: Any = UNSET,
        *,
        request_key: str | None = None,
        **options: Unpack[EditOptions],
    ) -> AcceptedDocument:
        """Submit a new job, made of a dead one and what is different."""
        return await self._call(
            "POST",
            "/api/jobs/{job_id}/edited-redrive",
            AcceptedDocument,
            body=encoded(edited_job(payload, options)),
            key=key_or_new(request_key),
            job_id=job_id,
        )

    async def delete(self, job_id: JobId) -> None:
        """Remove a job that has ended, and all that is known of it."""
        await self._reply_to(self._request("DELETE", "/api/jobs/{job_id}", job_id=job_id))

    # -- dead letters -----------------------------------------------------------------------------

    def dead_letters(
        self,
        *,
        reason: Sequence[str] = (),
        limit: int | None = None,
        **options: Unpack[FindOptions],
    ) -> Items[ListedJob]:
        """List dead letters, newest first; all, or the first `limit`."""
        values = {**self._search(options), "reason": reason}
        return self._list("/api/dead-letters", values, limit, page_of=JobPage)

    async def dead_letter(self, job_id: JobId) -> JobDocument:
        """Show all of a dead letter; one that is none is not found."""
        return await self._call("GET", "/api/dead-letters/{job_id}", JobDocument, job_id=job_id)

    async def dead_summary(self) -> DeadSummary:
        """Count dead letters by type and reason."""
        return await self._call(
            "GET", "/api/dead-letters/summary", DeadSummary, values=self._of_tenant
        )

    async def redrive_dead_letters(self, chosen: RedriveByFilter) -> RedriveReport:
        """Queue the dead letters that match again; a dry run only counts them."""
        body = encoded(self._for_tenant(chosen))
        return await self._call("POST", "/api/dead-letters/redrive", RedriveReport, body=body)

    # -- operating --------------------------------------------------------------------------------

    async def queues(self, *, queue: Sequence[str] = (), limit: int = 200) -> QueuesDocument:
        """List queues with the tenant's jobs in them, and how they are switched.

        Where there are more than `limit`, at most 1000, the fullest; `omitted` counts the others.
        """
        values = {"queue": queue, "limit": limit, **self._of_tenant}
        return await self._call("GET", "/api/queues", QueuesDocument, values=values)

    async def pause_queue(self, queue: str) -> QueueState:
        """Start nothing more out of a queue, for all tenants; what runs goes on."""
        return await self._switch("queues", queue, "pause", QueueState)

    async def resume_queue(self, queue: str) -> QueueState:
        """Start jobs out of a queue again."""
        return await self._switch("queues", queue, "resume", QueueState)

    async def cap_queue(
        self, queue: str, max_depth: int | None, *, per_tenant: int | UnsetType | None = UNSET
    ) -> QueueState:
        """Refuse new jobs while so many wait in a queue; None takes the cap away.

        `per_tenant`: so many of each tenant; where it is not given, that stays as it is.
        """
        cap = DepthCap(max_depth=max_depth, max_depth_per_tenant=per_tenant)
        body = msgspec.json.encode(cap)
        path = f"/api/queues/{quote(queue, safe='')}/depth-cap"
        return await self._call("PUT", path, QueueState, body=body)

    def workers(self) -> Items[WorkerDocument]:
        """List the worker processes that live, of all tenants."""
        return self._list("/api/workers", {}, None, page_of=WorkersPage)

    async def job_types(self) -> list[JobTypeDocument]:
        """List the types of jobs, with their JSON Schemas and switches."""
        return (await self._call("GET", "/api/job-types", JobTypesDocument)).items

    async def job_type(self, name: str) -> JobTypeDocument:
        """Show a type of job."""
        path = f"/api/job-types/{quote(name, safe='')}"
        return await self._call("GET", path, JobTypeDocument)

    async def pause_type(self, name: str) -> JobTypeState:
        """Start no more jobs of a type; new ones are taken."""
        return await self._switch("job-types", name, "pause", JobTypeState)

    async def resume_type(self, name: str) -> JobTypeState:
        """Start jobs of a type again."""
        return await self._switch("job-types", name, "resume", JobTypeState)

    async def disable_type(self, name: str) -> JobTypeState:
        """Refuse new jobs of a type, and fail those that would run."""
        return await self._switch("job-types", name, "disable", JobTypeState)

    async def enable_type(self, name: str) -> JobTypeState:
        """Take jobs of a type again."""
        return await self._switch("job-types", name, "enable", JobTypeState)

    def audit_events(
        self,
        *,
        aggregate: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> Items[AuditEvent]:
        """List the audit trail, newest first, with all that is needed to verify it."""
        values = {"aggregate": aggregate, "actor": actor, "action": action, "since": since}
        return self._list("/api/audit", values, limit, page_of=AuditPage)

    async def statistics(
        self, *, queue: Sequence[str] = (), job_type: Sequence[str] = (), limit: int = 200
    ) -> StatisticsDocument:
        """Count the jobs of the tenant by where they are, in all and by lane.

        Where there are more lanes than `limit`, at most 1000, the fullest are shown;
        `lanes_omitted` counts the others.
        """
        values = {"queue": queue, "jobType": job_type, "limit": limit, **self._of_tenant}
        return await self._call("GET", "/api/stats", StatisticsDocument, values=values)

    async def scale(
        self, *, queue: Sequence[str] = (), job_type: Sequence[str] = ()
    ) -> ScaleDocument:
        """Show how much work there is, for an autoscaler."""
        values = {"queue": queue, "jobType": job_type, **self._of_tenant}
        return await self._call("GET", "/api/stats/scale", ScaleDocument, values=values)

    # -- what they share --------------------------------------------------------------------------

    def _search(self, options: FindOptions) -> dict[str, Any]:
        """The parameters that say which jobs are meant."""
        query = msgspec.to_builtins(query_of(options, self._clock.now()))
        return {name: value for name, value in query.items() if value not in (None, [], 0)}

    async def _act(
        self, job_id: JobId, verb: str, only_if: StatusDocument | None
    ) -> StatusDocument:
        headers = {} if only_if is None else {"if-match": _tag_of(only_if)}
        path = "/api/jobs/{job_id}/" + verb
        return await self._call("POST", path, StatusDocument, headers=headers, job_id=job_id)

    async def _switch(self, kind: str, name: str, verb: str, state: type[D]) -> D:
        if not name:
            raise InvalidInput("The name is empty.")
        path = f"/api/{kind}/{quote(name, safe='')}/{verb}"
        return await self._call("POST", path, state)


def _tag_of(status: StatusDocument) -> str:
    """The ETag of a job that stands like this."""
    return f'"{status.job_id}-{status.version}-{status.state}"'


def joined(batches: Sequence[BatchDocument]) -> BatchDocument:
    """The answers to all parts of a batch, as one."""
    return BatchDocument(
        accepted=sum(batch.accepted for batch in batches),
        rejected=sum(batch.rejected for batch in batches),
        items=[item for batch in batches for item in batch.items],
    )
