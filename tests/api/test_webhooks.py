"""Webhooks over HTTP: who may, what is shown, what is audited, and never a secret twice."""

import json
from typing import Any
from uuid import uuid4

import pytest

from gantline import Gantline
from gantline.contract.outcome import ErrorInfo, Failure, Success
from gantline.webhooks.delivery import AttemptResult
from tests.api.application import AuditKept, ByName
from tests.api.conftest import Asker, asker_of
from tests.api.playing import run_all

URL = "https://hooks.example.com/gantline"


async def made(ask: Asker, who: str = "operator", **spec: Any) -> dict[str, Any]:
    response = await ask(who, "POST", "/api/webhooks", {"url": URL, **spec})
    assert response.status_code == 201, response.text
    issued: dict[str, Any] = response.json()
    where = f"/api/webhooks/{issued['webhook']['webhookId']}"
    assert response.headers["location"] == where
    return issued


async def test_an_id_that_is_no_webhook_of_the_tenant_is_audited(
    ask: Asker, audit: AuditKept
) -> None:
    path = f"/api/webhooks/{(await made(ask))['webhook']['webhookId']}"
    for method, where, operation in (
        ("GET", path, "getWebhook"),
        ("GET", f"{path}/deliveries/{uuid4()}", "getDelivery"),
        ("DELETE", path, "deleteWebhook"),
    ):
        audit.entries.clear()
        assert (await ask("eve", method, where)).status_code == 404
        hidden = audit.entries[-1]
        assert (hidden.actor, hidden.actor_tenant) == ("user:eve", "evil")
        assert (hidden.operation, hidden.outcome, hidden.what) == (operation, "hidden", where)
        assert sum(one.outcome == "hidden" for one in audit.entries) == 1


async def test_a_webhook_from_its_making_to_its_end(ask: Asker) -> None:
    issued = await made(ask, description="the warehouse", jobTypes=["mail"])
    secret, webhook = issued["secret"], issued["webhook"]
    assert secret.startswith("whsec_")
    assert webhook["status"] == "enabled"
    assert (webhook["createdBy"], webhook["updatedBy"]) == ("user:operator", "user:operator")
    path = f"/api/webhooks/{webhook['webhookId']}"
    assert (await ask("operator", "GET", path)).json() == webhook
    assert (await ask("admin", "GET", "/api/webhooks")).json() == {"items": [webhook]}

    changed = await ask("operator", "PUT", path, {"url": URL + "/2", "format": "bpc"})
    assert changed.json()["url"] == URL + "/2"
    assert changed.json()["jobTypes"] == [], "what is not named is as it is by default"

    assert (await ask("admin", "PUT", path, {"url": URL})).json()["updatedBy"] == "user:admin"
    rotated = (await ask("operator", "POST", f"{path}/rotate?overlapSeconds=60")).json()
    assert rotated["webhook"]["updatedBy"] == "user:operator"
    assert rotated["secret"] != secret
    assert rotated["webhook"]["oldSecretUntil"] == "2026-01-01T12:01:00Z"

    disabled = (await ask("operator", "POST", f"{path}/disable")).json()
    assert (disabled["status"], disabled["statusReason"]) == (
        "disabled",
        "Disabled by user:operator.",
    )
    assert (await ask("operator", "POST", f"{path}/enable")).json()["status"] == "enabled"

    tested = await ask("operator", "POST", f"{path}/test")
    assert tested.status_code == 202
    delivery = await ask("operator", "GET", tested.headers["location"])
    assert delivery.json()["status"] == "PENDING"

    for text in ("listed", "one"):
        where = "/api/webhooks" if text == "listed" else path
        shown = (await ask("operator", "GET", where)).text
        assert secret not in shown
        assert rotated["secret"] not in shown
        assert "whsec_" not in shown
        assert "sealed" not in shown
        assert "salt" not in shown

    assert (await ask("operator", "DELETE", path)).status_code == 204
    gone = await ask("operator", "GET", path)
    assert gone.json()["errorCode"] == "WEBHOOK_NOT_FOUND"


async def test_a_webhook_comes_with_its_secret_which_nobody_is_shown(
    ask: Asker, audit: AuditKept, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    secret = "-".join(("the", "receivers", "own", "secret"))
    issued = await made(ask, secret=secret, description="moved here")
    assert (issued["secret"], issued["webhook"]["description"]) == ("", "moved here")
    path = f"/api/webhooks/{issued['webhook']['webhookId']}"
    for where in ("/api/webhooks", path):
        assert secret not in (await ask("operator", "GET", where)).text
    assert (await ask("operator", "PUT", path, {"url": URL, "secret": secret})).status_code == 422
    refused = await ask("viewer", "POST", "/api/webhooks", {"url": URL, "secret": secret})
    assert refused.status_code == 403
    bad = await ask("operator", "POST", "/api/webhooks", {"url": URL, "secret": "x" * 20 + " "})
    assert bad.json()["errors"][0]["pointer"] == "#/secret"
    assert "xxxx" not in bad.text
    assert secret not in repr(audit.entries) + caplog.text


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ({"url": "http://hooks.example.com/"}, "#/url"),
        ({"url": "https://127.0.0.1/"}, "#/url"),
        ({"url": "https://[::ffff:169.254.169.254]/"}, "#/url"),
        ({"url": "https://user:hunter2@hooks.example.com/"}, "#/url"),
        ({"url": URL, "eventTypes": ["job.exploded"]}, "#/eventTypes"),
        ({"url": URL, "eventTypes": []}, "#/eventTypes"),
        ({"url": URL, "jobTypes": [""]}, "#/jobTypes"),
        ({"url": URL, "headerPrefix": "X:\r\nEvil"}, "#/headerPrefix"),
        ({"url": URL, "headerPrefix": "Webhook"}, "#/headerPrefix"),
        ({"url": URL, "timeoutSeconds": 0}, "#/timeoutSeconds"),
        ({"url": URL, "timeoutSeconds": 61}, "#/timeoutSeconds"),
        ({"url": URL, "concurrency": 0}, "#/concurrency"),
        ({"url": URL, "retrySeconds": [-1]}, "#/retrySeconds/0"),
        ({"url": URL, "format": "xml"}, "#/format"),
        ({"url": URL, "description": "a\nb"}, "#/description"),
        ({"url": URL, "secret": "whsec_mine"}, "#/secret"),
        ({}, "#/url"),
    ],
)
async def test_what_cannot_be_a_webhook_is_refused(
    ask: Asker, spec: dict[str, Any], pointer: str
) -> None:
    webhook = (await made(ask))["webhook"]
    for method, path in (
        ("POST", "/api/webhooks"),
        ("PUT", f"/api/webhooks/{webhook['webhookId']}"),
    ):
        response = await ask("operator", method, path, spec)
        assert response.status_code == 422, response.text
        assert [one["pointer"] for one in response.json()["errors"]] == [pointer]
        assert "hunter2" not in response.text


OPERATIONS = [
    ("GET", "", None),
    ("POST", "", {"url": URL}),
    ("GET", "/{id}", None),
    ("PUT", "/{id}", {"url": URL}),
    ("POST", "/{id}/rotate", None),
    ("POST", "/{id}/enable", None),
    ("POST", "/{id}/disable", None),
    ("POST", "/{id}/test", None),
    ("POST", "/{id}/replay", {}),
    ("GET", "/{id}/deliveries", None),
    ("GET", "/{id}/deliveries/{delivery}", None),
    ("POST", "/{id}/deliveries/{delivery}/replay", None),
    ("DELETE", "/{id}", None),
]


@pytest.mark.parametrize(("method", "path", "body"), OPERATIONS)
async def test_only_who_may_manage_webhooks_can_do_anything(
    ask: Asker, audit: AuditKept, method: str, path: str, body: Any
) -> None:
    webhook_id = (await made(ask))["webhook"]["webhookId"]
    tested = await ask("operator", "POST", f"/api/webhooks/{webhook_id}/test")
    delivery_id = tested.json()["deliveryId"]
    where = "/api/webhooks" + path.format(id=webhook_id, delivery=delivery_id)
    audit.entries.clear()
    assert (await ask(None, method, where, body)).status_code == 401
    for who in ("alice", "viewer", "mailer", "canceller"):
        assert (await ask(who, method, where, body)).status_code == 403, who
        assert audit.outcomes()[-1] == (f"{_id(who)}", "webhooks:manage", "forbidden")
    # Another tenant finds nothing of it, also where he names the tenant.
    other = await ask("eve", method, where, body)
    if "{id}" in path and "deliveries" not in path:
        assert other.json()["errorCode"] == "WEBHOOK_NOT_FOUND"
    elif "{delivery}" in path:
        assert other.status_code == 404
    elif "deliveries" in path:
        assert other.json()["items"] == []
    named = await ask("eve", method, f"{where}?tenantId=acme", body)
    assert named.status_code == 404
    assert audit.outcomes()[-1] == ("user:eve", "webhooks:manage", "hidden")
    # Who operates the installation may name it.
    system = await ask("system", method, f"{where}?tenantId=acme", body)
    assert system.status_code < 300 or system.json()["errorCode"] == "ILLEGAL_TRANSITION"


def _id(who: str) -> str:
    return {"mailer": "key:mailer", "canceller": "key:canceller"}.get(who, f"user:{who}")


async def test_what_is_changed_is_audited_and_looking_is_not(ask: Asker, audit: AuditKept) -> None:
    webhook_id = (await made(ask))["webhook"]["webhookId"]
    await ask("operator", "GET", f"/api/webhooks/{webhook_id}")
    await ask("operator", "GET", "/api/webhooks")
    await ask("operator", "POST", f"/api/webhooks/{webhook_id}/rotate?overlapSeconds=60")
    delivery = f"deliveries/{uuid4()}"
    await ask("operator", "POST", f"/api/webhooks/{webhook_id}/{delivery}/replay")
    wanted = {"status": "DELIVERED", "limit": 7, "dryRun": True}
    await ask("operator", "POST", f"/api/webhooks/{webhook_id}/replay", wanted)
    await ask("operator", "DELETE", f"/api/webhooks/{webhook_id}")
    assert [(one.outcome, one.operation, one.what) for one in audit.entries] == [
        ("allowed", "createWebhook", "webhook"),
        ("allowed", "rotateWebhook", f"webhook:{webhook_id}"),
        ("allowed", "replayDelivery", f"webhook:{webhook_id}"),
        ("hidden", "replayDelivery", f"/api/webhooks/{webhook_id}/{delivery}/replay"),
        ("allowed", "replayDeliveries", f"webhook:{webhook_id}"),
        ("allowed", "deleteWebhook", f"webhook:{webhook_id}"),
    ]
    created, rotated, one, _, many, _ = (entry.details for entry in audit.entries)
    assert created == {"host": "hooks.example.com"}
    assert rotated == {"overlapSeconds": 60.0}
    assert f"deliveries/{one['deliveryId']}" == delivery
    assert many["filter"] | wanted == many["filter"], "which, and that none was sent"
    assert "whsec_" not in repr(audit.entries)


async def test_deliveries_are_listed_shown_and_replayed(ask: Asker, jobs: Gantline) -> None:
    webhook_id = (await made(ask))["webhook"]["webhookId"]
    path = f"/api/webhooks/{webhook_id}"
    tried = AttemptResult(http_status=404, latency_seconds=0.25, response_body="who are you?")
    for outcome in (
        Failure(ErrorInfo("UPSTREAM_REFUSED", "The receiver answered 404.", tried.text()), False),
        Success(AttemptResult(http_status=200, latency_seconds=0.1).text().encode()),
        None,
    ):
        await ask("operator", "POST", f"{path}/test")
        if outcome is not None:
            await run_all(jobs, outcome)
    first = (await ask("operator", "GET", f"{path}/deliveries?limit=2")).json()
    assert len(first["items"]) == 2
    cursor = first["nextCursor"]
    second = (await ask("operator", "GET", f"{path}/deliveries?limit=2&cursor={cursor}")).json()
    assert second["nextCursor"] is None
    statuses = [one["status"] for one in first["items"] + second["items"]]
    assert sorted(statuses) == ["DELIVERED", "FAILED", "PENDING"]
    by_status = {
        status: (await ask("operator", "GET", f"{path}/deliveries?status={status}")).json()["items"]
        for status in ("PENDING", "DELIVERED", "FAILED")
    }
    assert [len(items) for items in by_status.values()] == [1, 1, 1]
    (failed,) = by_status["FAILED"]
    assert (failed["httpStatus"], failed["attempts"]) == (404, 1)
    whole = (await ask("operator", "GET", f"{path}/deliveries/{failed['deliveryId']}")).json()
    assert json.loads(whole["body"])["type"] == "webhook.test"
    (attempt,) = whole["tries"]
    assert attempt["responseBody"] == "who are you?"
    assert attempt["latencySeconds"] == 0.25

    replayed = await ask("operator", "POST", f"{path}/deliveries/{failed['deliveryId']}/replay")
    assert replayed.status_code == 202
    assert replayed.json()["status"] == "PENDING"
    again = await ask("operator", "POST", f"{path}/deliveries/{failed['deliveryId']}/replay")
    assert again.json()["errorCode"] == "ILLEGAL_TRANSITION"
    report = await ask("operator", "POST", f"{path}/replay", {"status": "DELIVERED"})
    assert report.json() == {"dryRun": False, "matching": 1, "replayed": 1, "more": False}
    assert (
        await ask("operator", "POST", f"{path}/replay", {"status": "PENDING"})
    ).status_code == 409


async def test_what_the_receiver_said_is_only_for_who_manages_webhooks(
    ask: Asker, jobs: Gantline
) -> None:
    webhook_id = (await made(ask))["webhook"]["webhookId"]
    said = AttemptResult(
        http_status=500, latency_seconds=0.1, response_body="password: hunter2"
    ).text()
    failure = Failure(ErrorInfo("UPSTREAM_ERROR", "The receiver answered 500.", said), False)
    for outcome in (failure, Success(said.encode())):
        tested = (await ask("operator", "POST", f"/api/webhooks/{webhook_id}/test")).json()
        await run_all(jobs, outcome)
        for path in ("", "/status", "/history", "/attempts", "/events"):
            shown = await ask("viewer", "GET", f"/api/jobs/{tested['deliveryId']}{path}")
            assert shown.status_code == 200
            assert "hunter2" not in shown.text
        listed = await ask("viewer", "GET", "/api/jobs?internal=true")
        assert tested["deliveryId"] in listed.text
        assert "hunter2" not in listed.text
        where = f"/api/webhooks/{webhook_id}/deliveries/{tested['deliveryId']}"
        assert "hunter2" in (await ask("operator", "GET", where)).text


async def test_a_delivery_cannot_be_submitted(ask: Asker) -> None:
    body = {"jobType": "gantline.webhook-delivery", "payload": {}}
    refused = await ask("admin", "POST", "/api/jobs", body)
    assert refused.json()["errorCode"] == "UNKNOWN_JOB_TYPE"
    types = (await ask("admin", "GET", "/api/job-types")).text
    assert "gantline." not in types


async def test_a_job_of_the_tenant_that_is_no_delivery_is_not_found_as_one(
    ask: Asker,
) -> None:
    webhook_id = (await made(ask))["webhook"]["webhookId"]
    job = await ask(
        "operator",
        "POST",
        "/api/jobs",
        {"jobType": "mail", "payload": "x", "subjectId": webhook_id},
    )
    path = f"/api/webhooks/{webhook_id}/deliveries/{job.json()['jobId']}"
    assert (await ask("operator", "GET", path)).json()["errorCode"] == "JOB_NOT_FOUND"
    other = (await made(ask))["webhook"]["webhookId"]
    tested = (await ask("operator", "POST", f"/api/webhooks/{webhook_id}/test")).json()
    path = f"/api/webhooks/{other}/deliveries/{tested['deliveryId']}"
    assert (await ask("operator", "GET", path)).status_code == 404
    assert (await ask("operator", "GET", f"/api/webhooks/{uuid4()}")).status_code == 404
    assert (await ask("operator", "GET", "/api/webhooks/no-id")).status_code == 400


async def test_a_tenant_may_have_so_many_and_no_more(ask: Asker) -> None:
    for _ in range(100):
        await made(ask)
    refused = await ask("operator", "POST", "/api/webhooks", {"url": URL})
    assert refused.status_code == 422
    assert (await ask("eve", "POST", "/api/webhooks", {"url": URL})).status_code == 201


async def test_where_there_is_no_key_webhooks_are_off() -> None:
    async with Gantline("memory://") as jobs, asker_of(jobs.api(authenticator=ByName())) as ask:
        for method, path, body in OPERATIONS:
            where = "/api/webhooks" + path.format(id=uuid4(), delivery=uuid4())
            response = await ask("operator", method, where, body)
            assert response.json()["errorCode"] == "WEBHOOKS_OFF"
            assert (await ask("viewer", method, where, body)).status_code == 403
