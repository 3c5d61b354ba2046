"""The audit trail over HTTP: what was done is there to be read, by whom it concerns."""

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from gantline import Gantline
from gantline.api.application import Api
from gantline.audit.chain import NAMESPACE, AuditChains, AuditEvent
from gantline.audit.verification import Verifier
from gantline.contract.errors import StoreUnavailable
from gantline.contract.records import RecordWrite
from gantline.testing.clock import FakeClock
from gantline.testing.conformance.bench import HOUR
from gantline.testing.faults import Call, intercepted
from tests.api.application import ByName
from tests.api.conftest import Asker, asker_of
from tests.api.test_submit import DOCUMENT, submit


@pytest.fixture
def api(jobs: Gantline) -> Api:
    """With the sink that one gets without asking for it."""
    return jobs.api(authenticator=ByName())


@pytest.fixture
async def done(ask: Asker) -> str:
    """A job that alice has cancelled, as an operator redrove it, and eve asked for it."""
    job_id: str = (await submit(ask, DOCUMENT, "alice")).json()["jobId"]
    await ask("alice", "POST", f"/api/jobs/{job_id}/cancel")
    await ask("operator", "POST", f"/api/jobs/{job_id}/redrive")
    await ask("eve", "GET", f"/api/jobs/{job_id}")
    await ask("bob", "GET", f"/api/jobs/{job_id}")
    await ask(None, "GET", f"/api/jobs/{job_id}")
    return job_id


async def listed(ask: Asker, who: str, query: str = "") -> list[dict[str, Any]]:
    response = await ask(who, "GET", f"/api/audit{query}")
    assert response.status_code == 200, response.text
    items: list[dict[str, Any]] = response.json()["items"]
    return items


def told(items: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(item["actor"], item["type"], item["payload"]["outcome"]) for item in items]


async def test_what_was_done_and_refused_is_kept_without_being_asked_for(
    ask: Asker, done: str
) -> None:
    items = await listed(ask, "admin")
    assert told(items) == [
        ("user:bob", "getJob", "forbidden"),
        ("user:operator", "redriveJob", "allowed"),
        ("user:alice", "cancelJob", "allowed"),
    ]
    assert [item["aggregate"] for item in items] == ["access", f"job:{done}", f"job:{done}"]
    assert "documentId" not in msgspec.json.encode(items).decode()


async def test_who_tried_is_in_his_own_tenants_trail_and_learns_nothing(
    ask: Asker, done: str
) -> None:
    (item,) = await listed(ask, "eve")
    assert told([item]) == [("user:eve", "getJob", "hidden")]
    assert item["payload"]["jobId"] == done
    assert not {"tenantId", "jobType", "subjectId"} & item["payload"].keys()
    assert "eve" not in str(await listed(ask, "admin"))


async def test_ids_that_a_redrive_names_and_may_not_are_audited(ask: Asker, done: str) -> None:
    """Also in a dry run: that reads as well."""
    nothing = str(uuid4())
    for who, body in (
        ("eve", {"jobIds": [done, nothing]}),
        ("eve", {"jobIds": [done], "dryRun": True}),
        ("bob", {"jobIds": [done]}),
    ):
        response = await ask(who, "POST", "/api/dead-letters/redrive", body)
        assert (response.status_code, response.json()["matching"]) == (200, 0)
    refused = [one for one in await listed(ask, "eve") if one["payload"]["outcome"] == "hidden"]
    assert refused[0]["type"] == "redriveDeadLetters"
    assert refused[0]["payload"]["jobId"] == done
    assert ("user:bob", "redriveDeadLetters", "forbidden") in told(await listed(ask, "admin"))


async def test_a_redrive_that_matches_nothing_is_audited(ask: Asker) -> None:
    body = {"jobTypes": ["mail"]}
    path = "/api/dead-letters/redrive"
    assert (await ask("operator", "POST", path, body)).json()["matching"] == 0
    (item,) = await listed(ask, "admin")
    assert told([item]) == [("user:operator", "redriveDeadLetters", "allowed")]
    assert item["payload"]["details"] == {"filter": {**body, "limit": 100}, "matching": 0}
    assert (await ask("operator", "POST", path, {**body, "dryRun": True})).status_code == 200
    assert len(await listed(ask, "admin")) == 1


async def test_ids_that_a_stream_names_and_may_not_are_audited(api: Api, done: str) -> None:
    async with asker_of(api) as ask:
        head = await ask("eve", "HEAD", f"/api/events?jobId={done}")
        assert head.status_code == 200
        types = told(await listed(ask, "eve"))
        assert types[0] == ("user:eve", "followJobs", "hidden")


async def test_who_could_not_be_told_is_in_no_tenants_trail(
    ask: Asker, jobs: Gantline, done: str
) -> None:
    assert await AuditChains(jobs.store).tenants() == ["", "acme", "evil"]


@pytest.mark.parametrize(
    ("who", "status"),
    [("alice", 403), ("viewer", 403), ("operator", 403), ("mailer", 403), (None, 401)],
)
async def test_only_admins_read_it(ask: Asker, who: str | None, status: int) -> None:
    response = await ask(who, "GET", "/api/audit")
    assert response.status_code == status


async def test_another_tenants_trail_is_for_the_system_alone(ask: Asker, done: str) -> None:
    for who in ("eve", "admin", "alice"):
        other = "acme" if who == "eve" else "evil"
        assert (await ask(who, "GET", f"/api/audit?tenantId={other}")).status_code == 404
    assert len(await listed(ask, "system", "?tenantId=evil")) == 2  # that eve tried is in it now
    assert len(await listed(ask, "system", "?tenantId=acme")) == 5  # and that the others did


async def test_it_is_filtered(ask: Asker, jobs: Gantline, clock: FakeClock, done: str) -> None:
    between = clock.now() + HOUR / 2
    clock.advance(HOUR)
    await ask("operator", "POST", f"/api/jobs/{done}/cancel")
    for query, versions in (
        (f"aggregate=job:{done}", [4, 2, 1]),
        ("aggregate=access", [3]),
        ("actor=user:operator", [4, 2]),
        ("action=cancelJob", [4, 1]),
        ("action=jobs:redrive", [2]),
        (f"since={between.isoformat().replace('+', '%2B')}", [4]),
        ("actor=user:alice&action=cancelJob", [1]),
        ("actor=nobody", []),
    ):
        assert [item["version"] for item in await listed(ask, "admin", f"?{query}")] == versions


async def test_it_comes_in_pages_that_fit_together(
    ask: Asker, jobs: Gantline, clock: FakeClock, done: str
) -> None:
    for number in range(5):
        await ask("system", "POST", f"/api/queues/q{number}/pause")
    everything = await listed(ask, "system")
    path, found = "/api/audit?limit=2", []
    while path:
        response = await ask("system", "GET", path)
        found += response.json()["items"]
        assert len(response.json()["items"]) <= 2
        link = response.headers.get("link", "")
        path = link.partition(">")[0].removeprefix("<")
    assert found == everything
    verifier = Verifier("default", now=clock.now())
    for item in found:
        verifier.add(msgspec.convert(item, AuditEvent))
    assert (verifier.finish().events, verifier.finish().findings) == (5, [])


@pytest.mark.parametrize("cursor", ["x", "AQ", "", "AgAAAAAAAAAB", "AQAAAAAAAAAA", "AQAAAAAAAAAB="])
async def test_a_cursor_that_is_none_is_refused(ask: Asker, cursor: str) -> None:
    response = await ask("admin", "GET", f"/api/audit?cursor={cursor}")
    assert (response.status_code, response.json()["errorCode"]) == (400, "INVALID_REQUEST")


async def test_switches_say_what_was_switched_and_how(ask: Asker) -> None:
    await ask("system", "POST", "/api/queues/documents/pause")
    await ask("system", "POST", "/api/queues/documents/resume")
    await ask("system", "PUT", "/api/queues/documents/depth-cap", {"maxDepth": 7})
    await ask("system", "POST", "/api/job-types/mail/disable")
    items = await listed(ask, "system")
    assert [(item["type"], item["aggregate"]) for item in reversed(items)] == [
        ("pauseQueue", "queue:documents"),
        ("resumeQueue", "queue:documents"),
        ("capQueue", "queue:documents"),
        ("disableJobType", "type:mail"),
    ]
    assert items[1]["payload"]["details"] == {"maxDepth": 7}


async def test_a_store_that_cannot_keep_it_refuses_the_action(jobs: Gantline) -> None:
    async def around(verb: str, call: Call) -> Any:
        if verb == "write_records":
            raise StoreUnavailable("the disk is full")
        return await call()

    async with asker_of(jobs.api(authenticator=ByName())) as ask:
        job_id = (await submit(ask, DOCUMENT, "alice")).json()["jobId"]
        jobs._store_audit._writer._store = intercepted(jobs.store, around)
        response = await ask("alice", "POST", f"/api/jobs/{job_id}/cancel")
        assert (response.status_code, response.json()["errorCode"]) == (503, "STORE_UNAVAILABLE")
        status = await ask("alice", "GET", f"/api/jobs/{job_id}/status")
        assert status.json()["status"] == "Queued"


async def test_a_flood_of_denials_is_few_writes(ask: Asker, jobs: Gantline, done: str) -> None:
    for _ in range(300):
        await ask("eve", "GET", f"/api/jobs/{done}")
    records = await jobs.store.read_records(NAMESPACE, prefix="evil/")
    assert len(records) == 1
    await jobs._store_audit.close()
    newest = (await listed(ask, "eve"))[0]
    assert newest["payload"]["details"]["count"] == 300
    assert newest["payload"]["details"]["asked"] == [done]


@pytest.mark.parametrize("limit", [1, 3])
async def test_what_somebody_put_in_by_hand_does_not_lead_in_circles(
    ask: Asker, jobs: Gantline, limit: int
) -> None:
    for number in range(6):
        await ask("system", "POST", f"/api/queues/q{number}/pause")
    records = await jobs.store.read_records(NAMESPACE, prefix="default/")
    (event,) = msgspec.json.decode(records[2].value)
    body = msgspec.json.encode([event | {"version": 10**12}])
    writes = [RecordWrite(NAMESPACE, records[2].key, body)]
    writes.append(RecordWrite(NAMESPACE, records[3].key, b"broken"))
    await jobs.store.write_records(writes)
    path = f"/api/audit?limit={limit}"
    versions: list[int] = []
    while path and len(versions) < 20:
        response = await ask("system", "GET", path)
        versions += [item["version"] for item in response.json()["items"]]
        path = response.headers.get("link", "").partition(">")[0].removeprefix("<")
    assert versions[0] == 6
    assert versions[-1] == 1
    assert len(versions) == len(set(versions)) < 20
