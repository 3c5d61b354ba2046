"""Acting on jobs over HTTP: what is legal is done, what is not is told, and all of it audited."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from gantline import Gantline, JobStatus
from gantline.contract.outcome import Stopped
from tests.api.application import AuditKept
from tests.api.conftest import Asker
from tests.api.playing import PERMANENT, claim, run_all, settle, standing, stored, success
from tests.api.test_read import status_of, submitted
from tests.api.test_submit import DOCUMENT, MAIL, submit


async def act(ask: Asker, job_id: str, verb: str, who: str = "alice", **headers: str) -> Any:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(who, "POST", f"/api/jobs/{job_id}/{verb}", headers=sent)


async def test_a_queued_job_is_cancelled_at_once(
    ask: Asker, jobs: Gantline, audit: AuditKept
) -> None:
    job_id = await submitted(ask)
    response = await act(ask, job_id, "cancel")
    assert (response.status_code, response.json()["status"]) == (200, "Cancelled")
    assert response.headers["etag"] == f'"{job_id}-2-Cancelled"'
    assert response.headers["location"] == f"/api/jobs/{job_id}/status"
    assert ("user:alice", "jobs:cancel", "allowed") in audit.outcomes()
    (row,) = await jobs.store.history(UUID(job_id), tenant_id=None)
    assert row.actor == "user:alice"
    again = await act(ask, job_id, "cancel")
    assert (again.status_code, again.json()["version"]) == (200, 2)


async def test_a_running_job_is_asked_to_stop(ask: Asker, jobs: Gantline) -> None:
    job_id = await submitted(ask)
    (run,) = await claim(jobs)
    for _ in range(2):
        response = await act(ask, job_id, "cancel")
        body = response.json()
        assert (response.status_code, body["status"], body["state"]) == (
            202,
            "Running",
            "Cancelling",
        )
    await settle(jobs, run, Stopped())
    assert (await status_of(ask, job_id))["status"] == "Cancelled"


async def test_what_has_ended_cannot_be_cancelled(ask: Asker, jobs: Gantline) -> None:
    job_id = await submitted(ask)
    await run_all(jobs)
    response = await act(ask, job_id, "cancel")
    assert (response.status_code, response.json()["errorCode"]) == (409, "ILLEGAL_TRANSITION")


async def test_a_dead_job_is_redriven_under_its_own_id(
    ask: Asker, jobs: Gantline, audit: AuditKept
) -> None:
    job_id = await submitted(ask)
    assert (await act(ask, job_id, "redrive")).status_code == 409
    await run_all(jobs, PERMANENT)
    response = await act(ask, job_id, "redrive")
    assert (response.status_code, response.json()["status"]) == (200, "Queued")
    assert ("user:alice", "jobs:redrive", "allowed") in audit.outcomes()
    await run_all(jobs, success())
    assert (await status_of(ask, job_id))["status"] == "Completed"
    assert (await act(ask, job_id, "redrive")).status_code == 409


async def test_a_redrive_whose_key_is_taken_is_409(ask: Asker, jobs: Gantline) -> None:
    job_id = await submitted(ask)
    await run_all(jobs, PERMANENT)
    await submitted(ask)
    response = await act(ask, job_id, "redrive")
    assert (response.status_code, response.json()["errorCode"]) == (409, "IDEMPOTENCY_CONFLICT")


@pytest.mark.parametrize(("who", "is_told"), [("alice", False), ("bob", True), ("operator", True)])
async def test_which_job_has_the_key_is_told_to_who_may_read_it(
    ask: Asker, jobs: Gantline, who: str, is_told: bool
) -> None:
    """The job is about `doc-of-bob`, so that he may redrive it; the key's new holder is his."""
    body = {**DOCUMENT, "subjectId": "doc-of-bob"}
    job_id = (await submit(ask, body)).json()["jobId"]
    await run_all(jobs, PERMANENT)
    holder = (await submit(ask, DOCUMENT, "bob")).json()["jobId"]
    response = await ask(who, "POST", f"/api/jobs/{job_id}/redrive")
    assert (response.status_code, response.json()["errorCode"]) == (409, "IDEMPOTENCY_CONFLICT")
    detail = response.json()["detail"]
    assert "has the idempotency key of this one by now. Look whether" in detail
    assert (holder in detail) is is_told
    assert "payload" not in detail


@pytest.mark.parametrize("verb", ["cancel", "redrive"])
async def test_if_match_keeps_from_acting_on_another_state(
    ask: Asker, jobs: Gantline, verb: str
) -> None:
    job_id = await submitted(ask)
    old = (await ask("alice", "GET", f"/api/jobs/{job_id}/status")).headers["etag"]
    if verb == "redrive":
        await run_all(jobs, PERMANENT)
    else:
        await claim(jobs)
    before = await standing(jobs, job_id)
    for tag in (old, '"nonsense"', f"W/{old}"):
        response = await act(ask, job_id, verb, if_match=tag)
        assert (response.status_code, response.json()["errorCode"]) == (412, "VERSION_MISMATCH")
    assert await standing(jobs, job_id) == before
    new = (await ask("alice", "GET", f"/api/jobs/{job_id}/status")).headers["etag"]
    assert (await act(ask, job_id, verb, if_match=f'"other", {new}')).status_code in (200, 202)


async def test_what_changes_after_it_was_matched_is_412_too(
    ask: Asker, jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await submitted(ask)
    tag = (await ask("alice", "GET", f"/api/jobs/{job_id}/status")).headers["etag"]
    cancel = jobs.manager.cancel

    async def late(*args: Any, **kwargs: Any) -> Any:
        await claim(jobs)  # a worker is faster
        return await cancel(*args, **kwargs)

    monkeypatch.setattr(jobs.manager, "cancel", late)
    assert (await act(ask, job_id, "cancel", if_match=tag)).status_code == 412
    assert (await standing(jobs, job_id)).derived(jobs.clock.now()) is None
    assert (await act(ask, job_id, "cancel")).status_code == 202


async def test_if_match_star_takes_any_state(ask: Asker) -> None:
    job_id = await submitted(ask)
    assert (await act(ask, job_id, "cancel", if_match="*")).status_code == 200
    assert (await act(ask, str(uuid4()), "cancel", if_match="*")).status_code == 404


async def test_an_edited_redrive_is_a_new_job_of_the_old_one(ask: Asker, jobs: Gantline) -> None:
    job_id = (await submit(ask, {**DOCUMENT, "priority": 3, "maxAttempts": 9})).json()["jobId"]
    path = f"/api/jobs/{job_id}/edited-redrive"
    edit = {"payload": {"documentId": "d1", "rowVersion": 6}}
    assert (await ask("alice", "POST", path, edit)).status_code == 409
    await run_all(jobs, PERMANENT)
    response = await ask("operator", "POST", path, edit)
    accepted = response.json()
    assert response.status_code == 202
    assert accepted["jobId"] != job_id
    assert response.headers["location"] == accepted["statusUrl"]
    new = await standing(jobs, accepted["jobId"])
    assert new.job.parent_job_id == UUID(job_id)
    assert new.job.data()["rowVersion"] == 6
    assert new.job.idempotency_key == "doc-d1-v6"
    assert (new.priority, new.job.max_attempts) == (3, 9)
    assert (new.job.tenant_id, new.job.created_by) == ("acme", "user:operator")
    assert (await standing(jobs, job_id)).status is JobStatus.FAILED
    children = await ask("operator", "GET", f"/api/jobs?parentJobId={job_id}")
    assert [item["jobId"] for item in children.json()["items"]] == [accepted["jobId"]]


async def test_an_edited_redrive_is_validated_and_may_change_little(
    ask: Asker, jobs: Gantline
) -> None:
    job_id = await submitted(ask)
    await run_all(jobs, PERMANENT)
    path = f"/api/jobs/{job_id}/edited-redrive"
    wrong = await ask("alice", "POST", path, {"payload": {"documentId": 5}})
    assert (wrong.status_code, wrong.json()["errorCode"]) == (422, "VALIDATION_ERROR")
    assert (await ask("alice", "POST", path, {"tenantId": "other"})).status_code == 422
    assert len(await stored(jobs)) == 1
    same = await ask("alice", "POST", path, {"queue": "slow"})
    new = await standing(jobs, same.json()["jobId"])
    assert (new.job.queue, new.job.data()["documentId"]) == ("slow", "d1")


async def test_a_job_that_has_ended_can_be_deleted(ask: Asker, jobs: Gantline) -> None:
    job_id = await submitted(ask)
    assert (await ask("alice", "DELETE", f"/api/jobs/{job_id}")).status_code == 409
    await run_all(jobs)
    for who, status in (("eve", 404), ("bob", 403)):
        assert (await ask(who, "DELETE", f"/api/jobs/{job_id}")).status_code == status
    response = await ask("alice", "DELETE", f"/api/jobs/{job_id}")
    assert (response.status_code, response.content) == (204, b"")
    assert await stored(jobs) == []


async def test_a_job_that_went_on_meanwhile_is_not_deleted(
    ask: Asker, jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redriven and ended anew, between the look at its ETag and the deletion."""
    job_id = await submitted(ask)
    await run_all(jobs, PERMANENT)
    tag = (await ask("alice", "GET", f"/api/jobs/{job_id}/status")).headers["etag"]
    delete = jobs.manager.delete

    async def after_others(*args: Any, **options: Any) -> Any:
        await jobs.manager.redrive([UUID(job_id)], tenant_id=None, actor="op")
        await run_all(jobs, PERMANENT)
        return await delete(*args, **options)

    monkeypatch.setattr(jobs.manager, "delete", after_others)
    response = await ask("alice", "DELETE", f"/api/jobs/{job_id}", headers={"if-match": tag})
    assert (response.status_code, response.json()["errorCode"]) == (412, "VERSION_MISMATCH")
    assert len(await stored(jobs)) == 1


async def test_a_star_in_quotes_is_a_tag_like_others(ask: Asker) -> None:
    job_id = await submitted(ask)
    for header, path, method in (
        ("if-match", "cancel", "POST"),
        ("if-none-match", "status", "GET"),
    ):
        response = await ask("alice", method, f"/api/jobs/{job_id}/{path}", headers={header: '"*"'})
        assert response.status_code == (412 if method == "POST" else 200)


# -- dead letters ---------------------------------------------------------------------------------


async def dead(ask: Asker, jobs: Gantline, *names: str, who: str = "alice") -> list[str]:
    ids = [
        await submitted(ask, {**DOCUMENT, "payload": {"documentId": name}}, who) for name in names
    ]
    await run_all(jobs, PERMANENT)
    return ids


async def redrive(ask: Asker, body: Any, who: str = "operator") -> Any:
    return await ask(who, "POST", "/api/dead-letters/redrive", body)


async def test_dead_letters_are_counted_listed_and_shown(ask: Asker, jobs: Gantline) -> None:
    ids = await dead(ask, jobs, "a", "b")
    await submitted(ask, MAIL)
    summary = (await ask("viewer", "GET", "/api/dead-letters/summary")).json()
    assert (summary["total"], summary["failed"], summary["poisoned"]) == (2, 2, 0)
    (reason,) = summary["reasons"]
    assert (reason["reason"], reason["jobType"], reason["jobs"]) == (
        "PermanentError",
        "document-indexing",
        2,
    )
    page = (await ask("alice", "GET", "/api/dead-letters?reason=PermanentError")).json()
    assert sorted(item["jobId"] for item in page["items"]) == sorted(ids)
    none = (await ask("alice", "GET", "/api/dead-letters?reason=NoHandler")).json()
    assert none["items"] == []
    letter = (await ask("alice", "GET", f"/api/dead-letters/{ids[0]}")).json()
    assert (letter["reason"], letter["payload"]["documentId"]) == ("PermanentError", "a")
    live = await submitted(ask, {**MAIL, "payload": "other"})
    assert (await ask("alice", "GET", f"/api/dead-letters/{live}")).status_code == 404
    assert (await ask("alice", "GET", "/api/dead-letters/summary")).status_code == 403


async def test_a_dry_run_counts_and_changes_nothing(ask: Asker, jobs: Gantline) -> None:
    await dead(ask, jobs, "a", "b", "c")
    response = await redrive(ask, {"reasons": ["PermanentError"], "limit": 2, "dryRun": True})
    report = response.json()
    assert (report["matching"], report["redriven"], report["more"]) == (2, 0, True)
    assert {job.status for job in await stored(jobs)} == {JobStatus.FAILED}


async def test_dead_letters_are_redriven_by_filter_with_a_limit(
    ask: Asker, jobs: Gantline, audit: AuditKept
) -> None:
    await dead(ask, jobs, "a", "b", "c")
    audit.entries.clear()
    report = (await redrive(ask, {"jobTypes": ["document-indexing"], "limit": 2})).json()
    assert (report["matching"], report["redriven"], report["failed"]) == (2, 2, 0)
    assert report["more"] is True
    everything, *each = audit.entries
    assert everything.what == "dead-letters"
    asked = {"jobTypes": ["document-indexing"], "limit": 2}
    assert everything.details == {"filter": asked, "matching": 2}
    assert [str(entry.job_id) for entry in each] == [item["jobId"] for item in report["items"]]
    left = (await redrive(ask, {"all": True})).json()
    assert (left["redriven"], left["more"]) == (1, False)
    assert {job.status for job in await stored(jobs)} == {JobStatus.QUEUED}


async def test_dead_letters_are_redriven_by_name(ask: Asker, jobs: Gantline) -> None:
    ids = await dead(ask, jobs, "a", "b")
    body = {"jobIds": [ids[0], ids[0], str(uuid4())]}
    report = (await redrive(ask, body)).json()
    assert [item["jobId"] for item in report["items"]] == [ids[0]]
    assert (await standing(jobs, ids[1])).status is JobStatus.FAILED


async def test_only_ones_own_are_redriven(ask: Asker, jobs: Gantline) -> None:
    own = await dead(ask, jobs, "a")
    await dead(ask, jobs, "b", who="bob")
    await dead(ask, jobs, "c", who="eve")
    report = (await redrive(ask, {"all": True}, "alice")).json()
    assert [item["jobId"] for item in report["items"]] == own
    others = [
        str(job.job.job_id) for job in await stored(jobs) if job.job.created_by != "user:alice"
    ]
    report = (await redrive(ask, {"jobIds": others}, "alice")).json()
    assert (report["matching"], report["items"]) == (0, [])
    assert (await redrive(ask, {"all": True, "tenantId": "evil"}, "alice")).status_code == 404
    assert (await redrive(ask, {"all": True}, "submitter")).status_code == 403
    report = (await redrive(ask, {"all": True, "tenantId": "evil"}, "system")).json()
    assert report["redriven"] == 1


@pytest.mark.parametrize(
    "body", [{}, {"all": False}, {"all": True, "reasons": ["a"]}, {"jobIds": [], "limit": 5}]
)
async def test_an_empty_body_redrives_nothing(ask: Asker, jobs: Gantline, body: Any) -> None:
    await dead(ask, jobs, "a")
    response = await redrive(ask, body)
    assert (response.status_code, response.json()["errorCode"]) == (422, "VALIDATION_ERROR")
    assert {job.status for job in await stored(jobs)} == {JobStatus.FAILED}


async def test_what_cannot_be_redriven_is_told_and_harms_no_other(
    ask: Asker, jobs: Gantline
) -> None:
    await dead(ask, jobs, "a", "b")
    again = await submitted(ask, {**DOCUMENT, "payload": {"documentId": "a"}})
    report = (await redrive(ask, {"all": True})).json()
    assert (report["redriven"], report["failed"]) == (1, 1)
    assert {item["errorCode"] for item in report["items"]} == {None, "IDEMPOTENCY_CONFLICT"}
    assert (await standing(jobs, again)).status is JobStatus.QUEUED
