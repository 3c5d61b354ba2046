"""The battery passport's routes answer whatever is sent to them, and never by 5xx."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import pytest

from examples.battery_passport.assembly import make_jobs
from examples.battery_passport.demo_worker import WorkerProcess
from examples.battery_passport.documents import LARGEST_DOCUMENT
from examples.battery_passport.receiver import Receiver
from examples.battery_passport.web import make_web
from gantline import WorkerSettings
from tests.examples.conftest import Place

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "ODD")
ODD = (
    "%00",
    "%FF%FE",
    "%ED%A0%80",
    "..%2F..",
    "a" * 5000,
    "%F0%9F%98%80",
    "-1",
    "nan",
    "%0d%0a",
    "'",
)
TEXTS = ("", "%00", "%FF", "%ED%A0%80", "x" * 60_000, "-1", "1e999", "9" * 5000, "0", "%E2%80%AE")
NUMBERS = ("0", "1", "-1", "99999999999999999999999", "9" * 5000, "1.5", "%00", "%D9%A1", "1_0")
BODIES: tuple[bytes, ...] = (
    b"",
    b"\x00",
    b"\xff\xfe\x00",
    b"\xed\xa0\x80",
    b"{",
    b"null",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"serial": "\\ud800", "events": 7}',
    b'{"materials": {"a": 1e999}}',
    b"a,b\n" + b"\x00,\n" * 1000,
    b'"' * 10_000,
    b"<?xml version='1.0'?>" + b"<a>" * 50_000,
    b"<?xml version='1.0' encoding='nope'?><a/>",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
    b"%PDF-1.7\x00",
    b"9" * 100_000,
    b" " * (LARGEST_DOCUMENT + 1),
)
TYPES = ("", "application/json", "text/plain; charset=nope", "multipart/form-data", "\xff")
PATHS = (
    *(
        "/",
        "/desk",
        "/documents",
        "/samples/x",
        "/passports",
        "/passports/x",
        "/passports/x/qr.png",
    ),
    *(
        "/scan",
        "/verify",
        "/received",
        "/receiver/aurora",
        "/receiver/x",
        "/worker",
        "/worker/kill",
    ),
    *("/page", "/page/nope.js", "/api/jobs", "/api/jobs/x", "/nope"),
)


def requests() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path in PATHS:
        yield from ((method, path, {}) for method in METHODS)
    for odd in ODD:
        for start, end in (
            *(("/passports/", ""), ("/passports/", "/qr.png"), ("/passports/x/", "")),
            *(("/samples/", ""), ("/receiver/", ""), ("/page/", ""), ("/api/jobs/", "")),
        ):
            yield "GET", f"{start}{odd}{end}", {}
            yield "POST", f"{start}{odd}{end}", {"content": b"{}"}
    for text in TEXTS:
        yield "GET", f"/verify?code={text}", {}
        yield "POST", f"/documents?name={text}", {"content": b"a,b\n1,2\n" + text[:99].encode()}
        yield "GET", f"/api/jobs?limit={text}", {}
    for width in NUMBERS:
        for height in NUMBERS:
            for pixels in (b"", b"\x00", b"\x00" * 10):
                yield "POST", f"/scan?width={width}&height={height}", {"content": pixels}
    for body in BODIES:
        for path in (
            "/documents?name=a",
            "/scan?width=1&height=1",
            "/receiver/aurora",
            "/worker/nope",
        ):
            for kind in TYPES:
                headers = [(b"content-type", kind.encode("latin-1"))]
                yield "POST", path, {"content": body, "headers": headers}
    for name, value in HEADERS:
        for method, path in (
            ("GET", "/passports"),
            ("POST", "/samples/nordcell-ev"),
            ("POST", "/documents"),
        ):
            yield method, path, {"content": b"x", "headers": [(name, value)]}
    signed = ("webhook-id", "webhook-timestamp", "webhook-signature")
    for value in (b"", b"\xff", b"v1,", b"v1,\xff\xff", b"9" * 5000, b"nan", b"-1", b"v1,=" * 999):
        headers = [(name.encode(), value) for name in signed]
        yield "POST", "/receiver/aurora", {"content": b"{}", "headers": headers}


HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-correlation-id", b"\xff\xfe"),
    (b"x-correlation-id", b"\x9b31m"),
    (b"x-correlation-id", b"\x00"),
    (b"x-correlation-id", b"a" * 5000),
    (b"cookie", b"tenant=\xff"),
    (b"cookie", b"tenant=" + b"a" * 5000),
    (b"cookie", b";;;==="),
    (b"sec-fetch-site", b"\xff"),
    (b"content-length", b"-1"),
    (b"if-none-match", b"\xff"),
    (b"range", b"bytes=9-1"),
    (b"host", b"\xff"),
)


@pytest.fixture(params=["sqlite", "postgres"])
async def client(
    request: pytest.FixtureRequest, make_place: Callable[[str], Place]
) -> AsyncIterator[httpx2.AsyncClient]:
    jobs = make_jobs(make_place(request.param).store)
    async with jobs, jobs.running(WorkerSettings(queues={"nobody's": 1})):  # makes the tables
        never_started = WorkerProcess("memory://", pace_seconds=0, say=print)
        web = make_web(jobs, Receiver(), never_started)
        transport = httpx2.ASGITransport(app=web, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.get("/passports")).json() == []
            yield client


async def test_no_request_is_answered_by_5xx(client: httpx2.AsyncClient) -> None:
    wrong = []
    for method, path, options in requests():
        answer = await client.request(method, path, **options)
        if answer.status_code >= 500:
            content = options.get("content", b"")[:40]
            wrong.append(f"{method} {path[:80]} {content!r} {options.get('headers')}"[:300])
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)
