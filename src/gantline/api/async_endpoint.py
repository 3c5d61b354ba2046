"""Async endpoints: a route of the user's own application that enqueues a job and answers 202."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gantline.api import headers as request_headers
from gantline.api.answer import Answer
from gantline.api.call import Call
from gantline.api.capture import Capture
from gantline.api.documents import AcceptedDocument, StatusDocument
from gantline.api.front_desk import FrontDesk
from gantline.api.operation import Operation
from gantline.api.operations.submit import SUBMIT_PROBLEMS
from gantline.api.port import DeclaredJob
from gantline.api.settings import ApiSettings
from gantline.api.streams.stream import EventStream
from gantline.api.submitting import Submitter

Before = Callable[[Request, Any], Awaitable[Response | Answer | None] | Response | Answer | None]
"""Sees the request and its typed payload first. What it returns is the answer, and nothing is
submitted; None lets the job be submitted. `request.state.principal` is who asks."""


class AsyncEndpoint:
    """An ASGI application for a route: POST, PUT, PATCH or DELETE, with or without a body."""

    def __init__(
        self,
        job_type: DeclaredJob,
        *,
        desk: FrontDesk,
        submitter: Submitter,
        settings: ApiSettings,
        headers: Mapping[str, str],
        before: Before | None,
    ) -> None:
        self.job_type = job_type
        self._desk = desk
        self._submitter = submitter
        self._settings = settings
        self._before = before
        operation = Operation(
            name=f"enqueue {job_type.name}",
            method="",
            path="",
            tag="",
            summary=f"Enqueue a job of type {job_type.name}.",
            run=self._enqueue,
            answers={202: AcceptedDocument, 200: StatusDocument},
            problems=SUBMIT_PROBLEMS,
        )
        self.served = Capture(operation, job_type.handler, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._desk.serve(self.served, scope, receive, send)

    async def _enqueue(self, call: Call) -> Answer:
        if self._before is not None:
            answer = await self._asked_before(call, self._before)
            if answer is not None:
                return answer
        principal = call.principal
        new = self.job_type.prepare(
            call.body,
            tenant=principal.tenant_id,
            owner=principal.id,
            correlation_id=call.correlation_id,
            job_id=request_headers.async_request_id(call.headers),
            trace_context=request_headers.trace_context(call.headers),
        )
        content = bytes(new.job.payload)
        key = self._submitter.request_key(call, content, tenant_id=principal.tenant_id)
        return await self._submitter.accept(call, new.with_request(key), root=self._root(call))

    async def _asked_before(self, call: Call, before: Before) -> Answer | None:
        async def replay() -> dict[str, Any]:
            return {"type": "http.request", "body": call.raw_body, "more_body": False}

        request = Request(dict(call.scope), replay)
        request.state.principal = call.principal
        found = before(request, call.body)
        if inspect.isawaitable(found):
            found = await found
        return answer_of(found) if isinstance(found, Response) else found

    def _root(self, call: Call) -> str:
        """Where the API is: beside the application that this route is in, not beneath the route."""
        root: str = call.scope.get("app_root_path", call.scope.get("root_path", ""))
        return (
            Call({**call.scope, "root_path": root}, call.headers, call.correlation_id).root
            + self._settings.mounted_at
        )


def answer_of(response: Response) -> Answer:
    """Starlette's response as ours; one that is streamed has no body to take."""
    headers = [(name, value) for name, value in response.raw_headers if name != b"content-length"]
    return Answer(response.status_code, bytes(response.body), headers)


def response_of(answer: Answer, correlation_id: str) -> Response:
    """Our answer as Starlette's, for frameworks that want one."""
    if isinstance(answer, EventStream):
        return _Streaming(answer, correlation_id)
    response = Response(answer.body, answer.status)
    own = {name for name, _ in answer.headers}
    kept = [(name, value) for name, value in response.raw_headers if name not in own]
    response.raw_headers = [
        *kept,
        *answer.headers,
        (b"x-correlation-id", correlation_id.encode("latin-1")),
        (b"x-content-type-options", b"nosniff"),
    ]
    return response


class _Streaming(Response):
    """An event stream as a response of Starlette's."""

    def __init__(self, stream: EventStream, correlation_id: str) -> None:
        super().__init__(status_code=stream.status)
        self._stream = stream
        self._correlation_id = correlation_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with_body = scope["method"] != "HEAD"
        await self._stream.send(
            send, receive, correlation_id=self._correlation_id, with_body=with_body
        )
