"""Schedules over HTTP: made, shown, changed, run; nobody sees or touches what is not his."""

import asyncio
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from gantline import Gantline
from gantline.api.application import Api
from gantline.api.schedule_documents import RunsToCome, ScheduleDocument, SchedulesPage
from gantline.manager.manager import JobManager
from gantline.manager.sessions import Session, register, unregister
from gantline.schedules.recurrence import Every
from gantline.schedules.schedule import Schedule, ScheduleRecord
from gantline.schedules.scheduler import Scheduler
from gantline.schedules.schedules import key_of, synchronise
from gantline.testing.clock import FakeClock
from tests.api.application import AuditKept
from tests.api.conftest import Asker

NIGHTLY = {
    "name": "nightly",
    "jobType": "document-indexing",
    "cron": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "payload": {"documentId": "catalogue"},
}


async def make(ask: Asker, who: str = "operator", **changes: Any) -> dict[str, Any]:
    response = await ask(who, "POST", "/api/schedules", {**NIGHTLY, **changes})
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


async def fire(jobs: Gantline) -> None:
    scheduler = Scheduler(jobs.store, JobManager(jobs.store), "leader")
    await scheduler.run_once()


async def test_a_schedule_is_made_and_shown_whole(ask: Asker) -> None:
    response = await ask("operator", "POST", "/api/schedules", NIGHTLY)
    assert response.status_code == 201
    assert response.headers["location"] == "/api/schedules/nightly"
    made = response.json()
    assert made["explanation"] == "At 02:30 every day (Europe/Berlin)"
    assert made["nextRun"] == "2026-01-02T01:30:00Z"
    assert len(made["nextRuns"]) == 5
    assert made["owner"] == "user:operator"
    assert (made["queue"], made["subjectId"]) == ("documents", "catalogue")
    assert made["payload"] == {"documentId": "catalogue", "rowVersion": 1, "flags": []}
    shown = await ask("operator", "GET", "/api/schedules/nightly")
    assert shown.json() == made
    assert shown.headers["etag"] == response.headers["etag"]
    unchanged = await ask(
        *("operator", "GET", "/api/schedules/nightly"),
        headers={"if-none-match": shown.headers["etag"]},
    )
    assert unchanged.status_code == 304


async def test_its_job_is_submitted_when_it_is_due(
    ask: Asker, jobs: Gantline, clock: FakeClock
) -> None:
    await make(ask)
    clock.advance(timedelta(days=1))
    await fire(jobs)
    shown = (await ask("operator", "GET", "/api/schedules/nightly")).json()
    (fired,) = shown["fires"]
    assert fired["at"] == "2026-01-02T01:30:00Z"
    found = (await ask("operator", "GET", "/api/jobs?correlationId=schedule:nightly")).json()
    assert [item["jobId"] for item in found["items"]] == [fired["jobId"]]
    job = (await ask("operator", "GET", f"/api/jobs/{fired['jobId']}")).json()
    assert job["createdBy"] == "user:operator"


async def test_the_next_runs_are_told_in_both_times(ask: Asker) -> None:
    await make(ask, cron="30 2 * * *", start="2026-03-28T12:00:00Z")
    told = (await ask("viewer", "GET", "/api/schedules/nightly/next?count=2")).json()
    assert told["timezone"] == "Europe/Berlin"
    assert [(one["at"], one["local"]) for one in told["items"]] == [
        ("2026-03-29T01:00:00Z", "2026-03-29T03:00:00+02:00"),
        ("2026-03-30T00:30:00Z", "2026-03-30T02:30:00+02:00"),
    ]


def test_what_shows_runs_to_come_has_few_turns_at_a_time(api: Api) -> None:
    """Rare runs take a millisecond each to be found: those of 64 requests would stop all others."""
    shows_runs = {
        one.name
        for one in api.operations
        if one.answers.keys() & {200, 201}
        and {ScheduleDocument, SchedulesPage, RunsToCome} & {*one.answers.values()}
    }
    assert len(shows_runs) == 7
    assert shows_runs <= {one.name for one in api.operations if one.is_long}


async def test_others_go_on_while_many_runs_to_come_are_found(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(ask)
    seen: list[str] = []
    upcoming = ScheduleRecord.each_upcoming

    def noted(record: ScheduleRecord, count: int) -> Iterator[datetime]:
        for at in upcoming(record, count):
            seen.append("run")
            yield at

    monkeypatch.setattr(ScheduleRecord, "each_upcoming", noted)
    asking = asyncio.create_task(ask("operator", "GET", "/api/schedules/nightly/next?count=100"))
    while not asking.done():
        seen.append("other")
        await asyncio.sleep(0)
    assert len((await asking).json()["items"]) == 100
    first = seen.index("run")
    assert seen[first : first + 6].count("run") == 3


async def test_schedules_are_listed_by_name_a_page_at_a_time(ask: Asker) -> None:
    for number in range(7):
        await make(ask, name=f"s{number}", cron=None, timezone="UTC", everySeconds=60)
    await make(ask, "eve", name="s3")
    names, path = [], "/api/schedules?limit=3"
    while path:
        response = await ask("viewer", "GET", path)
        names += [item["name"] for item in response.json()["items"]]
        assert all(item["payload"] is None for item in response.json()["items"])
        path = response.links["next"]["url"] if "next" in response.links else ""
    assert names == [f"s{number}" for number in range(7)]


async def test_a_schedule_is_replaced_under_its_etag(ask: Asker) -> None:
    made = await ask("operator", "POST", "/api/schedules", NIGHTLY)
    changed = {key: value for key, value in NIGHTLY.items() if key != "name"}
    changed |= {"cron": "0 6 * * *", "overlap": "skip", "misfire": "skip"}
    tag = {"if-match": made.headers["etag"]}
    path = "/api/schedules/nightly"
    response = await ask("admin", "PUT", path, changed, headers=tag)
    assert response.status_code == 200
    after = response.json()
    assert (after["nextRun"], after["overlap"]) == ("2026-01-02T05:00:00Z", "skip")
    assert after["owner"] == "user:admin"  # nobody submits in somebody else's name
    assert (await ask("admin", "PUT", path, changed, headers=tag)).status_code == 412
    assert (await ask("admin", "DELETE", path, headers=tag)).status_code == 412
    for verb in ("pause", "resume"):
        response = await ask("admin", "POST", f"{path}/{verb}", headers=tag)
        assert response.status_code == 412
    assert (await ask("admin", "DELETE", path)).status_code == 204
    assert (await ask("admin", "GET", path)).status_code == 404
    assert (await ask("admin", "PUT", path, changed)).status_code == 404


async def test_an_etag_does_not_count_what_others_write(ask: Asker, jobs: Gantline) -> None:
    """Versions of records are numbers of the whole store."""
    made = await ask("operator", "POST", "/api/schedules", NIGHTLY)
    stored = await jobs.schedules.get("acme", "nightly")
    tag = made.headers["etag"]
    assert re.fullmatch(r'"schedule-[0-9a-f]{24}"', tag)
    assert int(tag[10:-1], 16) != stored.version


async def test_a_pause_holds_until_it_is_resumed(
    ask: Asker, jobs: Gantline, clock: FakeClock
) -> None:
    await make(ask)
    paused = (await ask("operator", "POST", "/api/schedules/nightly/pause")).json()
    assert (paused["paused"], paused["nextRun"], paused["nextRuns"]) == (True, None, [])
    clock.advance(timedelta(days=3))
    await fire(jobs)
    resumed = (await ask("operator", "POST", "/api/schedules/nightly/resume")).json()
    assert (resumed["paused"], resumed["fires"]) == (False, [])
    assert resumed["nextRun"] == "2026-01-05T01:30:00Z"


async def test_a_run_by_hand_is_audited_and_submitted_in_the_name_of_who_asks(
    ask: Asker, jobs: Gantline, audit: AuditKept, clock: FakeClock
) -> None:
    await make(ask)
    audit.entries.clear()
    response = await ask("admin", "POST", "/api/schedules/nightly/run")
    assert response.status_code == 202
    job_id = response.json()["jobId"]
    assert response.headers["location"] == f"/api/jobs/{job_id}/status"
    (job,) = await jobs.store.get([UUID(job_id)], tenant_id="acme")
    assert job is not None
    assert job.job.created_by == "user:admin"
    assert job.job.scheduled_at == clock.now()  # which its handler reads, as of any other run
    (entry,) = audit.entries
    assert (entry.actor, entry.action, entry.outcome) == (
        *("user:admin", "schedules:manage", "allowed"),
    )
    assert (entry.operation, entry.what) == ("runSchedule", "schedule:nightly")
    shown = (await ask("operator", "GET", "/api/schedules/nightly")).json()
    assert [(one["by"], one["jobId"]) for one in shown["fires"]] == [("user:admin", job_id)]


async def test_a_run_of_a_type_that_is_switched_off_is_refused(ask: Asker, jobs: Gantline) -> None:
    await make(ask)
    await jobs.switches.disable_type("document-indexing")
    response = await ask("operator", "POST", "/api/schedules/nightly/run")
    assert response.status_code == 503
    assert response.json()["errorCode"] == "JOB_TYPE_DISABLED"


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"cron": "0 0 30 2 *"}, 422, "VALIDATION_ERROR"),
        ({"cron": "0 0 */31 2 MON#2"}, 422, "VALIDATION_ERROR"),
        ({"cron": "61 * * * *"}, 422, "VALIDATION_ERROR"),
        ({"cron": "0-59," * 60 + "1 * * * *"}, 422, "VALIDATION_ERROR"),
        ({"cron": "* " * 300_000}, 422, "VALIDATION_ERROR"),
        ({"timezone": "Mars/Olympus"}, 422, "VALIDATION_ERROR"),
        ({"timezone": "../../etc/passwd"}, 422, "VALIDATION_ERROR"),
        ({"payload": {"documentId": 5}}, 422, "VALIDATION_ERROR"),
        ({"payload": {}}, 422, "VALIDATION_ERROR"),
        ({"jobType": "unknown"}, 422, "UNKNOWN_JOB_TYPE"),
        ({"everySeconds": 60}, 422, "VALIDATION_ERROR"),
        ({"cron": None}, 422, "VALIDATION_ERROR"),
        ({"cron": None, "everySeconds": 0.5}, 422, "VALIDATION_ERROR"),
        ({"cron": None, "everySeconds": 86_400}, 422, "VALIDATION_ERROR"),  # by which clock?
        ({"anchor": "2026-01-01T00:00:00Z"}, 422, "VALIDATION_ERROR"),
        ({"cron": None, "everySeconds": 1e300}, 422, "VALIDATION_ERROR"),
        ({"name": "a/b"}, 422, "VALIDATION_ERROR"),
        ({"name": ""}, 422, "VALIDATION_ERROR"),
        ({"name": "."}, 422, "VALIDATION_ERROR"),
        ({"name": ".."}, 422, "VALIDATION_ERROR"),
        ({"name": "x" * 129}, 422, "VALIDATION_ERROR"),
        ({"jitterSeconds": -1}, 422, "VALIDATION_ERROR"),
        ({"jitterSeconds": 1e9}, 422, "VALIDATION_ERROR"),
        ({"catchUpLimit": 1001}, 422, "VALIDATION_ERROR"),
        ({"misfire": "whatever"}, 422, "VALIDATION_ERROR"),
        ({"overlap": "whatever"}, 422, "VALIDATION_ERROR"),
        ({"end": "2020-01-01T00:00:00Z"}, 422, "VALIDATION_ERROR"),
        (
            {"start": "2026-05-01T00:00:00Z", "end": "2026-04-01T00:00:00Z"},
            *(422, "VALIDATION_ERROR"),
        ),
        ({"start": "2026-05-01T00:00:00"}, 422, "VALIDATION_ERROR"),
        ({"start": "0001-01-01T00:00:00+14:00"}, 422, "VALIDATION_ERROR"),
        ({"end": "9999-12-31T23:59:59-12:00"}, 422, "VALIDATION_ERROR"),
        (
            {"cron": None, "everySeconds": 60, "anchor": "9999-12-31T23:59:59-12:00"}
            | {"timezone": "UTC"},
            *(422, "VALIDATION_ERROR"),
        ),
        ({"owner": "user:somebody"}, 422, "VALIDATION_ERROR"),
        ({"priority": 9}, 422, "VALIDATION_ERROR"),
    ],
)
async def test_what_is_wrong_is_refused_when_it_is_sent(
    ask: Asker, jobs: Gantline, changes: dict[str, Any], status: int, code: str
) -> None:
    response = await ask("operator", "POST", "/api/schedules", {**NIGHTLY, **changes})
    assert (response.status_code, response.json()["errorCode"]) == (status, code)
    assert not await jobs.schedules.page("acme", after="", limit=10)


async def test_a_name_is_taken_once_in_a_tenant(ask: Asker) -> None:
    await make(ask)
    await make(ask, "eve")
    response = await ask("operator", "POST", "/api/schedules", NIGHTLY)
    assert (response.status_code, response.json()["errorCode"]) == (409, "SCHEDULE_CONFLICT")


async def test_more_than_a_tenant_may_have_are_refused(ask: Asker, jobs: Gantline) -> None:
    jobs.schedules._most = 1
    await make(ask)
    refused = await ask("operator", "POST", "/api/schedules", {**NIGHTLY, "name": "second"})
    assert refused.status_code == 422
    assert "has 1 schedules, and may have 1" in refused.json()["detail"]
    changed = {key: value for key, value in NIGHTLY.items() if key != "name"}
    assert (await ask("operator", "PUT", "/api/schedules/nightly", changed)).status_code == 200


async def test_what_code_declares_can_be_paused_and_not_changed(
    ask: Asker, jobs: Gantline, clock: FakeClock
) -> None:
    declared = Schedule(
        name="of-code", tenant_id="acme", recurrence=Every(60), job_type="sweep", owner=""
    )
    await synchronise(jobs.schedules, jobs.store, [declared])
    now = clock.now()
    worker = Session(
        session_id="worker",
        host="here",
        pid=1,
        version="1",
        started_at=now,
        last_seen_at=now,
        queues={},
        job_types=("sweep",),
        schedules=(key_of("acme", "of-code"),),
    )
    await register(jobs.store, worker)
    path = "/api/schedules/of-code"
    assert (await ask("operator", "POST", f"{path}/pause")).status_code == 200
    assert (await ask("operator", "DELETE", path)).status_code == 409
    changed = {"jobType": "sweep", "everySeconds": 5}
    assert (await ask("operator", "PUT", path, changed)).status_code == 409
    assert (await ask("operator", "POST", f"{path}/run")).status_code == 202
    await unregister(jobs.store, "worker")
    assert (await ask("operator", "DELETE", path)).status_code == 204


@pytest.mark.parametrize("cursor", ["x", "AAAA", "AWE=", "%00", "A" * 128])
async def test_a_cursor_that_is_none_of_ours_is_refused(ask: Asker, cursor: str) -> None:
    response = await ask("operator", "GET", f"/api/schedules?cursor={cursor}")
    assert response.status_code == 400


# -- rights -------------------------------------------------------------------------------------

OPERATIONS = (
    ("GET", ""),
    ("GET", "/next"),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/run"),
    ("PUT", ""),
    ("DELETE", ""),
)
READERS = {"viewer", "operator", "admin", "system"}
MANAGERS = {"operator", "admin", "system"}
WHO = (
    *("alice", "bob", "viewer", "operator", "admin", "mailer", "submitter", "canceller", "eve"),
    "system",
)


@pytest.mark.parametrize("who", WHO)
async def test_who_may_do_what_and_who_learns_nothing(
    ask: Asker, jobs: Gantline, audit: AuditKept, who: str
) -> None:
    secret = f"secret{uuid4().hex}"
    await make(ask, payload={"documentId": secret}, subjectId="catalogue")
    for method, part in OPERATIONS:
        before = await jobs.schedules.get("acme", "nightly")
        audit.entries.clear()
        body = {key: NIGHTLY[key] for key in NIGHTLY if key != "name"} if method == "PUT" else None
        tenant = "?tenantId=acme" if who in ("eve", "system") else ""
        response = await ask(who, method, f"/api/schedules/nightly{part}{tenant}", body)
        allowed = who in (READERS if method == "GET" else MANAGERS)
        if allowed:
            assert response.status_code in (200, 202, 204), (part, response.text)
        else:
            assert response.status_code == (404 if who == "eve" else 403), (part, response.text)
            assert await jobs.schedules.get("acme", "nightly") == before
            told = "hidden" if who == "eve" else "forbidden"
            assert [entry.outcome for entry in audit.entries] == [told]
        if who not in MANAGERS:
            assert secret not in response.text
        if method != "GET":
            assert audit.entries
    listed = await ask(who, "GET", "/api/schedules")
    assert listed.status_code == (200 if who in (*READERS, "eve") else 403)
    assert secret not in listed.text
    if who in ("eve", "system"):
        assert listed.json()["items"] == []
        other = await ask(who, "GET", "/api/schedules?tenantId=acme")
        assert other.status_code == (404 if who == "eve" else 200)


async def test_one_that_is_not_there_is_told_like_another_tenants(ask: Asker) -> None:
    await make(ask)
    texts = []
    for name in ("nightly", "missing"):
        response = await ask("eve", "GET", f"/api/schedules/{name}?tenantId=acme")
        assert response.status_code == 404
        texts.append({**response.json(), "instance": "", "correlationId": ""})
    assert texts[0] == texts[1]


async def test_who_may_not_submit_a_type_makes_no_schedule_of_it(ask: Asker) -> None:
    for who in ("alice", "viewer", "mailer", "submitter", "canceller"):
        response = await ask(who, "POST", "/api/schedules", NIGHTLY)
        assert response.status_code == 403, who
    response = await ask("eve", "POST", "/api/schedules", {**NIGHTLY, "tenantId": "acme"})
    assert response.status_code == 404
