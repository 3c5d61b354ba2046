"""The API as an ASGI application: its routes, and what is made once for all requests."""

from collections.abc import Mapping, MutableMapping, Sequence
from functools import cached_property
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gantline.api.access import Access
from gantline.api.async_endpoint import AsyncEndpoint, Before
from gantline.api.call import Call
from gantline.api.dispatcher import Dispatcher
from gantline.api.function_authorizer import FunctionAuthorizer
from gantline.api.openapi import openapi_document
from gantline.api.operation import Operation, Parts
from gantline.api.operations.documentation import Documentation, start_page
from gantline.api.operations.table import documentation_operations, operations_of
from gantline.api.port import DeclaredJob, Jobs
from gantline.api.problems import ApiCode, Refused
from gantline.api.responses import Responses
from gantline.api.seal import SealKeeper
from gantline.api.settings import ApiSettings
from gantline.api.streams.identity import Identity
from gantline.api.streams.streams import Streams
from gantline.api.submitting import Submitter
from gantline.api.user_code import LimitedAuthorizer, UserCode
from gantline.auth.authenticator import AllowAnonymous, Authenticator
from gantline.auth.authorizer import Authorizer, DefaultAuthorizer
from gantline.auth.gate import Gate
from gantline.auth.stream_tokens import StreamTokens
from gantline.contract.audit import AuditEntry, AuditSink
from gantline.contract.errors import AuthMisconfigured, GantlineError

_CHOICES = (
    "Give `authenticator=`: ApiKeyAuthenticator, JwtAuthenticator, AnyOf(…) or your own; or say "
    "`allow_anonymous=True` to let everybody in."
)
_HEADERS_SENT = (
    "Authorization Content-Type Idempotency-Key If-Match If-None-Match Last-Event-ID Prefer "
    "X-Correlation-Id"
)
_HEADERS_SHOWN = (
    "ETag Link Location RateLimit-Limit RateLimit-Remaining RateLimit-Reset Retry-After "
    "X-Correlation-Id"
)


class Resource:
    """All operations of one path, as an ASGI application; without any, there is nothing here."""

    def __init__(
        self, dispatcher: Dispatcher, operations: Sequence[Operation] = (), *, advice: str = ""
    ) -> None:
        self._dispatcher = dispatcher
        self._operations = {operation.method: operation for operation in operations}
        if "GET" in self._operations:
            self._operations["HEAD"] = self._operations["GET"]
        self._advice = advice
        # An operation too, so that a wrong path or method is a problem like others.
        self._refusing = Operation("", "", "", "", None, "", self._refuse, {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._operations.get(scope["method"], self._refusing)
        await self._dispatcher.serve(operation, scope, receive, send)

    async def _refuse(self, call: Call) -> Response:
        if not self._operations:
            advice = self._advice and f" See {call.root}{self._advice} for what there is."
            raise Refused(ApiCode.NOT_FOUND, f"There is nothing at {call.path}.{advice}")
        allowed = {"allow": ", ".join(sorted(self._operations))}
        detail = f"{call.method} {call.path} is not served."
        raise Refused(ApiCode.METHOD_NOT_ALLOWED, detail, headers=allowed)


class Api:
    """The HTTP contract over an application's jobs. Serve it, or mount it in any ASGI app."""

    def __init__(
        self,
        jobs: Jobs,
        *,
        authenticator: Authenticator | None = None,
        allow_anonymous: bool = False,
        authorizer: Authorizer | None = None,
        audit: AuditSink | None = None,
        settings: ApiSettings | None = None,
        responses: Responses | None = None,
        stream_tokens: StreamTokens | None = None,
        pages: Mapping[str, ASGIApp] | None = None,
    ) -> None:
        """`pages` are served beside the API, by their paths and without credentials: health.

        `stream_tokens` let browsers follow jobs without a header; without them they need a cookie
        that the authenticator knows.
        """
        if (authenticator is not None) == allow_anonymous:
            what = "both an authenticator and allow_anonymous" if allow_anonymous else "neither"
            raise AuthMisconfigured(
                f"The API must know who is asking, and was given {what}.", next_step=_CHOICES
            )
        self._jobs = jobs
        self.settings = settings or ApiSettings()
        authenticator = authenticator or AllowAnonymous()
        responses = responses or Responses()
        self._code = code = UserCode(
            slow_seconds=self.settings.slow_code_seconds,
            timeout_seconds=self.settings.code_timeout_seconds,
        )
        gate = Gate(_asked_by(code, authorizer), audit or _TheirAudit(jobs), clock=jobs.clock)
        access = Access(jobs, gate)
        seals = SealKeeper(jobs)
        self._parts = Parts(
            jobs=jobs,
            settings=self.settings,
            responses=responses,
            access=access,
            submitter=Submitter(jobs, access, code, settings=self.settings, responses=responses),
            seals=seals,
            streams=Streams(jobs, gate.authorizer, seals, self.settings.streams),
            stream_identity=Identity(authenticator, stream_tokens),
            stream_tokens=stream_tokens,
        )
        jobs.on_close(self._parts.streams.close)
        jobs.on_close(code.close)
        self.dispatcher = Dispatcher(self._parts, authenticator, gate)
        is_shown = self.settings.show_documentation
        documentation = Documentation(lambda: self.openapi)
        self.operations = [
            *operations_of(self._parts),
            *documentation_operations(documentation, is_shown=is_shown),
        ]
        self.routes = [
            *_routes(self.dispatcher, self.operations),
            *(Route(path, page) for path, page in (pages or {}).items()),
        ]
        if self.settings.show_start_page:
            self.routes.append(Route("/", start_page))
        nothing = Resource(self.dispatcher, advice="/api/docs" if is_shown else "")
        router = Router(self.routes, default=nothing, redirect_slashes=False)
        self._app = self._with_cors(router)
        self._direct = {} if self.settings.cors_origins else _without_values(self.routes)

    @property
    def is_overloaded(self) -> bool:
        """Whether requests of anybody are refused, or were a moment ago; for readiness."""
        return self.dispatcher.is_overloaded

    @property
    def has_stuck_code(self) -> bool:
        """Whether code of the user's own has not returned in time; for readiness."""
        return self._code.is_stuck

    @cached_property
    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document of all operations."""
        return openapi_document(self.operations)

    def endpoint(
        self,
        job_type: DeclaredJob,
        *,
        headers: Mapping[str, str] | None = None,
        before: Before | None = None,
        responses: Responses | None = None,
    ) -> AsyncEndpoint:
        """Make an async endpoint, for any route of any ASGI application.

        `headers` are those to capture, each with the field of the payload that it becomes.
        """
        dispatcher, submitter = self.dispatcher, self._parts.submitter
        if responses is not None:
            dispatcher = dispatcher.responding_by(responses)
            submitter = submitter.responding_by(responses)
        return AsyncEndpoint(
            job_type,
            dispatcher=dispatcher,
            submitter=submitter,
            settings=self.settings,
            headers=headers or {},
            before=before,
        )

    def enqueue(
        self,
        path: str,
        job_type: DeclaredJob,
        *,
        methods: Sequence[str] = ("POST",),
        headers: Mapping[str, str] | None = None,
        before: Before | None = None,
        responses: Responses | None = None,
    ) -> Route:
        """Make a route of Starlette that submits a job and answers 202."""
        endpoint = self.endpoint(job_type, headers=headers, before=before, responses=responses)
        return Route(path, endpoint, methods=methods, name=f"enqueue-{job_type.name}")

    async def problem(self, request: Request, error: Exception) -> Response:
        """Answer an error of ours that a route of your own raised, as the API itself would.

        For Starlette and FastAPI: `app.add_exception_handler(GantlineError, api.problem)`.
        """
        if not isinstance(error, GantlineError):
            raise error
        return self.dispatcher.problem_for(request.scope, request.receive, error)

    def _with_cors(self, app: ASGIApp) -> ASGIApp:
        if not self.settings.cors_origins:
            return app
        return CORSMiddleware(
            app,
            allow_origins=self.settings.cors_origins,
            allow_methods=("GET", "POST", "PUT", "DELETE"),
            allow_headers=_HEADERS_SENT.split(),
            expose_headers=_HEADERS_SHOWN.split(),
        )

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            await self._direct.get(path, self._app)(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Where this is the whole application: open the store at the start, close it at the end.

        A start that fails is reported to the server, which then does not start either.
        """
        await receive()
        try:
            await self._jobs.open()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._jobs.close()
        await send({"type": "lifespan.shutdown.complete"})


def _asked_by(code: UserCode, authorizer: Authorizer | None) -> Authorizer:
    """Ours is quick; one of the user's own may be anything."""
    if authorizer is None:
        return DefaultAuthorizer()
    if type(authorizer) is DefaultAuthorizer:
        return authorizer
    if isinstance(authorizer, FunctionAuthorizer):
        return authorizer.called_by(code)
    return LimitedAuthorizer(authorizer, code)


class _TheirAudit:
    """The application's own sink, which is another one when it has moved to another store."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def record(self, entry: AuditEntry) -> None:
        await self._jobs.audit.record(entry)


def _without_values(routes: Sequence[BaseRoute]) -> dict[str, ASGIApp]:
    """Routes that are found by their path alone, without asking one after the other."""
    plain = [one for one in routes if isinstance(one, Route) and not one.param_convertors]
    return {route.path: route.app for route in plain}


def _routes(dispatcher: Dispatcher, operations: Sequence[Operation]) -> list[BaseRoute]:
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [Route(path, Resource(dispatcher, group)) for path, group in by_path.items()]
