"""The application's own routes: logging in, documents, and the page."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field

from examples.document_processing.documents import Documents
from examples.document_processing.jobs import Document, process
from examples.document_processing.people import COOKIE, PEOPLE, Person, Sessions
from examples.document_processing.samples import SAMPLES
from gantline import Gantline, Handle
from gantline.auth import Credentials, Principal
from gantline.errors import NotAuthenticated
from gantline.integrations.fastapi import Accepted

_PAGE: Final = Path(__file__).parent / "page"
_FROM_HERE_ONLY: Final = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "cache-control": "no-cache",
}

routes = APIRouter()
files = StaticFiles(directory=_PAGE)


def documents_of(request: Request) -> Documents:
    documents: Documents = request.app.state.documents
    return documents


async def current_user(request: Request) -> Principal:
    sessions: Sessions = request.app.state.sessions
    user = await sessions.authenticate(Credentials(cookies=request.cookies))
    if user is None:
        raise NotAuthenticated("You are not logged in.", next_step="POST /login.")
    return user


User = Annotated[Principal, Depends(current_user)]
TheirDocuments = Annotated[Documents, Depends(documents_of)]


class Login(BaseModel):
    person: str


class NewDocument(BaseModel):
    title: str = Field(min_length=1, max_length=120)
    text: str = Field(max_length=100_000)


@routes.get("/", include_in_schema=False)
async def page() -> FileResponse:
    return FileResponse(_PAGE / "index.html", headers=_FROM_HERE_ONLY)


@routes.get("/api/people")
async def list_people() -> list[dict[str, Any]]:
    return [msgspec.to_builtins(person) for person in PEOPLE.values()]


@routes.post("/login", status_code=204)
async def log_in(login: Login, request: Request) -> Response:
    person = PEOPLE.get(login.person)
    if person is None:
        raise NotAuthenticated("There is no such person.")
    response = Response(status_code=204)
    token = request.app.state.sessions.begin(person)
    response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
    return response


@routes.get("/api/documents")
async def list_documents(user: User, documents: TheirDocuments) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(document) for document in documents.listed(user.id)]


@routes.post("/api/documents", status_code=202, response_class=Accepted)
async def add_document(
    new: NewDocument, request: Request, user: User, documents: TheirDocuments
) -> Accepted:
    jobs: Gantline = request.app.state.jobs
    return Accepted.of(await _add(jobs, documents, PEOPLE[user.id], new.title, new.text))


async def _add(
    jobs: Gantline,
    documents: Documents,
    owner: Person,
    title: str,
    text: str,
    readers: Iterable[str] = (),
) -> Handle[dict[str, int]]:
    """The document and the job that processes it are there both, or neither."""
    async with jobs.transaction() as connection:
        document_id = documents.add(
            connection, owner=owner.id, title=title, text=text, readers=readers
        )
        return await process.submit(
            Document(document_id), tenant=owner.company, owner=owner.id, connection=connection
        )


async def add_samples(jobs: Gantline, documents: Documents) -> None:
    """Something to begin with, where there is nothing yet."""
    if documents.is_empty():
        for one in SAMPLES:
            await _add(jobs, documents, PEOPLE[one.owner], one.title, one.text, one.readers)
