"""Following jobs: event streams of one job or of many, and the tokens that open them."""

from uuid import UUID

from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.documents import StreamTokenDocument
from gantline.api.headers import last_event_id
from gantline.api.json_response import JsonResponse
from gantline.api.operation import Operations, Parts
from gantline.api.problems import ApiCode, Refused
from gantline.api.requests import EventsQuery, JobEventsQuery
from gantline.api.streams.identity import ALL, PARAMETER, cookie_text, stream_path
from gantline.api.streams.subscription import EventFilter


class Follow(Operations):
    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._identity = parts.stream_identity
        self._tokens = parts.stream_tokens
        self._clock = parts.jobs.clock

    async def job(self, call: Call) -> Response:
        query: JobEventsQuery = call.query
        job = await self._access.job(call)
        event_filter = EventFilter(
            tenant_id=job.job.tenant_id,
            job_ids=frozenset({job.job.job_id}),
            visible_to=self._access.scope(call),
        )
        return await self._streams.open(
            call,
            event_filter,
            self._identity.of_job,
            last=last_event_id(call.joined_headers, query.last_event_id),
            ends_with=job.job.job_id,
        )

    async def all(self, call: Call) -> Response:
        query: EventsQuery = call.query
        tenant_id, visible_to = await self._access.visible(call, query.tenant_id)
        found = await self._access.jobs(call, query.job_id, tenant_id=tenant_id)
        known = {one for job in found for one in (job.job.job_id, job.job.external_id)}
        awaited = frozenset(query.job_id) - known
        event_filter = EventFilter(
            tenant_id=tenant_id,
            job_ids=awaited.union(job.job.job_id for job in found),
            awaited=awaited,
            job_types=frozenset(query.job_type),
            subject_id=query.subject_id,
            visible_to=visible_to,
        )
        last = last_event_id(call.joined_headers, query.last_event_id)
        return await self._streams.open(call, event_filter, self._identity.of_all, last=last)

    async def job_token(self, call: Call) -> Response:
        job = await self._access.job(call)
        return self._issued(call, job.job.job_id)

    async def token(self, call: Call) -> Response:
        await self._access.visible(call, None)
        return self._issued(call, None)

    def _issued(self, call: Call, job_id: UUID | None) -> Response:
        if self._tokens is None:
            raise Refused(ApiCode.STREAM_TOKENS_OFF, "No pepper is set here to sign tokens with.")
        token = self._tokens.issue(call.principal, ALL if job_id is None else str(job_id))
        path, lifetime = stream_path(call.root, job_id), self._tokens.lifetime
        cookie = cookie_text(
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
        return JsonResponse(200, document, {} if cookie is None else {"set-cookie": cookie})
