"""The API dies by SIGKILL while it submits, cancels and redrives: what was done is told."""

import asyncio
from collections import Counter
from uuid import UUID

import httpx2
import msgspec
import pytest

from gantline import Gantline
from gantline.contract.domain_event import ALL_EVENTS
from gantline.contract.query import JobFilter
from gantline.contract.webhook import WebhookSpec
from tests.servers.api import ApiProcess
from tests.servers.receiver import Receiver
from tests.webhooks.shop import settings
from tests.webhooks.test_kills import worker

pytestmark = [pytest.mark.wide, pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]

TENANT = "acme"  # the operator's
TOLD = ("completed", "cancelled", "redriven")
CALLERS = 8


class Callers:
    """Submit, cancel and redrive without end, until the API is dead."""

    def __init__(self, api: ApiProcess) -> None:
        self._api = api
        self._answered = asyncio.Condition()
        self.answers = Counter[str]()
        self.accepted: set[UUID] = set()

    async def until_dead(self) -> None:
        async with httpx2.AsyncClient(base_url=self._api.url) as client:
            await asyncio.gather(*(self._call(client) for _ in range(CALLERS)))

    async def has_answered(self, what: str, number: int) -> None:
        async with self._answered:
            await self._answered.wait_for(lambda: self.answers[what] >= number)

    async def _call(self, client: httpx2.AsyncClient) -> None:
        try:
            while True:
                body = {"jobType": "ship", "payload": 7}
                accepted = await self._post(client, "submit", "/api/jobs", body)
                job_id = UUID(accepted["jobId"])
                self.accepted.add(job_id)
                await self._post(client, "cancel", f"/api/jobs/{job_id}/cancel")
                await self._post(client, "redrive", f"/api/jobs/{job_id}/redrive")
        except httpx2.TransportError:
            return

    async def _post(
        self, client: httpx2.AsyncClient, what: str, path: str, body: object = None
    ) -> dict[str, str]:
        who = {"authorization": "Bearer operator"}
        response = await client.post(path, json=body, headers=who)
        assert response.status_code in (200, 202), response.text
        async with self._answered:
            self.answers[what] += 1
            self._answered.notify_all()
        answer: dict[str, str] = response.json()
        return answer


async def test_whatever_the_api_was_doing_when_it_died_its_outcomes_arrive(
    url: str, receiver: Receiver
) -> None:
    jobs = Gantline(url, webhooks=settings())
    assert jobs.webhooks is not None
    async with jobs:
        spec = WebhookSpec(url=receiver.url(), event_types=(ALL_EVENTS,), concurrency=20)
        await jobs.webhooks.create(spec, tenant_id=TENANT, actor="")
    api = ApiProcess("tests.webhooks.served_shop:api", GANTLINE_STORE=url)
    accepted: set[UUID] = set()
    try:
        for what, number in (("submit", 3), ("cancel", 11), ("redrive", 17)):
            await asyncio.to_thread(api.start)
            callers = Callers(api)
            calling = asyncio.create_task(callers.until_dead())
            await callers.has_answered(what, number)
            await asyncio.to_thread(api.kill)
            await calling
            accepted |= callers.accepted
    finally:
        api.close()
    assert await worker(url) == ""
    async with jobs:
        job_filter = JobFilter(tenant_id=TENANT, job_types=frozenset({"ship"}))
        page = await jobs.store.find(job_filter, limit=1000)
        assert page.next is None
        ids = {job.job.job_id for job in page.items}
        happened = {
            (one, entry.version, f"job.{entry.event}")
            for one in ids
            for entry in await jobs.store.history(one, tenant_id=TENANT)
            if entry.event in TOLD
        }
    assert accepted <= ids, "what was accepted is there"
    assert Counter(kind for _, _, kind in happened).keys() == {f"job.{one}" for one in TOLD}
    assert {_told(one.body) for one in receiver.received} == happened


def _told(body: bytes) -> tuple[UUID, int, str]:
    event = msgspec.json.decode(body)
    return UUID(event["data"]["jobId"]), event["data"]["version"], event["type"]
