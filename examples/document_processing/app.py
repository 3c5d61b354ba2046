"""The application put together: its own routes, the one that enqueues, the API of its jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

from examples.document_processing.documents import Documents
from examples.document_processing.jobs import (
    Analysis,
    Shared,
    analyze,
    jobs_of_documents,
    refuse_personal_data,
)
from examples.document_processing.people import ByDocument, Sessions
from examples.document_processing.routes import add_samples, files, routes
from gantline import Gantline, GantlineError, JobDefaults
from gantline.errors import InvalidPayload, NotThere, Problem
from gantline.integrations.fastapi import enqueue


def create_app(database: Path, *, pace_seconds: float = 0.0) -> FastAPI:
    """Documents and jobs are in one SQLite file; a worker runs in the same process."""
    documents = Documents(database)
    sessions = Sessions(documents)

    @asynccontextmanager
    async def shared(jobs: Gantline) -> AsyncIterator[Shared]:
        documents.create()
        await add_samples(jobs, documents)
        yield Shared(documents, pace_seconds)

    jobs = Gantline(
        f"sqlite:///{database}",
        include=[jobs_of_documents],
        lifespan=shared,
        defaults=JobDefaults(payload_check=refuse_personal_data),
    )
    api = jobs.api(authenticator=sessions, authorizer=ByDocument())

    async def without_what_was_sent(request: Request, error: Exception) -> Response:
        """FastAPI's own answer would repeat it, and it may be personal."""
        found = error.errors() if isinstance(error, RequestValidationError) else ()
        problems = [Problem("#/" + "/".join(map(str, one["loc"][1:])), one["msg"]) for one in found]
        return await api.problem(request, InvalidPayload("The body is not valid.", problems))

    app = FastAPI(title="Documents", lifespan=jobs.lifespan(worker=True))
    app.state.jobs, app.state.documents, app.state.sessions = jobs, documents, sessions
    app.include_router(routes)
    enqueue(app, "/api/analysis/enqueue", analyze, api=api, before=of_ones_own)
    app.add_exception_handler(GantlineError, api.problem)
    app.add_exception_handler(RequestValidationError, without_what_was_sent)
    app.mount("/page", files)
    app.mount("/", api)  # last: whatever is not above
    return app


def of_ones_own(request: Request, analysis: Analysis) -> None:
    """Answer a document that the user may not read as one that does not exist."""
    if str(analysis.document_id) not in request.state.principal.subjects:
        raise NotThere("There is no such document.")
