"""Async endpoints: a route of the user's own application that enqueues a job and answers 202."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gantline.api import headers as request_headers
from gantline.api.call import Call, quoted
from gantline.api.dispatcher import Dispatcher
from gantline.api.documents import ErrorDetail
from gantline.api.json_response import NO_STORE, encode
from gantline.api.operation import Operation
from gantline.api.parsing import check_json, decode, parameters
from gantline.api.port import DeclaredJob
from gantline.api.problems import Refused, invalid_parameter, refused_for
from gantline.api.settings import ApiSettings
from gantline.api.submitting import Submitter
from gantline.api.views import accepted_document
from gantline.auth.action import Action
from gantline.auth.principal import Principal
from gantline.contract.errors import Code, InvalidInput, InvalidPayload
from gantline.contract.status import JobStatus
from gantline.worker.handler import Handler

Before = Callable[[Request, Any], Awaitable[Response | None] | Response | None]
"""Sees the request and its typed payload first. What it returns is the response, and nothing is
submitted; None lets the job be submitted. `request.state.principal` is the caller."""

# Credentials never go into a job, whatever the route asks for.
_NEVER: Final = frozenset(
    {"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"}
)


class AsyncEndpoint:
    """An ASGI application for a route: POST, PUT, PATCH or DELETE, with or without a body."""

    def __init__(
        self,
        job_type: DeclaredJob,
        *,
        dispatcher: Dispatcher,
        submitter: Submitter,
        settings: ApiSettings,
        headers: Mapping[str, str],
        before: Before | None,
    ) -> None:
        self.job_type = job_type
        self._dispatcher = dispatcher
        self._submitter = submitter
        self._settings = settings
        self._before = before
        self._capture = Capture(job_type.handler, headers)
        name = f"enqueue {job_type.name}"
        self._operation = Operation(
            name, "", "", "", Action.SUBMIT, "", self._enqueue, {}, read=self._read
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(scope, receive, send)

    async def serve(
        self, scope: Scope, receive: Receive, send: Send, principal: Principal | None = None
    ) -> None:
        """Answer one request; `principal` where the caller is known already."""
        await self._dispatcher.serve(self._operation, scope, receive, send, principal)

    async def _read(self, call: Call) -> None:
        read = partial(self._capture.read, call)
        call.sent = await self._submitter.checked(call, self.job_type, read)

    async def _enqueue(self, call: Call) -> Response:
        if self._before is not None:
            call.state.principal = call.principal
            found = self._before(call, call.sent)
            response = await found if inspect.isawaitable(found) else found
            if response is not None:
                return response
        principal = call.principal
        prepare = partial(
            self.job_type.prepare,
            call.sent,
            tenant=principal.tenant_id,
            owner=principal.id,
            correlation_id=call.correlation_id,
            job_id=request_headers.async_request_id(call.joined_headers),
            trace_context=request_headers.trace_context(call.joined_headers),
        )
        new = await self._submitter.checked(call, self.job_type, prepare)
        content = bytes(new.job.payload)
        key = self._submitter.request_key(call, content, tenant_id=principal.tenant_id)
        # The API is beside the application that this route is in, not beneath the route.
        root = call.scope.get("app_root_path", call.scope.get("root_path", ""))
        root = quoted(root.rstrip("/")) + self._settings.mounted_at
        return await self._submitter.accept(call, new.with_request(key), root=root)


class Capture:
    """Reads requests to one async endpoint into its payload.

    The body is the payload. Values of the route and the query, and headers that were allowed,
    become fields of it. What comes from two sources must be the same in both.
    """

    def __init__(self, handler: Handler, headers: Mapping[str, str]) -> None:
        """`headers` are the names of headers to take, each with the field that it becomes."""
        self._handler = handler
        self._headers = {name.lower(): field for name, field in headers.items()}
        if refused := sorted(_NEVER & self._headers.keys()):
            raise InvalidInput(
                f"The header {refused[0]} may not be captured.",
                next_step="The job's owner is recorded as createdBy.",
            )
        for name, field in headers.items():
            if self._reads(field) is False:
                raise InvalidInput(
                    f"The header {name} would become {field}, which the payload of "
                    f"{handler.job_type!r} has not."
                )

    def _reads(self, field: str) -> bool:
        try:
            return self._handler.codec.from_text(field, [""]) is not None
        except InvalidPayload:
            return True

    def read(self, call: Call) -> Any:
        """The typed payload."""
        body = call.raw_body
        if body:
            check_json(call.joined_headers)
        captured = self._captured(call)
        try:
            return self._handler.codec.decode(self._payload(body, captured))
        except InvalidPayload as error:
            raise refused_for(error, within="#") from None

    def _captured(self, call: Call) -> dict[str, Any]:
        captured: dict[str, Any] = {}
        for name, value in call.path_params.items():
            self._take(captured, name, [str(value)])
        texts: dict[str, list[str]] = {}
        for name, text in parameters(call.scope["query_string"]):
            texts.setdefault(name, []).append(text)
        for name, values in texts.items():
            if not self._take(captured, name, values):
                raise invalid_parameter(name, "is not known")
        for header, field in self._headers.items():
            if (given := call.joined_headers.get(header)) is not None:
                self._take(captured, field, [given])
        return captured

    def _take(self, captured: dict[str, Any], name: str, texts: list[str]) -> bool:
        try:
            read = self._handler.codec.from_text(name, texts)
        except InvalidPayload as error:
            raise refused_for(error, within="#") from None
        if read is None:
            return False
        field, value = read
        if captured.setdefault(field, value) != value:
            raise _differs(field)
        return True

    def _payload(self, body: bytes, captured: dict[str, Any]) -> bytes:
        """The payload's JSON; without a body or captured values it is what an empty one is."""
        if not captured:
            if body:
                decode(Any, body)  # a malformed body is not reported as a wrong payload
            return body or (b"{}" if self._handler.codec.fields is not None else b"null")
        sent: dict[str, Any] = decode(dict[str, Any], body) if body else {}
        for field, value in captured.items():
            if sent.setdefault(field, value) != value:
                raise _differs(field)
        return msgspec.json.encode(sent)


def _differs(field: str) -> Refused:
    detail = "is given twice, and differently"
    error = ErrorDetail(pointer=f"#/{field}", detail=detail)
    return Refused(Code.VALIDATION_ERROR, f"{field} {detail}.", errors=[error])


class _HandleLike(Protocol):
    """What is read of a handle."""

    @property
    def job_id(self) -> UUID: ...

    @property
    def subject_id(self) -> str: ...

    @property
    def duplicate(self) -> bool: ...


class Accepted(Response):
    """The 202 for a job that the user's own code submitted.

    `return Accepted.of(await index.submit(document))`
    """

    @classmethod
    def of(
        cls, handle: _HandleLike, *, mounted_at: str = "", retry_after_seconds: int = 1
    ) -> "Accepted":
        """`mounted_at` is where the API is, if not at the root."""
        status = None if handle.duplicate else JobStatus.QUEUED
        document = accepted_document(
            mounted_at, handle.job_id, handle.subject_id, status, duplicate=handle.duplicate
        )
        headers = {"location": document.status_url, "retry-after": str(retry_after_seconds)}
        headers |= {"content-type": "application/json", "cache-control": NO_STORE}
        return cls(encode(document), 202, headers)
