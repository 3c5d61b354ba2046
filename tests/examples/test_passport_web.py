"""The battery passport's routes: what is taken, what is told to whom, and what is refused."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from examples.battery_passport.assembly import make_jobs
from examples.battery_passport.demo_worker import WorkerProcess
from examples.battery_passport.documents import LARGEST_DOCUMENT
from examples.battery_passport.receiver import Receiver
from examples.battery_passport.web import make_web
from gantline.testing import JobsTest
from tests.examples.passports import documents

ORIGIN = "http://127.0.0.1"


class Visitor:
    """Somebody with a browser, at the desk of a tenant; the worker is played by the test."""

    def __init__(self, client: httpx2.AsyncClient, kit: JobsTest) -> None:
        self.client = client
        self.kit = kit

    async def get(self, path: str, tenant: str = "aurora", **options: Any) -> httpx2.Response:
        return await self.client.get(path, headers={"cookie": f"tenant={tenant}"}, **options)

    async def send_sample(self) -> str:
        """Send one in, have it compiled, and tell the version."""
        answer = await self.client.post("/samples/nordcell-ev")
        assert answer.status_code == 202
        await self.kit.drain()
        (made,) = (await self.get("/passports")).json()
        return str(made["passport_version_id"])


@pytest.fixture
async def visitor() -> AsyncIterator[Visitor]:
    jobs = make_jobs("memory://")
    async with JobsTest(jobs) as kit:
        await kit.drain()
        never_started = WorkerProcess("memory://", pace_seconds=0, say=print)
        transport = httpx2.ASGITransport(app=make_web(jobs, Receiver(), never_started))
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            yield Visitor(client, kit)


async def test_a_document_is_answered_by_202_and_the_url_of_its_status(visitor: Visitor) -> None:
    (file, *_) = documents("nordcell-ev")
    sent: dict[str, Any] = {"content": file.read_bytes(), "headers": {"x-correlation-id": "mine"}}
    answer = await visitor.client.post("/documents?name=bom.csv", **sent)
    assert (answer.status_code, answer.json()["duplicate"]) == (202, False)
    await visitor.kit.drain()
    status = (await visitor.get(answer.headers["location"])).json()
    assert (status["status"], status["correlationId"]) == ("Completed", "mine")
    assert (await visitor.client.post("/documents", **sent)).json()["duplicate"] is True


async def test_another_tenant_sees_nothing_of_it(visitor: Visitor) -> None:
    version = await visitor.send_sample()
    code = (await visitor.get(f"/passports/{version}/passport.json")).json()["qr"]
    for path in (f"/passports/{version}", f"/passports/{version}/qr.png"):
        assert (await visitor.get(path)).status_code == 200
        assert (await visitor.get(path, tenant="borealis")).status_code == 404
    checks = (await visitor.get("/verify", params={"code": code})).json()
    assert [check["holds"] for check in checks] == [True] * 5
    checks = (await visitor.get("/verify", "borealis", params={"code": code})).json()
    assert [check["holds"] for check in checks] == [False]
    assert (await visitor.get("/passports", tenant="borealis")).json() == []
    jobs = await visitor.get("/api/jobs", tenant="borealis")
    assert jobs.json()["items"] == []


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/documents", b"", 400),
        ("/documents", b" " * (LARGEST_DOCUMENT + 1), 413),
        ("/samples/unknown", b"", 404),
        ("/scan", b"", 400),
        ("/scan?width=a&height=1", b"", 400),
        ("/scan?width=2&height=2", b"123", 400),
        ("/scan?width=-1&height=-1", b"1", 400),
        ("/receiver/aurora", b"{}", 401),
        ("/receiver/nobody", b"{}", 401),
    ],
)
async def test_what_makes_no_sense_is_refused(
    visitor: Visitor, path: str, body: bytes, status: int
) -> None:
    assert (await visitor.client.post(path, content=body)).status_code == status


async def test_a_picture_without_a_code_has_no_text(visitor: Visitor) -> None:
    answer = await visitor.client.post("/scan?width=30&height=30", content=b"\xff" * 900)
    assert answer.json() == {"text": None}


async def test_a_page_elsewhere_changes_nothing(visitor: Visitor) -> None:
    answer = await visitor.client.post(
        "/samples/nordcell-ev", headers={"sec-fetch-site": "cross-site"}
    )
    assert answer.status_code == 403


async def test_the_desk_answers_to_the_names_of_this_host_only(visitor: Visitor) -> None:
    """Else a page elsewhere could reach it by a name of its own that leads here."""
    answer = await visitor.client.get("/", headers={"host": "evil.example"})
    assert answer.status_code == 400


async def test_the_page_runs_no_script_but_its_own(visitor: Visitor) -> None:
    answer = await visitor.client.get("/")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "<script>" not in answer.text
    assert "style=" not in answer.text
