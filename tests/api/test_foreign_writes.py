"""Writes to what another tenant has: answered as if it were not there, without effect, audited."""

from typing import Any
from uuid import uuid4

import httpx2
import pytest

from gantline import Gantline
from gantline.auth import ApiKeys
from gantline.auth.api_key import KeyGrant, KeyState, new_key_id
from gantline.auth.peppers import Peppers
from gantline.contract.errors import KeyNotFound
from gantline.testing.clock import FakeClock
from tests.api.application import ByName, make_jobs
from tests.api.conftest import Asker, asker_of
from tests.api.playing import PERMANENT, run_all
from tests.api.test_schedules import NIGHTLY
from tests.api.test_submit import DOCUMENT, submit
from tests.api.test_webhooks import URL

WRITES = [
    ("deleteWebhook", "DELETE", "/api/webhooks/{webhook}", None),
    ("updateWebhook", "PUT", "/api/webhooks/{webhook}", {"url": URL}),
    ("rotateWebhook", "POST", "/api/webhooks/{webhook}/rotate", None),
    ("enableWebhook", "POST", "/api/webhooks/{webhook}/enable", None),
    ("disableWebhook", "POST", "/api/webhooks/{webhook}/disable", None),
    ("testWebhook", "POST", "/api/webhooks/{webhook}/test", None),
    ("replayDeliveries", "POST", "/api/webhooks/{webhook}/replay", {}),
    ("replayDelivery", "POST", "/api/webhooks/{webhook}/deliveries/{delivery}/replay", None),
    ("deleteSchedule", "DELETE", "/api/schedules/{schedule}", None),
    (
        "replaceSchedule",
        "PUT",
        "/api/schedules/{schedule}",
        {"jobType": "sweep", "everySeconds": 60},
    ),
    ("pauseSchedule", "POST", "/api/schedules/{schedule}/pause", None),
    ("resumeSchedule", "POST", "/api/schedules/{schedule}/resume", None),
    ("runSchedule", "POST", "/api/schedules/{schedule}/run", None),
    ("deleteJob", "DELETE", "/api/jobs/{job}", None),
    ("cancelJob", "POST", "/api/jobs/{job}/cancel", None),
    ("redriveJob", "POST", "/api/jobs/{job}/redrive", None),
    ("redriveEdited", "POST", "/api/jobs/{job}/edited-redrive", {}),
]


async def made(ask: Asker, jobs: Gantline) -> dict[str, str]:
    """What acme has: a webhook with a delivery, a schedule, a dead job."""
    webhook = (await ask("operator", "POST", "/api/webhooks", {"url": URL})).json()["webhook"]
    where = f"/api/webhooks/{webhook['webhookId']}"
    delivery = (await ask("operator", "POST", f"{where}/test")).json()["deliveryId"]
    await ask("operator", "POST", "/api/schedules", NIGHTLY)
    job = (await submit(ask, DOCUMENT, "alice")).json()["jobId"]
    await run_all(jobs, PERMANENT)
    ids = {"webhook": webhook["webhookId"], "delivery": delivery}
    return {**ids, "schedule": "nightly", "job": job}


async def shown(ask: Asker, things: dict[str, str]) -> list[Any]:
    """All of it, as acme's operator sees it."""
    paths = (
        "/api/webhooks/{webhook}",
        "/api/webhooks/{webhook}/deliveries",
        "/api/schedules/{schedule}",
        "/api/jobs?internal=true",
        "/api/jobs/{job}/history",
    )
    return [(await ask("operator", "GET", path.format(**things))).json() for path in paths]


def without(response: httpx2.Response, things: dict[str, str]) -> str:
    text = response.text.replace(response.json()["correlationId"], "")
    for one in things.values():
        text = text.replace(one, "IT")
    return text


async def test_a_write_to_anothers_thing_has_no_effect_and_is_audited(store_url: str) -> None:
    unknown = {name: str(uuid4()) for name in ("webhook", "delivery", "job")}
    unknown["schedule"] = "unheard-of"
    async with (
        make_jobs(store_url, FakeClock()) as jobs,
        asker_of(jobs.api(authenticator=ByName())) as ask,
    ):
        things = await made(ask, jobs)
        before = await shown(ask, things)
        chain = (await ask("admin", "GET", "/api/audit?limit=200")).json()
        for operation, method, path, body in WRITES:
            theirs = await ask("eve", method, path.format(**things), body)
            nobodys = await ask("eve", method, path.format(**unknown), body)
            assert theirs.status_code == 404, operation
            assert without(theirs, things) == without(nobodys, unknown), operation
            assert sorted(theirs.headers) == sorted(nobodys.headers), operation
        own = (await ask("eve", "GET", "/api/audit?limit=200")).json()["items"]
        denied = {one["type"] for one in own if one["payload"]["outcome"] == "hidden"}
        assert denied == {operation for operation, *_ in WRITES}
        for operation, method, path, body in WRITES:
            named = await ask("eve", method, path.format(**things) + "?tenantId=acme", body)
            nowhere = await ask("eve", method, path.format(**things) + "?tenantId=nowhere", body)
            assert named.status_code == nowhere.status_code, operation
            assert without(named, things) == without(nowhere, things), operation
        assert await shown(ask, things) == before
        assert (await ask("admin", "GET", "/api/audit?limit=200")).json() == chain


async def test_a_key_of_another_tenant_is_like_one_that_is_not_there(store_url: str) -> None:
    clock = FakeClock()
    async with make_jobs(store_url, clock) as jobs:
        keys = ApiKeys(jobs.store, Peppers.random(), clock=clock)
        theirs = (await keys.create(KeyGrant(name="ci", tenant_id="acme"))).key
        told = set()
        for key_id in (theirs.id, new_key_id()):
            for verb in (keys.get, keys.rotate, keys.revoke):
                with pytest.raises(KeyNotFound) as refused:
                    await verb(key_id, tenant_id="evil")
                told.add(str(refused.value))
        assert len(told) == 1
        kept = await keys.get(theirs.id, tenant_id="acme")
        assert (kept, kept.state) == (theirs, KeyState.ACTIVE)
        assert await keys.listed(tenant_id="evil") == []
