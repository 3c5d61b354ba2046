"""The API as an ASGI application: its routes, and what is made once for all requests."""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gantline.api.access import Access
from gantline.api.answer import Answer
from gantline.api.async_endpoint import AsyncEndpoint, Before, response_of
from gantline.api.call import Call
from gantline.api.front_desk import FrontDesk
from gantline.api.job_cache import JobCache
from gantline.api.operation import Operation
from gantline.api.operations.act import Acting
from gantline.api.operations.audit import AuditTrail
from gantline.api.operations.dead import DeadLetters
from gantline.api.operations.documentation import Documentation
from gantline.api.operations.follow import Follow
from gantline.api.operations.job_types import JobTypes
from gantline.api.operations.queues import Queues
from gantline.api.operations.read import Reading
from gantline.api.operations.schedules import ScheduleOperations
from gantline.api.operations.statistics import Statistics
from gantline.api.operations.submit import Submitting
from gantline.api.operations.webhooks import WebhookOperations
from gantline.api.parts import Parts
from gantline.api.port import DeclaredJob, Jobs
from gantline.api.problems import ApiCode, Refused
from gantline.api.rate_limiter import RateLimiter
from gantline.api.responses import Responses
from gantline.api.served import Served
from gantline.api.settings import ApiSettings
from gantline.api.streams.identity import Identity
from gantline.api.streams.streams import Streams
from gantline.api.submitting import Submitter
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


class Resource:
    """All operations of one path, as an ASGI application."""

    def __init__(self, desk: FrontDesk, operations: Sequence[Operation]) -> None:
        self._desk = desk
        self._served = {operation.method: Served(operation) for operation in operations}
        if "GET" in self._served:
            self._served["HEAD"] = self._served["GET"]
        allowed = ", ".join(sorted(self._served)).encode("ascii")
        self._not_allowed = Served(_refusing(ApiCode.METHOD_NOT_ALLOWED, (b"allow", allowed)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = self._served.get(scope["method"], self._not_allowed)
        await self._desk.serve(served, scope, receive, send)


def _refusing(code: str, *headers: tuple[bytes, bytes], is_documented: bool = False) -> Operation:
    """An operation that there is not, so that a wrong path or method is a problem like others."""

    async def refuse(call: Call) -> Answer:
        what = f"{call.scope['method']} {call.path}" if code == ApiCode.METHOD_NOT_ALLOWED else ""
        detail = f"{what} is not served." if what else f"There is nothing at {call.path}."
        advice = f" What there is, {call.root}/api/docs tells." if is_documented else ""
        raise Refused(code, detail + advice, headers=headers)

    return Operation(
        name="", method="", path="", tag="", summary="", run=refuse, answers={}, is_public=True
    )


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
        self._parts = _parts(
            jobs,
            authenticator=authenticator or AllowAnonymous(),
            gate=Gate(
                authorizer or DefaultAuthorizer(), audit or _TheirAudit(jobs), clock=jobs.clock
            ),
            settings=self.settings,
            responses=responses or Responses(),
            stream_tokens=stream_tokens,
        )
        jobs.on_close(self._parts.streams.close)
        operations = _operations(self._parts)
        documentation = Documentation(operations, is_shown=self.settings.show_documentation)
        self.operations = [*operations, *documentation.operations]
        self.openapi = documentation.document
        self.routes = [
            *_routes(self._parts.desk, self.operations),
            *(Route(path, page) for path, page in (pages or {}).items()),
        ]
        nothing = _NotFound(self._parts.desk, is_documented=self.settings.show_documentation)
        router = Router(self.routes, default=nothing, redirect_slashes=False)
        self._app = self._with_cors(router)
        self._direct = {} if self.settings.cors_origins else _without_values(self.routes)

    @property
    def desk(self) -> FrontDesk:
        return self._parts.desk

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
        desk, submitter = self._parts.desk, self._parts.submitter
        return AsyncEndpoint(
            job_type,
            desk=desk if responses is None else desk.answering(responses),
            submitter=submitter if responses is None else submitter.answering(responses),
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
        call, _ = self.desk.received(request.scope)
        return response_of(self.desk.problem_for(call, error), call.correlation_id)

    def _with_cors(self, app: ASGIApp) -> ASGIApp:
        if not self.settings.cors_origins:
            return app
        return CORSMiddleware(
            app,
            allow_origins=self.settings.cors_origins,
            allow_methods=("GET", "POST", "PUT", "DELETE"),
            allow_headers=(
                "Authorization",
                "Content-Type",
                "Idempotency-Key",
                "If-Match",
                "If-None-Match",
                "Last-Event-ID",
                "Prefer",
                "X-Correlation-Id",
            ),
            expose_headers=(
                "ETag",
                "Link",
                "Location",
                "RateLimit-Limit",
                "RateLimit-Remaining",
                "RateLimit-Reset",
                "Retry-After",
                "X-Correlation-Id",
            ),
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
        """Where this is the whole application: open the store at the start, let it go at the end.

        A start that fails is told to the server, which then does not start either.
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


class _TheirAudit:
    """The application's own sink, which is another one when it has moved to another store."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def record(self, entry: AuditEntry) -> None:
        await self._jobs.audit.record(entry)


class _NotFound:
    def __init__(self, desk: FrontDesk, *, is_documented: bool) -> None:
        self._desk = desk
        self._served = Served(_refusing(ApiCode.NOT_FOUND, is_documented=is_documented))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._desk.serve(self._served, scope, receive, send)


def _parts(
    jobs: Jobs,
    *,
    authenticator: Authenticator,
    gate: Gate,
    settings: ApiSettings,
    responses: Responses,
    stream_tokens: StreamTokens | None,
) -> Parts:
    cache = JobCache(jobs, seconds=settings.cache_seconds, most=settings.cache_jobs)
    access = Access(jobs, gate, cache)
    return Parts(
        jobs=jobs,
        settings=settings,
        responses=responses,
        desk=FrontDesk(
            jobs,
            authenticator=authenticator,
            gate=gate,
            limiter=RateLimiter(jobs, settings.rate_limits),
            settings=settings,
            responses=responses,
        ),
        access=access,
        cache=cache,
        submitter=Submitter(jobs, access, settings=settings, responses=responses),
        streams=Streams(jobs, gate.authorizer, settings.streams),
        stream_identity=Identity(authenticator, stream_tokens),
        stream_tokens=stream_tokens,
    )


def _operations(parts: Parts) -> list[Operation]:
    """In the order in which they are looked for: what is called most often comes first."""
    reading = Reading(parts)
    return [
        *Submitting(parts).operations,
        *reading.operations,
        *Acting(parts).operations,
        *DeadLetters(parts, reading).operations,
        *Statistics(parts).operations,
        *Queues(parts).operations,
        *JobTypes(parts).operations,
        *WebhookOperations(parts).operations,
        *ScheduleOperations(parts).operations,
        *AuditTrail(parts).operations,
        *Follow(parts).operations,
    ]


def _without_values(routes: Sequence[BaseRoute]) -> dict[str, ASGIApp]:
    """Routes that are found by their path alone, without asking one after the other."""
    plain = [one for one in routes if isinstance(one, Route) and not one.param_convertors]
    return {route.path: route.app for route in plain}


def _routes(desk: FrontDesk, operations: Sequence[Operation]) -> list[BaseRoute]:
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [Route(path, Resource(desk, group)) for path, group in by_path.items()]
