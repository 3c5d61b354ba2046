"""The API as a router of FastAPI, and async endpoints in a FastAPI application."""

import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.params import Depends

from gantline.api.application import Api
from gantline.api.async_endpoint import AsyncEndpoint, Before, response_of
from gantline.api.body import ClientGone
from gantline.api.call import Scope
from gantline.api.endpoint_document import answers_document, request_document
from gantline.api.front_desk import FrontDesk
from gantline.api.port import DeclaredJob
from gantline.api.served import Servable, Served
from gantline.auth.principal import Principal
from gantline.contract.errors import AuthMisconfigured

_Endpoint = Callable[..., Awaitable[Response]]


Routes = FastAPI | APIRouter


def fastapi_router(api: Api, *, principal: Any = None) -> APIRouter:
    """All routes of the API. `principal=Depends(…)` tells who asks, by the user's own dependency.

    The API documents itself at /api/docs, so its routes are not in FastAPI's own document.
    """
    router = APIRouter()
    for operation in api.operations:
        methods = ["GET", "HEAD"] if operation.method == "GET" else [operation.method]
        dependency = None if operation.is_public else principal
        router.add_api_route(
            operation.path,
            _endpoint(api.desk, Served(operation), dependency),
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
    shown = request_document(codec, path, headers or {}, told=_read_by(principal))
    routes.add_api_route(
        path,
        _endpoint(api.desk, endpoint.served, principal),
        methods=list(methods),
        status_code=202,
        **{
            "name": f"enqueue-{job_type.name}",
            "response_class": Response,
            "openapi_extra": shown,
            "responses": answers_document(),
            **options,
        },
    )
    return endpoint


def _read_by(principal: Any) -> Collection[str]:
    """What the user's own dependency reads, FastAPI tells by itself."""
    reader = getattr(principal, "dependency", None)
    return inspect.signature(reader).parameters if callable(reader) else ()


def _endpoint(desk: FrontDesk, served: Servable, principal: Any) -> _Endpoint:
    async def answered(request: Request, known: Principal | None) -> Response:
        call, refused = desk.received(_from_its_prefix(request.scope, served))
        try:
            answer = (
                desk.problem(call, refused)
                if refused
                else await desk.answer(served, call, request.receive, known)
            )
        except ClientGone:
            return Response(status_code=499)  # nobody reads it
        return response_of(answer, call.correlation_id)

    if principal is None:

        async def plain(request: Request) -> Response:
            return await answered(request, None)

        return plain

    if not isinstance(principal, Depends):
        raise AuthMisconfigured(
            f"principal is a {type(principal).__name__}.", next_step="Give Depends(current_user)."
        )

    async def depending(request: Request, known: Any = principal) -> Response:
        return await answered(request, _checked(known, served))

    return depending


def _from_its_prefix(scope: Scope, served: Servable) -> Scope:
    """A router that is included under a prefix is as good as mounted there."""
    own, path = served.operation.path, scope["path"]
    head = own.partition("{")[0]
    if not head or (start := path.rfind(head, len(scope.get("root_path", "")))) < 0:
        return scope
    return {**scope, "root_path": path[:start]}


def _checked(known: Any, served: Servable) -> Principal:
    if not isinstance(known, Principal):
        raise AuthMisconfigured(
            f"The dependency that tells the principal gave a {type(known).__name__}.",
            next_step="Let it return a gantline.auth Principal, or raise an HTTPException.",
        )
    return known
