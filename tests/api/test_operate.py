"""Operating over HTTP: queues, job types and statistics."""

from datetime import timedelta
from typing import Any

import pytest

from gantline import Gantline
from gantline.auth.action import Action
from gantline.auth.authorizer import DefaultAuthorizer, Target
from gantline.auth.principal import Principal
from gantline.contract.query import Visibility
from gantline.testing.clock import FakeClock
from gantline.testing.factories import register_sessions
from tests.api.application import AuditKept, ByName
from tests.api.conftest import Asker, asker_of
from tests.api.playing import PERMANENT, claim, run_all
from tests.api.test_read import submitted
from tests.api.test_submit import DOCUMENT, MAIL, submit


async def read(ask: Asker, path: str, who: str = "operator") -> Any:
    response = await ask(who, "GET", path)
    assert response.status_code == 200, response.text
    return response.json()


async def test_queues_are_counted_for_the_tenant_alone(
    ask: Asker, jobs: Gantline, clock: FakeClock
) -> None:
    await submitted(ask)
    await submitted(ask, {**DOCUMENT, "payload": {"documentId": "x"}, "delaySeconds": 3600})
    await submitted(ask, MAIL, "eve")
    clock.advance(timedelta(seconds=10))
    (queue,) = (await read(ask, "/api/queues"))["items"]
    assert (queue["queue"], queue["queued"], queue["scheduled"]) == ("documents", 2, 1)
    assert (queue["oldestAgeSeconds"], queue["paused"], queue["maxDepth"]) == (10, False, None)
    (queue,) = (await read(ask, "/api/queues?tenantId=evil", "system"))["items"]
    assert (queue["queue"], queue["queued"]) == ("default", 1)


async def test_a_queue_is_paused_and_resumed(ask: Asker, jobs: Gantline, audit: AuditKept) -> None:
    await submitted(ask)
    response = await ask("system", "POST", "/api/queues/documents/pause")
    assert response.json() == {
        "queue": "documents",
        "paused": True,
        "maxDepth": None,
        "maxDepthPerTenant": None,
    }
    assert jobs.switches.paused_queues == {"documents"}
    (entry,) = [one for one in audit.entries if one.action == "queues:manage"]
    assert (entry.actor, entry.outcome, entry.what) == ("user:system", "allowed", "queue:documents")
    response = await ask("system", "POST", "/api/queues/documents/resume")
    assert response.json()["paused"] is False


async def test_a_queue_with_a_slash_in_its_name_is_reached(ask: Asker, jobs: Gantline) -> None:
    response = await ask("system", "POST", "/api/queues/a%2Fb%20c/pause")
    assert response.json()["queue"] == "a/b c"
    assert (await ask("system", "POST", "/api/queues//pause")).status_code == 400
    assert (await ask("system", "POST", "/api/queues/a%00b/pause")).status_code == 400


async def test_a_queue_is_capped(ask: Asker, jobs: Gantline) -> None:
    path = "/api/queues/documents/depth-cap"
    response = await ask("system", "PUT", path, {"maxDepth": 0})
    assert response.json()["maxDepth"] == 0
    assert (await submit(ask)).status_code == 503
    (queue,) = (await read(ask, "/api/queues"))["items"]
    assert (queue["maxDepth"], queue["queued"]) == (0, 0)
    for body in ({}, {"maxDepth": -1}, {"maxDepth": "1"}, {"maxDepth": 1, "x": 1}):
        assert (await ask("system", "PUT", path, body)).status_code == 422
    await ask("system", "PUT", path, {"maxDepth": None})
    assert (await submit(ask)).status_code == 202


async def test_a_queue_is_capped_for_each_tenant(ask: Asker, jobs: Gantline) -> None:
    path = "/api/queues/documents/depth-cap"
    capped = await ask("system", "PUT", path, {"maxDepth": None, "maxDepthPerTenant": 0})
    assert (capped.json()["maxDepth"], capped.json()["maxDepthPerTenant"]) == (None, 0)
    assert (await submit(ask)).json()["errorCode"] == "QUEUE_FULL"
    (queue,) = (await read(ask, "/api/queues"))["items"]
    assert (queue["queue"], queue["maxDepthPerTenant"]) == ("documents", 0)
    kept = await ask("system", "PUT", path, {"maxDepth": 9})
    assert (kept.json()["maxDepth"], kept.json()["maxDepthPerTenant"]) == (9, 0)
    for cap in (-1, "1", 10**10):
        body = {"maxDepth": 1, "maxDepthPerTenant": cap}
        assert (await ask("system", "PUT", path, body)).status_code == 422
    await ask("system", "PUT", path, {"maxDepth": 9, "maxDepthPerTenant": None})
    assert (await submit(ask)).status_code == 202


async def test_how_a_queue_is_switched_is_told_to_those_who_use_it(
    ask: Asker, jobs: Gantline
) -> None:
    """A name may be another tenant's own; those of declared types are nobody's secret."""
    await submitted(ask, {**MAIL, "queue": "big-deal", "tenantId": "evil"}, "system")
    await jobs.switches.pause_queue("big-deal")
    await jobs.switches.cap_queue("customer-x", 5)
    await jobs.switches.pause_queue("documents")

    async def visible(who: str) -> list[str]:
        return [one["queue"] for one in (await read(ask, "/api/queues", who))["items"]]

    for who in ("viewer", "operator", "admin"):
        assert await visible(who) == ["documents"]
    assert await visible("eve") == ["big-deal", "documents"]
    assert await visible("mail-viewer") == []
    assert await visible("system") == ["big-deal", "customer-x", "documents"]


@pytest.mark.parametrize("who", ["alice", "viewer", "operator", "admin", "eve"])
async def test_what_touches_all_tenants_needs_who_operates_the_installation(
    ask: Asker, jobs: Gantline, who: str
) -> None:
    for verb in ("pause", "resume"):
        refused = await ask(who, "POST", f"/api/queues/documents/{verb}")
        assert refused.status_code == 403
        assert "--system" in refused.json()["detail"]
    for verb in ("disable", "enable", "pause", "resume"):
        assert (await ask(who, "POST", f"/api/job-types/mail/{verb}")).status_code == 403
    body = {"maxDepth": 1}
    assert (await ask(who, "PUT", "/api/queues/a/depth-cap", body)).status_code == 403
    assert not jobs.switches.paused_queues
    assert not jobs.switches.depth_caps
    assert not jobs.switches.disabled_types


async def test_job_types_are_shown_with_their_schemas(ask: Asker) -> None:
    types = {one["jobType"]: one for one in (await read(ask, "/api/job-types", "alice"))["items"]}
    assert set(types) == {"document-indexing", "mail", "owned", "sweep"}
    document = types["document-indexing"]
    assert document["aliases"] == ["ai-indexing"]
    assert (document["queue"], document["maxAttempts"], document["timeoutSeconds"]) == (
        "documents",
        3,
        30,
    )
    properties = document["payloadSchema"]["$defs"]["Document"]["properties"]
    assert set(properties) == {"documentId", "rowVersion", "flags"}
    assert types["mail"]["maxDepth"] == 5
    one = await read(ask, "/api/job-types/mail", "alice")
    assert one == types["mail"]
    assert await read(ask, "/api/job-types/ai-indexing", "alice") == document
    assert (await ask("alice", "GET", "/api/job-types/nonsense")).status_code == 404


async def test_who_is_bound_to_some_types_sees_those(ask: Asker) -> None:
    (only,) = (await read(ask, "/api/job-types", "mailer"))["items"]
    assert only["jobType"] == "mail"
    assert (await ask("mailer", "GET", "/api/job-types/sweep")).status_code == 403
    assert (await ask("mailer", "GET", "/api/job-types/ai-indexing")).status_code == 403
    assert (await ask("mailer", "GET", "/api/job-types/nonsense")).status_code == 403
    assert (await ask("submitter", "GET", "/api/job-types")).status_code == 403


async def test_the_kill_switch(ask: Asker, jobs: Gantline, audit: AuditKept) -> None:
    response = await ask("system", "POST", "/api/job-types/mail/disable")
    assert response.json() == {"jobType": "mail", "disabled": True, "paused": False}
    assert (await submit(ask, MAIL)).status_code == 503
    assert (await read(ask, "/api/job-types/mail"))["disabled"] is True
    entries = [one for one in audit.entries if one.action == "types:manage"]
    assert [(one.actor, one.what) for one in entries] == [("user:system", "type:mail")]
    await ask("system", "POST", "/api/job-types/mail/enable")
    assert (await submit(ask, MAIL)).status_code == 202
    paused = await ask("system", "POST", "/api/job-types/mail/pause")
    assert paused.json()["paused"] is True
    assert jobs.switches.running(("mail", "sweep")) == ("sweep",)
    await ask("system", "POST", "/api/job-types/mail/resume")
    assert (await ask("system", "POST", "/api/job-types/nonsense/pause")).status_code == 404


async def test_statistics_count_every_status(ask: Asker, jobs: Gantline, clock: FakeClock) -> None:
    await submitted(ask, MAIL)
    await run_all(jobs)
    await submitted(ask)
    await run_all(jobs, PERMANENT)
    await submitted(ask, {"jobType": "sweep"})
    await claim(jobs)
    await submitted(ask, {**MAIL, "payload": "b"})
    await submitted(ask, {**MAIL, "payload": "c", "delaySeconds": 60})
    await submitted(ask, MAIL, "eve")
    clock.advance(timedelta(seconds=5))
    stats = await read(ask, "/api/stats", "viewer")
    counted = {key: stats[key] for key in ("queued", "scheduled", "running", "completed", "failed")}
    assert counted == {"queued": 2, "scheduled": 1, "running": 1, "completed": 1, "failed": 1}
    assert (stats["poisoned"], stats["cancelled"], stats["oldestAgeSeconds"]) == (0, 0, 5)
    assert {lane["jobType"] for lane in stats["lanes"]} == {"mail", "sweep", "document-indexing"}
    scale = await read(ask, "/api/stats/scale", "viewer")
    assert scale == {"backlog": 1, "running": 1, "demand": 2, "oldestAgeSeconds": 5}
    scale = await read(ask, "/api/stats/scale?jobType=mail&queue=default", "viewer")
    assert (scale["backlog"], scale["running"]) == (1, 0)
    assert (await read(ask, "/api/stats/scale?queue=none", "viewer"))["demand"] == 0


async def test_of_too_many_queues_the_fullest_are_told(ask: Asker, jobs: Gantline) -> None:
    """However many names there are: the numbers are of all, and what is left out is counted."""
    queues = [f"invented-{n:03}" for n in range(300)] + ["invented-007", "invented-250"]
    batch = [{"jobType": "sweep", "queue": queue, "tenantId": "acme"} for queue in queues]
    response = await ask("system", "POST", "/api/jobs/batch", {"jobs": batch})
    assert response.json()["rejected"] == 0
    stats = await read(ask, "/api/stats")
    assert (stats["queued"], len(stats["lanes"]), stats["lanesOmitted"]) == (302, 200, 100)
    names = [lane["queue"] for lane in stats["lanes"]]
    assert names == sorted(names)
    listed = await read(ask, "/api/queues")
    assert (len(listed["items"]), listed["omitted"]) == (200, 100)
    for path, items in (("/api/stats?limit=2", "lanes"), ("/api/queues?limit=2", "items")):
        shown = [one["queue"] for one in (await read(ask, path))[items]]
        assert shown == ["invented-007", "invented-250"]
    (lane,) = (await read(ask, "/api/stats?queue=invented-299"))["lanes"]
    assert lane["queued"] == 1
    (queue,) = (await read(ask, "/api/queues?queue=invented-299"))["items"]
    assert queue["queue"] == "invented-299"
    whole = await read(ask, "/api/stats?limit=1000&jobType=sweep")
    assert (len(whole["lanes"]), whole["lanesOmitted"]) == (300, 0)
    for limit in ("0", "1001", "x"):
        assert (await ask("operator", "GET", f"/api/stats?limit={limit}")).status_code == 400


async def test_who_is_bound_to_some_types_is_told_the_numbers_of_those(
    ask: Asker, jobs: Gantline
) -> None:
    await submitted(ask)
    await submitted(ask, MAIL)
    await run_all(jobs, PERMANENT)
    await submitted(ask, {"jobType": "sweep"})
    await submitted(ask, {**DOCUMENT, "payload": {"documentId": "d2"}})
    await submitted(ask, {**MAIL, "payload": "b"})
    stats = await read(ask, "/api/stats", "mail-viewer")
    assert [lane["jobType"] for lane in stats["lanes"]] == ["mail"]
    assert (stats["queued"], stats["failed"]) == (1, 1)
    assert (await read(ask, "/api/stats/scale", "mail-viewer"))["demand"] == 1
    assert (await read(ask, "/api/stats/scale?jobType=sweep", "mail-viewer"))["demand"] == 0
    (queue,) = (await read(ask, "/api/queues", "mail-viewer"))["items"]
    assert (queue["queue"], queue["queued"]) == ("default", 1)
    dead = await read(ask, "/api/dead-letters/summary", "mail-viewer")
    assert (dead["total"], [one["jobType"] for one in dead["reasons"]]) == (1, ["mail"])


async def test_numbers_are_narrowed_by_the_scope_of_an_authorizer_of_ones_own(
    jobs: Gantline,
) -> None:
    """What it says of a tenant does not open what its scope leaves out."""

    class OnlyMail(DefaultAuthorizer):
        async def may(self, principal: Principal, action: Action, target: Target) -> bool:
            return True

        def scope(self, principal: Principal, action: Action) -> Visibility:
            return Visibility(tenant_id="acme", job_types=frozenset({"mail"}))

    async with asker_of(jobs.api(authenticator=ByName(), authorizer=OnlyMail())) as ask:
        await submitted(ask, MAIL, "alice")
        await submitted(ask, {"jobType": "sweep"}, "alice")
        stats = await read(ask, "/api/stats", "alice")
        assert [lane["jobType"] for lane in stats["lanes"]] == ["mail"]
        types = await read(ask, "/api/job-types", "alice")
        assert [one["jobType"] for one in types["items"]] == ["mail"]


@pytest.mark.parametrize("path", ["/api/stats", "/api/stats/scale", "/api/queues"])
async def test_numbers_over_all_jobs_need_a_role(ask: Asker, path: str) -> None:
    assert (await ask("alice", "GET", path)).status_code == 403
    assert (await ask("viewer", "GET", f"{path}?tenantId=evil")).status_code == 404
    assert (await ask("system", "GET", f"{path}?tenantId=evil")).status_code == 200


async def test_workers_are_listed_page_by_page_to_operators_of_the_installation(
    ask: Asker, jobs: Gantline
) -> None:
    names = [f"host-{number}" for number in range(5)]
    await register_sessions(jobs.store, *names)
    first = await read(ask, "/api/workers?limit=3", "system")
    (worker, *_) = first["items"]
    assert worker["sessionId"] == "host-0"
    assert {"host", "pid", "version", "startedAt", "lastSeenAt"} < worker.keys()
    assert {"queues", "jobTypes", "draining", "keyId"} < worker.keys()
    rest = await read(ask, f"/api/workers?limit=3&cursor={first['nextCursor']}", "system")
    assert [one["sessionId"] for one in first["items"] + rest["items"]] == names
    assert rest["nextCursor"] is None
    assert (await ask("operator", "GET", "/api/workers")).status_code == 403
    assert (await ask("system", "GET", "/api/workers?limit=0")).status_code == 400
    assert (await ask("system", "GET", "/api/workers?cursor=%C3%A4")).status_code == 400
