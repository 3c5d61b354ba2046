"""The web side: documents in, passports out, and the page on which both can be watched.

A cookie names the tenant of a request: enough for a demo on this machine, and nothing more.
Everything about jobs (status, live events, redrive) is the API of Gantline itself.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec
import zxingcpp
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from examples.battery_passport.database import Database
from examples.battery_passport.demo_worker import WorkerProcess
from examples.battery_passport.documents import LARGEST_DOCUMENT
from examples.battery_passport.intake import receive
from examples.battery_passport.receiver import Receiver
from examples.battery_passport.rules import current_package
from examples.battery_passport.samples import SAMPLES, sample_named
from examples.battery_passport.verify import verify
from gantline import Gantline, InvalidInput, Permanent, WorkerSettings
from gantline.auth import Credentials, Principal, Role
from gantline.integrations.starlette import Accepted
from gantline.webhooks import WebhookNotVerified

TENANTS: Final = {"aurora": "Aurora Motors", "borealis": "Borealis Bikes"}
COOKIE: Final = "tenant"
_PAGE: Final = Path(__file__).parent / "page"
_MEDIA: Final = {
    "qr.png": "image/png",
    "passport.json": "application/json",
    "passport.jsonld": "application/ld+json",
    "passport.pdf": "application/pdf",
}
_POLICY: Final = "default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'"
_MOST_PIXELS: Final = 4_000_000

T = TypeVar("T")


class TenantCookie:
    """An authenticator for the API: the cookie names one of the tenants, else the first is it."""

    challenge = ""

    async def authenticate(self, credentials: Credentials) -> Principal:
        return operator_of(credentials.cookies.get(COOKIE))


def operator_of(cookie: str | None) -> Principal:
    tenant = cookie if cookie in TENANTS else next(iter(TENANTS))
    return Principal(id=f"user:{tenant}", tenant_id=tenant, roles=frozenset({Role.OPERATOR}))


class Desk:
    """The routes beside the API of Gantline."""

    def __init__(self, jobs: Gantline, receiver: Receiver, worker: WorkerProcess) -> None:
        self._jobs = jobs
        self._database = Database(jobs)
        self._receiver = receiver
        self._worker = worker

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/", self.page),
            Route("/desk", self.desk),
            Route("/documents", self.send_document, methods=["POST"]),
            Route("/samples/{name}", self.send_sample, methods=["POST"]),
            Route("/passports", self.passports),
            Route("/passports/{version_id:uuid}", self.passport),
            Route("/passports/{version_id:uuid}/{name}", self.artefact),
            Route("/scan", self.scan, methods=["POST"]),
            Route("/verify", self.verify),
            Route("/received", self.received),
            Route("/receiver/{tenant}", self.take, methods=["POST"]),
            Route("/worker", self.worker),
            Route("/worker/kill", self.kill_worker, methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        headers = {"content-security-policy": _POLICY, "cache-control": "no-cache"}
        return FileResponse(_PAGE / "index.html", headers=headers)

    async def desk(self, request: Request) -> Response:
        """What the page shows before anything has happened."""
        package = current_package()
        async with self._database.opened() as books:
            cases = await books.cases_of(package.rules_id)
        samples = [
            {"name": one.name, "title": one.title, "text": one.text, "files": _names(one.files)}
            for one in SAMPLES
        ]
        return _json(
            {
                "tenant": _who(request).tenant_id,
                "tenants": TENANTS,
                "rules": {"name": package.name, "rules": len(package.rules), "cases": cases},
                "samples": samples,
            }
        )

    # -- in ---------------------------------------------------------------------------------------

    async def send_document(self, request: Request) -> Response:
        """One document as the body; its name, which decides nothing, is `?name=`."""
        who, content = _who(request), await _body(request, most=LARGEST_DOCUMENT)
        handle = await receive(
            self._jobs,
            request.query_params.get("name", "document")[:200],
            content,
            tenant=who.tenant_id,
            owner=who.id,
            correlation_id=_correlation(request),
        )
        return Accepted.of(handle)

    async def send_sample(self, request: Request) -> Response:
        """All documents of a sample; the answer is about one of the jobs."""
        who, sample = _who(request), sample_named(request.path_params["name"])
        if sample is None:
            raise HTTPException(404)
        handles = [
            await receive(
                self._jobs,
                file.name,
                file.read_bytes(),
                tenant=who.tenant_id,
                owner=who.id,
                correlation_id=_correlation(request),
            )
            for file in sample.files
        ]
        return Accepted.of(handles[-1])

    # -- out --------------------------------------------------------------------------------------

    async def passports(self, request: Request) -> Response:
        async with self._database.opened() as books:
            found = await books.passports(_who(request).tenant_id)
        return _json([one._asdict() for one in found])

    async def passport(self, request: Request) -> Response:
        """A passport as far as it is: compiled, then signed, then with its artefacts."""
        tenant, version_id = _who(request).tenant_id, str(request.path_params["version_id"])
        async with self._database.opened() as books:
            version = await _found(books.version(tenant, version_id))
            names = await books.artefacts_of(tenant, version_id)
            key_id = await books.signed_by(tenant, version_id)
        return _json(
            {
                "passport": msgspec.Raw(version.payload),
                "receipt_hash": version.receipt_hash,
                "key_id": key_id,
                "artefacts": names,
            }
        )

    async def artefact(self, request: Request) -> Response:
        tenant, (version_id, name) = _who(request).tenant_id, request.path_params.values()
        if name not in _MEDIA:
            raise HTTPException(404)
        async with self._database.opened() as books:
            body = await _found(books.artefact(tenant, str(version_id), name))
        # Under its id and name it never changes.
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(body, media_type=_MEDIA[name], headers=headers)

    # -- scanning ---------------------------------------------------------------------------------

    async def scan(self, request: Request) -> Response:
        """Find a code in a picture: a byte of brightness for each pixel, row by row."""
        _who(request)
        pixels = await _body(request, most=_MOST_PIXELS)
        try:
            width, height = (int(request.query_params[name]) for name in ("width", "height"))
            picture = memoryview(pixels).cast("B", (height, width))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise HTTPException(400, "The body must have width x height bytes.") from None
        found = await run_in_threadpool(zxingcpp.read_barcodes, picture)
        return _json({"text": found[0].text if found else None})

    async def verify(self, request: Request) -> Response:
        async with self._database.opened() as books:
            checks = await verify(
                books, _who(request).tenant_id, request.query_params.get("code", "")
            )
        return _json([check._asdict() for check in checks])

    # -- webhooks ---------------------------------------------------------------------------------

    async def received(self, request: Request) -> Response:
        return _json([one._asdict() for one in self._receiver.of(_who(request).tenant_id)])

    async def take(self, request: Request) -> Response:
        try:
            tenant = request.path_params["tenant"]
            body = await _body(request, most=LARGEST_DOCUMENT)
            self._receiver.take(tenant, body, request.headers)
        except WebhookNotVerified:
            return Response(status_code=401)
        return Response(status_code=204)

    # -- the worker -------------------------------------------------------------------------------

    async def worker(self, request: Request) -> Response:
        """Which process works now."""
        return _json(self._worker.state._asdict())

    async def kill_worker(self, request: Request) -> Response:
        """End it in the middle of whatever it does; another one starts by itself."""
        _who(request)
        return _json({"killed": self._worker.kill()})


def make_web(jobs: Gantline, receiver: Receiver, worker: WorkerProcess) -> Starlette:
    """The web application. It delivers webhooks; the documents' jobs are the worker's."""
    api = jobs.api(authenticator=TenantCookie())

    @asynccontextmanager
    async def lifespan(web: Starlette) -> AsyncIterator[None]:
        async with jobs, jobs.running(WorkerSettings(queues={"webhooks": 4})), worker.running():
            yield

    return Starlette(
        routes=[
            *Desk(jobs, receiver, worker).routes,
            Mount("/page", StaticFiles(directory=_PAGE)),
            Mount("/", api),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
        exception_handlers={InvalidInput: _refuse},
        lifespan=lifespan,
    )


async def _refuse(request: Request, error: Exception) -> Response:
    return Response(str(error), status_code=400, media_type="text/plain")


def _who(request: Request) -> Principal:
    """The principal. A page of another site, which sends our cookie too, can change nothing."""
    site = request.headers.get("sec-fetch-site", "none")
    if request.method != "GET" and site not in ("none", "same-origin"):
        raise HTTPException(403)
    return operator_of(request.cookies.get(COOKIE))


async def _body(request: Request, *, most: int) -> bytes:
    """Read the body, up to the limit."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413, f"The body has {most} bytes at most.")
    return bytes(body)


def _correlation(request: Request) -> str:
    """What all jobs that follow from a request have in common."""
    return request.headers.get("x-correlation-id", "")[:64] or str(uuid4())


def _names(files: list[Path]) -> list[str]:
    return [file.name for file in files]


async def _found(reading: Awaitable[T]) -> T:
    """What a reading finds, or 404, also for what is another tenant's."""
    try:
        return await reading
    except Permanent:
        raise HTTPException(404) from None


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
