"""Submitting over HTTP: the 202 of the contract, and nothing stored that was refused."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from gantline import Gantline
from gantline.contract.job import read_job
from gantline.moving.closing import reopen
from gantline.testing.clock import FakeClock
from tests.api.conftest import Asker
from tests.api.playing import PERMANENT, run_all, standing, stored
from tests.moving_stores import NAMES, close

DOCUMENT = {"jobType": "document-indexing", "payload": {"documentId": "d1", "rowVersion": 5}}
OTHER = {"jobType": "document-indexing", "payload": {"documentId": "d2", "rowVersion": 5}}
MAIL = {"jobType": "mail", "payload": "a@example.org"}


async def submit(ask: Asker, body: Any = DOCUMENT, who: str = "alice", **headers: str) -> Any:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(who, "POST", "/api/jobs", body, headers=sent)


async def test_a_submit_answers_202_with_the_five_keys_in_order(ask: Asker, jobs: Gantline) -> None:
    response = await submit(ask)
    body = response.json()
    assert response.status_code == 202
    assert list(body) == ["jobId", "subjectId", "statusUrl", "status", "duplicate"]
    assert body["statusUrl"] == f"/api/jobs/{body['jobId']}/status"
    assert (body["subjectId"], body["status"], body["duplicate"]) == ("d1", "Queued", False)
    assert response.headers["location"] == body["statusUrl"]
    assert response.headers["retry-after"] == "1"
    assert response.headers["vary"] == "Prefer"
    (job,) = await stored(jobs)
    assert job.job.job_id == UUID(body["jobId"])
    assert (job.job.tenant_id, job.job.created_by) == ("acme", "user:alice")
    assert job.job.idempotency_key == "doc-d1-v5"
    assert job.job.queue == "documents"


async def test_without_credentials_nothing_is_told_and_nothing_stored(
    ask: Asker, jobs: Gantline
) -> None:
    assert (await ask(None, "POST", "/api/jobs", DOCUMENT)).status_code == 401
    assert (await ask("mallory", "POST", "/api/jobs", DOCUMENT)).status_code == 401
    assert await stored(jobs) == []


async def test_the_envelope_of_the_contract_is_taken_as_it_is(ask: Asker, jobs: Gantline) -> None:
    """The JSON example of the Job Contract, with an alias of the type."""
    envelope = {
        "jobId": "00000000-0000-0000-0000-000000000001",
        "jobType": "ai-indexing",
        "subjectId": "00000000-0000-0000-0000-000000000002",
        "correlationId": "00000000-0000-0000-0000-000000000003",
        "idempotencyKey": "doc-00000000-0000-0000-0000-000000000002-v5",
        "attempt": 1,
        "maxAttempts": 3,
        "payload": {"documentId": "d9"},
        "createdAt": "2025-12-12T00:00:00+00:00",
    }
    body = (await submit(ask, envelope)).json()
    (job,) = await stored(jobs)
    assert str(job.job.external_id) == envelope["jobId"]
    assert str(job.job.job_id) == body["jobId"] != envelope["jobId"]
    kept = read_job(job.job.to_json())
    assert kept.job_type == "document-indexing"
    assert kept.correlation_id == envelope["correlationId"]
    assert kept.subject_id == body["subjectId"] == envelope["subjectId"]
    assert kept.idempotency_key == envelope["idempotencyKey"]
    assert kept.created_at == datetime(2025, 12, 12, tzinfo=UTC)
    assert "warnings" not in body


async def test_what_the_caller_may_choose_is_stored(ask: Asker, jobs: Gantline) -> None:
    chosen = {"priority": 3, "queue": "slow", "maxAttempts": 7, "delaySeconds": 90}
    response = await submit(ask, {**DOCUMENT, **chosen}, x_correlation_id="corr-1")
    assert response.headers["retry-after"] == "90"
    assert response.headers["x-correlation-id"] == "corr-1"
    (job,) = await stored(jobs)
    assert (job.priority, job.job.queue, job.job.max_attempts) == (3, "slow", 7)
    assert job.run_at == jobs.clock.now() + timedelta(seconds=90)
    assert job.job.correlation_id == "corr-1"


async def test_a_job_for_later_is_scheduled(ask: Asker, clock: FakeClock) -> None:
    at = clock.now() + timedelta(hours=1)
    response = await submit(ask, {**DOCUMENT, "scheduledAt": at.isoformat()})
    status = (await ask("alice", "GET", response.json()["statusUrl"])).json()
    assert (status["status"], status["state"]) == ("Queued", "Scheduled")
    both = await submit(ask, {**OTHER, "scheduledAt": at.isoformat(), "delaySeconds": 1})
    assert both.status_code == 422


async def test_the_trace_of_the_caller_travels_in_the_envelope(ask: Asker, jobs: Gantline) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await submit(ask, DOCUMENT, traceparent=parent, tracestate="a=1")
    await submit(ask, OTHER, traceparent="00-nonsense")
    newest, oldest = await stored(jobs)
    assert oldest.job.trace_context == {"traceparent": parent, "tracestate": "a=1"}
    assert newest.job.trace_context is None


async def test_a_depth_cap_holds_for_many_at_once(
    ask: Asker, jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two counts: what is stored while the store counts is missed or counted twice."""
    monkeypatch.setattr("gantline.manager.admission._COUNTS_MAX_AGE_SECONDS", 60.0)
    assert (await submit(ask, {**MAIL, "payload": "the first"})).status_code == 202
    answers = await asyncio.gather(
        *(submit(ask, {**MAIL, "payload": str(number)}) for number in range(30))
    )
    assert sorted({answer.status_code for answer in answers}) == [202, 503]
    assert len(await stored(jobs)) == 5


# -- once and again -----------------------------------------------------------------------------


async def test_the_same_job_again_is_the_existing_one(ask: Asker, jobs: Gantline) -> None:
    first = (await submit(ask)).json()
    again = await submit(ask)
    assert again.status_code == 202
    assert again.json() == {**first, "duplicate": True}
    assert len(await stored(jobs)) == 1


async def test_the_jobs_key_with_another_payload_is_409(ask: Asker, jobs: Gantline) -> None:
    await submit(ask, {**DOCUMENT, "idempotencyKey": "k"})
    response = await submit(ask, {**OTHER, "idempotencyKey": "k"})
    assert response.status_code == 409
    assert response.json()["errorCode"] == "IDEMPOTENCY_CONFLICT"
    assert len(await stored(jobs)) == 1


@pytest.mark.parametrize("key", ['"a key with blanks"', "bare-key_1", r'"with \"quotes\""'])
async def test_a_repeated_request_finds_the_first_job(ask: Asker, jobs: Gantline, key: str) -> None:
    first = (await submit(ask, MAIL, idempotency_key=key)).json()
    again = await submit(ask, MAIL, idempotency_key=key)
    assert (again.status_code, again.json()) == (202, {**first, "duplicate": True})
    assert len(await stored(jobs)) == 1


async def test_a_structured_key_and_its_bare_form_are_one_key(ask: Asker) -> None:
    first = (await submit(ask, MAIL, idempotency_key='"abc"')).json()
    assert (await submit(ask, MAIL, idempotency_key="abc")).json()["jobId"] == first["jobId"]


async def test_a_repeated_request_may_be_written_otherwise(ask: Asker) -> None:
    body = b'{ "payload": "a@example.org",\n "jobType": "mail" }'
    first = (await submit(ask, MAIL, idempotency_key="abc")).json()
    again = await ask(
        "alice", "POST", "/api/jobs", content=body, headers={"idempotency-key": "abc"}
    )
    assert again.json()["jobId"] == first["jobId"]


async def test_another_body_under_the_same_key_is_422(ask: Asker, jobs: Gantline) -> None:
    await submit(ask, MAIL, idempotency_key="abc")
    response = await submit(ask, {**MAIL, "payload": "b@example.org"}, idempotency_key="abc")
    assert response.status_code == 422
    assert response.json()["errorCode"] == "IDEMPOTENCY_KEY_REUSED"
    assert len(await stored(jobs)) == 1


async def test_the_header_decides_before_the_jobs_own_key(ask: Asker, jobs: Gantline) -> None:
    """A repeat is told by its request, though the job failed and another has its key."""
    first = (await submit(ask, DOCUMENT, idempotency_key="abc")).json()
    await run_all(jobs, PERMANENT)
    other = {"documentId": "d1", "rowVersion": 5, "flags": ["x"]}
    second = await submit(ask, {**DOCUMENT, "payload": other})
    assert second.json()["duplicate"] is False
    again = (await submit(ask, DOCUMENT, idempotency_key="abc")).json()
    assert (again["jobId"], again["status"], again["duplicate"]) == (first["jobId"], "Failed", True)
    clash = await submit(ask, {**DOCUMENT, "priority": 3}, idempotency_key="abc")
    assert clash.json()["errorCode"] == "IDEMPOTENCY_KEY_REUSED"


async def test_keys_of_different_callers_and_tenants_never_meet(ask: Asker) -> None:
    ids = set()
    for who in ("alice", "bob", "eve"):
        response = await submit(ask, MAIL, who, idempotency_key="abc")
        assert response.json()["duplicate"] is False
        ids.add(response.json()["jobId"])
    assert len(ids) == 3


async def test_a_key_is_forgotten_after_its_time(ask: Asker, clock: FakeClock) -> None:
    first = (await submit(ask, MAIL, idempotency_key="abc")).json()
    clock.advance(timedelta(hours=23))
    assert (await submit(ask, MAIL, idempotency_key="abc")).json()["jobId"] == first["jobId"]
    clock.advance(timedelta(hours=2))
    assert (await submit(ask, MAIL, idempotency_key="abc")).json()["jobId"] != first["jobId"]


async def test_a_job_id_given_by_the_client_is_a_key_of_its_tenant(
    ask: Asker, jobs: Gantline
) -> None:
    given = str(uuid4())
    first = (await submit(ask, {**MAIL, "jobId": given})).json()
    assert first["jobId"] != given
    again = (await submit(ask, {**MAIL, "jobId": given})).json()
    assert again == {**first, "duplicate": True}
    other = await submit(ask, {**MAIL, "jobId": given, "payload": "b@example.org"})
    assert (other.status_code, other.json()["errorCode"]) == (409, "JOB_ID_CONFLICT")
    assert len(await stored(jobs)) == 1


@pytest.mark.parametrize("payload", [MAIL["payload"], "b@example.org"])
async def test_an_id_of_another_tenant_is_taken_like_one_that_nobody_has(
    ask: Asker, jobs: Gantline, payload: str
) -> None:
    """Be it that of a job, or one that a job was submitted with: it neither clashes nor tells."""
    given = str(uuid4())
    theirs = (await submit(ask, {**MAIL, "jobId": given})).json()["jobId"]
    responses = []
    for named in (theirs, given, str(uuid4())):
        body = {**MAIL, "payload": payload, "jobId": named}
        one = await submit(ask, body, "eve", x_correlation_id="c")
        batch = {"jobs": [{**body, "payload": "another"}]}
        many = await ask("eve", "POST", "/api/jobs/batch", batch)
        (item,) = many.json()["items"]
        status = await ask("eve", "GET", f"/api/jobs/{named}/status")
        mine = one.json()["jobId"]
        assert status.json()["jobId"] == mine
        texts = [one.text, item["problem"]["detail"], status.text, str(one.status_code)]
        responses.append([text.replace(mine, "MINE").replace(named, "ID") for text in texts])
    assert responses[0] == responses[1] == responses[2]
    assert [job.job.tenant_id for job in await stored(jobs)].count("acme") == 1


async def test_a_job_is_found_and_operated_by_the_id_that_it_was_submitted_with(
    ask: Asker, jobs: Gantline
) -> None:
    given = str(uuid4())
    job_id = (await submit(ask, {**MAIL, "jobId": given})).json()["jobId"]
    for path in ("", "/status", "/history", "/attempts"):
        by_either = [await ask("alice", "GET", f"/api/jobs/{one}{path}") for one in (given, job_id)]
        assert by_either[0].status_code == 200
        assert by_either[0].json() == by_either[1].json()
    status = (await ask("alice", "GET", f"/api/jobs/{given}/status")).json()
    assert (status["jobId"], status["externalId"]) == (job_id, given)
    for verb, then in (("cancel", "Cancelled"), ("redrive", "Queued"), ("cancel", "Cancelled")):
        response = await ask("operator", "POST", f"/api/jobs/{given}/{verb}")
        assert (response.status_code, response.json()["status"]) == (200, then)
        assert response.headers["location"] == f"/api/jobs/{job_id}/status"
        assert (await ask("eve", "POST", f"/api/jobs/{given}/{verb}")).status_code == 404
    assert (await ask("admin", "DELETE", f"/api/jobs/{given}")).status_code == 204
    assert await stored(jobs) == []
    assert (await submit(ask, {**MAIL, "payload": "b", "jobId": given})).status_code == 202


OWNED = {"jobType": "owned", "payload": {"documentId": "d1"}, "idempotencyKey": "k"}


async def test_the_key_of_a_job_that_one_may_not_read_is_a_conflict_without_details(
    ask: Asker, jobs: Gantline
) -> None:
    """And the same one for every payload: it must not show what the other job's payload is."""
    first = (await submit(ask, {**DOCUMENT, "subjectId": "secret-subject"})).json()
    key = {"idempotencyKey": "doc-d1-v5"}
    other = {**DOCUMENT, "payload": {"documentId": "d2", "rowVersion": 1}, **key}
    for _ in range(2):
        same = await submit(ask, DOCUMENT, "bob")
        differs = await submit(ask, other, "bob")
        for response in (same, differs):
            problem = response.json()
            assert (response.status_code, problem["errorCode"]) == (409, "IDEMPOTENCY_CONFLICT")
            assert first["jobId"] not in response.text
            assert "secret-subject" not in response.text
        assert same.json()["detail"] == differs.json()["detail"]
        batch = (await ask("bob", "POST", "/api/jobs/batch", {"jobs": [DOCUMENT]})).json()
        assert batch["items"][0]["problem"]["errorCode"] == "IDEMPOTENCY_CONFLICT"
        assert first["jobId"] not in str(batch)
        await run_all(jobs)
    seen = (await submit(ask, DOCUMENT, "operator")).json()
    assert (seen["jobId"], seen["status"]) == (first["jobId"], "Completed")
    assert (seen["duplicate"], seen["subjectId"]) == (True, "secret-subject")


async def test_the_id_of_a_colleagues_job_is_a_conflict_too(ask: Asker) -> None:
    given = {**MAIL, "jobId": str(uuid4())}
    assert (await submit(ask, given)).status_code == 202
    response = await submit(ask, given, "bob")
    assert (response.status_code, response.json()["errorCode"]) == (409, "JOB_ID_CONFLICT")
    assert (await submit(ask, given)).json()["duplicate"] is True


async def test_who_may_not_even_read_his_own_job_finds_it_again(ask: Asker) -> None:
    first = (await submit(ask, DOCUMENT, "submitter")).json()
    again = await submit(ask, DOCUMENT, "submitter")
    assert (again.status_code, again.json()) == (202, {**first, "status": None, "duplicate": True})


async def test_keys_of_a_type_that_says_so_are_each_owners_own(ask: Asker, jobs: Gantline) -> None:
    """So nobody takes a key before a colleague does."""
    first = (await submit(ask, OWNED, "bob")).json()
    mine = await submit(ask, {**OWNED, "payload": {"documentId": "d1", "rowVersion": 2}})
    assert (mine.status_code, mine.json()["duplicate"]) == (202, False)
    assert (await submit(ask, OWNED, "bob")).json()["jobId"] == first["jobId"]
    again = await submit(ask, OWNED)
    assert (again.status_code, again.json()["errorCode"]) == (409, "IDEMPOTENCY_CONFLICT")
    keys = {one.job.created_by: one.job.idempotency_key for one in await stored(jobs)}
    assert keys == {"user:bob": "user:bob/k", "user:alice": "user:alice/k"}


# -- refusals -------------------------------------------------------------------------------------


async def test_an_unknown_type_is_refused(ask: Asker, jobs: Gantline) -> None:
    response = await submit(ask, {"jobType": "nonsense", "payload": {}})
    assert (response.status_code, response.json()["errorCode"]) == (422, "UNKNOWN_JOB_TYPE")
    assert response.json()["errors"][0]["pointer"] == "#/jobType"
    assert await stored(jobs) == []


@pytest.mark.parametrize(
    ("payload", "pointer"),
    [
        ({"documentId": 5}, "#/payload/documentId"),
        ({"documentId": "d", "flags": ["a", 2]}, "#/payload/flags/1"),
        ({"rowVersion": 1}, "#/payload/documentId"),
        (None, "#/payload"),
        ([], "#/payload"),
    ],
)
async def test_a_payload_that_is_not_of_its_type_is_pointed_at(
    ask: Asker, jobs: Gantline, payload: Any, pointer: str
) -> None:
    response = await submit(ask, {**DOCUMENT, "payload": payload})
    assert (response.status_code, response.json()["errorCode"]) == (422, "VALIDATION_ERROR")
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
    assert await stored(jobs) == []


async def test_the_stored_payload_is_what_the_type_makes_of_it(ask: Asker, jobs: Gantline) -> None:
    """So that a submit over HTTP and one in Python of the same document are the same job."""
    payload = {"documentId": "d1", "rowVersion": 5, "unknown": "dropped"}
    await submit(ask, {**DOCUMENT, "payload": payload})
    (job,) = await stored(jobs)
    assert job.job.data() == {"documentId": "d1", "rowVersion": 5, "flags": []}


async def test_a_payload_that_is_too_large_is_413(ask: Asker, jobs: Gantline) -> None:
    response = await submit(ask, {**MAIL, "payload": "x" * 70_000})
    assert (response.status_code, response.json()["errorCode"]) == (413, "PAYLOAD_TOO_LARGE")
    assert await stored(jobs) == []


async def test_a_type_that_is_switched_off_is_503(ask: Asker, jobs: Gantline) -> None:
    await jobs.switches.disable_type("mail")
    response = await submit(ask, MAIL)
    assert (response.status_code, response.json()["errorCode"]) == (503, "JOB_TYPE_DISABLED")
    assert await stored(jobs) == []


async def test_a_type_that_is_full_is_503(ask: Asker, jobs: Gantline) -> None:
    for number in range(5):
        assert (await submit(ask, {**MAIL, "payload": str(number)})).status_code == 202
    response = await submit(ask, MAIL)
    assert (response.status_code, response.json()["errorCode"]) == (503, "QUEUE_FULL")
    assert len(await stored(jobs)) == 5


async def test_what_was_accepted_before_is_found_though_no_more_is_taken(
    ask: Asker, jobs: Gantline
) -> None:
    given = {**MAIL, "jobId": str(uuid4())}
    first = (await submit(ask, MAIL, idempotency_key="abc")).json()
    second = (await submit(ask, given)).json()
    await jobs.switches.disable_type("mail")
    again = await submit(ask, MAIL, idempotency_key="abc")
    assert (again.status_code, again.json()) == (202, {**first, "duplicate": True})
    assert (await submit(ask, given)).json() == {**second, "duplicate": True}
    assert (await submit(ask, MAIL, idempotency_key="other")).status_code == 503
    assert len(await stored(jobs)) == 2


async def test_a_queue_that_is_full_is_503_for_all_its_types(ask: Asker, jobs: Gantline) -> None:
    await jobs.switches.cap_queue("documents", 1)
    assert (await submit(ask)).status_code == 202
    assert (await submit(ask, OTHER)).json()["errorCode"] == "QUEUE_FULL"
    assert (await submit(ask, MAIL)).status_code == 202
    there = await submit(ask, {**MAIL, "queue": "documents"}, "system")
    assert there.json()["errorCode"] == "QUEUE_FULL"
    await jobs.switches.cap_queue("documents", None)
    assert (await submit(ask, OTHER)).status_code == 202


async def test_nobody_submits_for_another_tenant_but_the_system(ask: Asker, jobs: Gantline) -> None:
    body = {**MAIL, "tenantId": "acme"}
    assert (await submit(ask, body, "eve")).status_code == 404
    assert await stored(jobs) == []
    assert (await submit(ask, body, "system")).status_code == 202
    (job,) = await stored(jobs)
    assert (job.job.tenant_id, job.job.created_by) == ("acme", "user:system")


async def test_a_caller_bound_to_other_types_is_403(ask: Asker, jobs: Gantline) -> None:
    assert (await submit(ask, DOCUMENT, "mailer")).status_code == 403
    assert await stored(jobs) == []
    assert (await submit(ask, MAIL, "mailer")).status_code == 202


# -- batches --------------------------------------------------------------------------------------


async def test_each_job_of_a_batch_is_taken_or_refused_on_its_own(
    ask: Asker, jobs: Gantline
) -> None:
    batch = {
        "jobs": [
            DOCUMENT,
            {"jobType": "nonsense"},
            {**DOCUMENT, "payload": {"documentId": 1}},
            {**MAIL, "priority": 9},
            {**MAIL, "queue": ""},
            {**MAIL, "tenantId": "other"},
            DOCUMENT,
            MAIL,
        ]
    }
    response = await ask("alice", "POST", "/api/jobs/batch", batch)
    body = response.json()
    assert response.status_code == 202
    assert (body["accepted"], body["rejected"]) == (3, 5)
    codes = [item["problem"] and item["problem"]["errorCode"] for item in body["items"]]
    assert codes == [
        None,
        "UNKNOWN_JOB_TYPE",
        "VALIDATION_ERROR",
        "VALIDATION_ERROR",
        "VALIDATION_ERROR",
        "NOT_FOUND",
        None,
        None,
    ]
    pointers = [item["problem"]["errors"][0]["pointer"] for item in body["items"][2:5]]
    assert pointers == ["#/jobs/2/payload/documentId", "#/jobs/3/priority", "#/jobs/4/queue"]
    assert body["items"][6]["job"]["duplicate"] is True
    assert len(await stored(jobs)) == 2


async def test_a_repeated_batch_finds_its_jobs(ask: Asker, jobs: Gantline) -> None:
    headers = {"idempotency-key": "batch-1"}
    batch = {"jobs": [MAIL, {**MAIL, "payload": "b@example.org"}]}
    first = (await ask("alice", "POST", "/api/jobs/batch", batch, headers=headers)).json()
    again = (await ask("alice", "POST", "/api/jobs/batch", batch, headers=headers)).json()
    for one, other in zip(first["items"], again["items"], strict=True):
        assert other["job"] == {**one["job"], "duplicate": True}
    changed = {"jobs": [MAIL, {**MAIL, "payload": "c@example.org"}]}
    third = (await ask("alice", "POST", "/api/jobs/batch", changed, headers=headers)).json()
    assert third["items"][1]["problem"]["errorCode"] == "IDEMPOTENCY_KEY_REUSED"
    assert len(await stored(jobs)) == 2


async def test_what_a_full_queue_refuses_of_a_batch_is_told_item_by_item(
    ask: Asker, jobs: Gantline
) -> None:
    batch = {"jobs": [{**MAIL, "payload": str(number)} for number in range(7)]}
    body = (await ask("alice", "POST", "/api/jobs/batch", batch)).json()
    assert (body["accepted"], body["rejected"]) == (5, 2)
    assert {item["problem"]["errorCode"] for item in body["items"][5:]} == {"QUEUE_FULL"}
    assert len(await stored(jobs)) == 5


@pytest.mark.parametrize("batch", [{"jobs": []}, {}, {"jobs": [MAIL] * 1001}, []])
async def test_a_batch_that_is_none_is_refused_whole(
    ask: Asker, jobs: Gantline, batch: Any
) -> None:
    assert (await ask("alice", "POST", "/api/jobs/batch", batch)).status_code == 422
    assert await stored(jobs) == []


async def test_an_older_payload_is_upgraded_and_a_newer_refused(ask: Asker, jobs: Gantline) -> None:
    def upgrade(data: Any, version: int) -> Any:
        return {"to": data} if version == 1 else data

    @jobs.job("letter", version=2, upgrade=upgrade)
    async def letter(to: dict[str, str]) -> None: ...

    old = {"jobType": "letter", "payload": "somebody", "payloadVersion": 1}
    response = await submit(ask, old)
    job = await standing(jobs, response.json()["jobId"])
    assert (job.job.data(), job.job.payload_version) == ({"to": "somebody"}, 2)
    newer = await submit(ask, {"jobType": "letter", "payload": {}, "payloadVersion": 3})
    assert newer.json()["errors"][0]["pointer"] == "#/payloadVersion"


async def test_a_store_that_is_being_moved_is_503_for_whatever_would_change_it(
    ask: Asker, jobs: Gantline
) -> None:
    job_id = (await submit(ask, MAIL)).json()["jobId"]
    await close(jobs.store)
    jobs.switches.invalidate()
    refused = [
        await submit(ask, OTHER),
        await ask("alice", "POST", f"/api/jobs/{job_id}/cancel"),
    ]
    for response in refused:
        body = response.json()
        assert (response.status_code, body["errorCode"]) == (503, "STORE_CLOSED")
        assert body["retryable"]
        assert body["detail"].endswith("Try again later.")
        assert response.headers["retry-after"] == "5"
        assert NAMES.target not in response.text
    assert (await ask("alice", "GET", f"/api/jobs/{job_id}/status")).json()["status"] == "Queued"
    await reopen(jobs.store)
    jobs.switches.invalidate()
    assert (await submit(ask, OTHER)).status_code == 202


async def test_several_arguments_are_sent_by_their_names(ask: Asker, jobs: Gantline) -> None:
    @jobs.job("add", subject="{a}")
    def add(a: int, b: int = 2) -> int:
        return a + b

    accepted = await submit(ask, {"jobType": "add", "payload": {"a": 1}})
    assert (accepted.status_code, accepted.json()["subjectId"]) == (202, "1")
    (job,) = await stored(jobs)
    assert job.job.data() == {"a": 1, "b": 2}
    for payload, pointer in (({"b": 1}, "#/payload/a"), ({"a": "x"}, "#/payload/a")):
        refused = await submit(ask, {"jobType": "add", "payload": payload})
        assert refused.status_code == 422
        assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]
    unknown = await submit(ask, {"jobType": "add", "payload": {"a": 1, "c": 1}})
    assert "unknown field `c`" in unknown.text
