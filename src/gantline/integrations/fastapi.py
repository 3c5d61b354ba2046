"""FastAPI.

app = FastAPI(lifespan=jobs.lifespan(worker=True))
app.include_router(jobs.router(principal=Depends(current_user)))
enqueue(app, "/documents/{document_id}/index", index_document, principal=Depends(current_user))
"""

from typing import Any

from gantline.api.application import Api
from gantline.api.async_endpoint import Accepted, AsyncEndpoint
from gantline.api.fastapi_router import Routes, add_endpoint
from gantline.api.function_authorizer import KnownByDependency
from gantline.app.job_type import JobType
from gantline.contract.errors import AuthMisconfigured

__all__ = ["Accepted", "enqueue"]


def enqueue(
    routes: Routes,
    path: str,
    job_type: JobType[..., Any],
    *,
    api: Api | None = None,
    principal: Any = None,
    **options: Any,
) -> AsyncEndpoint:
    """Let a route of a FastAPI application, or of a router of one, submit a job and answer 202.

    The caller is known by `principal=Depends(…)`, or by the authenticator of `api`. The options are
    `methods`, `headers` and `before`, and those of `add_api_route`.
    """
    if api is None and principal is None:
        raise AuthMisconfigured(
            f"The endpoint {path} must know who is asking.",
            next_step="Give `principal=Depends(current_user)`, or `api=jobs.api(authenticator=…)`.",
        )
    if api is None:
        api = job_type.app.api(authenticator=KnownByDependency())
    return add_endpoint(routes, path, job_type, api=api, principal=principal, **options)
