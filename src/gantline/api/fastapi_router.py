"""The API as a router of FastAPI, and async endpoints in a FastAPI application."""

import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.params import Depends
from starlette.types import Receive, Scope, Send

from gantline.api.application import Api
from gantline.api.async_endpoint import AsyncEndpoint, Before
from gantline.api.openapi import endpoint_answers, endpoint_request
from gantline.api.operation import Operation
from gantline.api.port import DeclaredJob
from gantline.auth.principal import Principal
from gantline.contract.errors import AuthMisconfigured

_Endpoint = Callable[..., Awaitable[Response]]
_Serve = Callable[[Scope, Receive, Send, Principal | None], Awaitable[None]]
Routes = FastAPI | APIRouter


def fastapi_router(api: Api, *, principal: Any = None) -> APIRouter:
    """All routes of the API. `principal=Depends(…)` is the user's own dependency for the principal.

    The API documents itself at /api/docs, so its routes are not in FastAPI's own document.
    """
    router = APIRouter()
    for operation in api.operations:
        methods = ["GET", "HEAD"] if operation.method == "GET" else [operation.method]
        dependency = None if operation.right is None else principal
        router.add_api_route(
            operation.path,
            _endpoint(_serving(api, operation), dependency),
            methods=methods,
            name=f"gantline:{operation.name}",
            include_in_schema=False,
        )
    return router


def add_endpoint(
    routes: Routes,
    path: str,
    job_type: DeclaredJob,
    *,
    api: Api,
    principal: Any = None,
    methods: Sequence[str] = ("POST",),
    headers: dict[str, str] | None = None,
    before: Before | None = None,
    **options: Any,
) -> AsyncEndpoint:
    """Add a route that submits a job and answers 202; the options are those of `add_api_route`."""
    endpoint = api.endpoint(job_type, headers=headers, before=before)
    codec = job_type.handler.codec
    shown = endpoint_request(codec, path, headers or {}, left_out=_read_by(principal))
    routes.add_api_route(
        path,
        _endpoint(endpoint.serve, principal),
        methods=list(methods),
        status_code=202,
        **{
            "name": f"enqueue-{job_type.name}",
            "response_class": Response,
            "openapi_extra": shown,
            "responses": endpoint_answers(),
            **options,
        },
    )
    return endpoint


def _read_by(principal: Any) -> Collection[str]:
    """What the user's own dependency reads, which FastAPI documents by itself."""
    reader = getattr(principal, "dependency", None)
    return inspect.signature(reader).parameters if callable(reader) else ()


def _serving(api: Api, operation: Operation) -> _Serve:
    async def serve(scope: Scope, receive: Receive, send: Send, known: Principal | None) -> None:
        scope = _from_its_prefix(scope, operation)
        await api.dispatcher.serve(operation, scope, receive, send, known)

    return serve


def _endpoint(serve: _Serve, principal: Any) -> _Endpoint:
    if principal is None:

        async def plain(request: Request) -> Response:
            return _Deferred(serve, None)

        return plain

    if not isinstance(principal, Depends):
        raise AuthMisconfigured(
            f"principal is a {type(principal).__name__}.", next_step="Give Depends(current_user)."
        )

    async def depending(request: Request, known: Any = principal) -> Response:
        if not isinstance(known, Principal):
            raise AuthMisconfigured(
                f"The dependency for the principal returned a {type(known).__name__}.",
                next_step="Let it return a gantline.auth Principal, or raise an HTTPException.",
            )
        return _Deferred(serve, known)

    return depending


class _Deferred(Response):
    """Runs the operation when FastAPI sends the response, so that it is served as everywhere."""

    def __init__(self, serve: _Serve, known: Principal | None) -> None:
        super().__init__()
        self._serve = serve
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send, self._known)


def _from_its_prefix(scope: Scope, operation: Operation) -> Scope:
    """A router that is included under a prefix counts as mounted there."""
    path, head = scope["path"], operation.path.partition("{")[0]
    start = path.rfind(head, len(scope.get("root_path", "")))
    return scope if start < 0 else {**scope, "root_path": path[:start]}
