"""Following jobs: event streams of one job or of many, and the tokens that open them."""

from typing import Final
from uuid import UUID

from gantline.api.answer import Answer, json_answer
from gantline.api.call import Call
from gantline.api.documents import StreamTokenDocument
from gantline.api.headers import last_event_id
from gantline.api.operation import EventText, Operation, RequestHeader
from gantline.api.operations.read import JOB_PROBLEMS
from gantline.api.parts import Parts
from gantline.api.problems import ApiCode, Refused
from gantline.api.sent import EventsQuery, JobEventsQuery
from gantline.api.streams.identity import ALL, PARAMETER, cookie_header, stream_path
from gantline.api.streams.wanted import Wanted
from gantline.auth.action import Action
from gantline.contract.errors import Code

_LAST_EVENT_ID: Final = RequestHeader(
    "Last-Event-ID",
    "Go on behind this event; an EventSource sends it by itself. As a parameter: lastEventId.",
    {"type": "string"},
)
_TOKEN_PROBLEMS: Final = (ApiCode.STREAM_TOKENS_OFF, Code.VALIDATION_ERROR)


class Follow:
    def __init__(self, parts: Parts) -> None:
        self._access = parts.access
        self._streams = parts.streams
        self._identity = parts.stream_identity
        self._tokens = parts.stream_tokens
        self._clock = parts.jobs.clock

    @property
    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="followJob",
                method="GET",
                path="/api/jobs/{job_id}/events",
                tag="events",
                summary="Follow a job to its end: how it stands, then its progress and events. "
                "204 when all was heard before.",
                run=self.job,
                query=JobEventsQuery,
                headers=(_LAST_EVENT_ID,),
                identify=self._identity.of_job,
                answers={200: EventText, 204: None},
                problems=(*JOB_PROBLEMS, ApiCode.TOO_MANY_STREAMS),
            ),
            Operation(
                name="followJobs",
                method="GET",
                path="/api/events",
                tag="events",
                summary="Follow many jobs by one stream: those named, with their progress, or all "
                "that match and may be seen.",
                run=self.all,
                query=EventsQuery,
                headers=(_LAST_EVENT_ID,),
                identify=self._identity.of_all,
                answers={200: EventText},
                problems=(ApiCode.NOT_FOUND, ApiCode.TOO_MANY_STREAMS),
            ),
            Operation(
                name="createJobStreamToken",
                method="POST",
                path="/api/jobs/{job_id}/events/token",
                tag="events",
                summary="Make a token with which a browser may follow this job; also as a cookie.",
                run=self.job_token,
                answers={200: StreamTokenDocument},
                problems=(*JOB_PROBLEMS, *_TOKEN_PROBLEMS),
            ),
            Operation(
                name="createStreamToken",
                method="POST",
                path="/api/events/token",
                tag="events",
                summary="Make a token with which a browser may follow many jobs; also as a cookie.",
                run=self.token,
                answers={200: StreamTokenDocument},
                problems=_TOKEN_PROBLEMS,
            ),
        ]

    async def job(self, call: Call) -> Answer:
        query: JobEventsQuery = call.query
        job = await self._access.job(call, Action.READ)
        wanted = Wanted(
            tenant_id=job.job.tenant_id,
            job_ids=frozenset({job.job.job_id}),
            visible_to=self._access.scope(call, Action.READ),
        )
        return await self._streams.open(
            call,
            wanted,
            self._identity.of_job,
            last=last_event_id(call.headers, query.last_event_id),
            ends_with=job.job.job_id,
        )

    async def all(self, call: Call) -> Answer:
        query: EventsQuery = call.query
        tenant_id, visible_to = await self._access.visible(call, Action.READ, query.tenant_id)
        wanted = Wanted(
            tenant_id=tenant_id,
            job_ids=frozenset(query.job_id),
            job_types=frozenset(query.job_type),
            subject_id=query.subject_id,
            visible_to=visible_to,
        )
        last = last_event_id(call.headers, query.last_event_id)
        return await self._streams.open(call, wanted, self._identity.of_all, last=last)

    async def job_token(self, call: Call) -> Answer:
        job = await self._access.job(call, Action.READ)
        return self._issued(call, job.job.job_id)

    async def token(self, call: Call) -> Answer:
        await self._access.visible(call, Action.READ, None)
        return self._issued(call, None)

    def _issued(self, call: Call, job_id: UUID | None) -> Answer:
        if self._tokens is None:
            raise Refused(ApiCode.STREAM_TOKENS_OFF, "No pepper is set here to sign tokens with.")
        token = self._tokens.issue(call.principal, ALL if job_id is None else str(job_id))
        path, lifetime = stream_path(call.root, job_id), self._tokens.lifetime
        cookie = cookie_header(
            token,
            path=path,
            seconds=int(lifetime.total_seconds()),
            is_secure=call.scope.get("scheme") == "https",
        )
        document = StreamTokenDocument(
            token=token,
            url=f"{path}?{PARAMETER}={token}",
            expires_at=self._clock.now() + lifetime,
        )
        return json_answer(200, document, *([] if cookie is None else [cookie]))
