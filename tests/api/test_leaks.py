"""Nobody sees what is not his: every principal, every job, every endpoint.

The jobs carry marks: what only readers may see, and what only readers of payloads may see. No
answer of any kind may hold a mark that is not for its principal. What is for whom is said here by a
table of its own, not by asking the authorizer.
"""

from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

from gantline import Gantline
from gantline.contract.outcome import ErrorInfo, Failure
from gantline.testing.faults import Call, intercepted
from tests.api.application import AuditKept, ByName
from tests.api.conftest import Asker, asker_of
from tests.api.playing import claim, settle, success
from tests.api.test_submit import submit

WHO = ("alice", "bob", "viewer", "operator", "admin", "mailer", "submitter", "eve", "system")
TENANTS = {"eve": "evil", "system": "default"}
READS = {"viewer", "operator", "admin"}
READS_PAYLOADS = ACTS = {"operator", "admin"}


class Marked(NamedTuple):
    """A job with its marks: `public` for who may read it, `secret` for who may read its payload."""

    job_id: str
    tenant: str
    owner: str
    subject: str
    job_type: str
    public: str
    secret: str


def may_read(who: str, job: Marked) -> bool:
    if who == "submitter":
        return False
    return _is_for(who, job, READS)


def may_read_payload(who: str, job: Marked) -> bool:
    if who in ("submitter", "mailer"):
        return False
    return _is_for(who, job, READS_PAYLOADS)


def may_act(who: str, job: Marked) -> bool:
    return may_read_payload(who, job)


def _is_for(who: str, job: Marked, by_role: set[str]) -> bool:
    if who == "system":
        return True
    if TENANTS.get(who, "acme") != job.tenant:
        return False
    if who == "mailer" and job.job_type != "mail":
        return False
    if who == "eve" or who in by_role:
        return True
    return job.owner == who or (who == "bob" and job.subject == "doc-of-bob")


@pytest.fixture
async def marked(ask: Asker, jobs: Gantline) -> list[Marked]:
    """Jobs of everybody, queued, running, completed and dead."""
    owners = ("alice", "bob", "operator", "mailer", "eve")
    made = [await _made(ask, owner, number) for owner in owners for number in range(4)]
    for run in await claim(jobs):
        job = next(one for one in made if one.job_id == str(run.job.job_id))
        match made.index(job) % 4:
            case 0:
                continue  # goes on running
            case 1:
                error = ErrorInfo("FAILED", f"message {job.public}", f"detail {job.secret}")
                await settle(jobs, run, Failure(error, retryable=False))
            case 2:
                error = ErrorInfo("NETWORK_ERROR", f"message {job.public}", job.secret)
                await settle(jobs, run, Failure(error))
            case _:
                await settle(jobs, run, success({"result": job.public}))
    return made


async def _made(ask: Asker, owner: str, number: int) -> Marked:
    public, secret = f"public{uuid4().hex}", f"secret{uuid4().hex}"
    kind = "mail" if owner == "mailer" else "document-indexing"
    subject = ("", "d1", "doc-of-bob", "other")[number]
    payload: Any = secret if kind == "mail" else {"documentId": secret, "flags": [public]}
    body = {
        "jobType": kind,
        "payload": payload,
        "subjectId": subject,
        "correlationId": public,
        "idempotencyKey": f"key-{secret}",
    }
    response = await submit(ask, body, owner)
    assert response.status_code == 202, response.text
    tenant = TENANTS.get(owner, "acme")
    job_id = response.json()["jobId"]
    return Marked(job_id, tenant, owner, subject, kind, public, secret)


def check_marks(who: str, text: str, marked: list[Marked], *, sent: str = "") -> None:
    """No mark that is not for this principal; what it sent itself may come back."""
    for job in marked:
        if job.public in text and job.public not in sent:
            assert may_read(who, job), f"{who} sees {job}"
        if job.secret in text and job.secret not in sent:
            assert may_read_payload(who, job), f"{who} sees the payload of {job}"


def expected(who: str, job: Marked, *, allowed: bool, success: set[int]) -> set[int]:
    if allowed:
        return success
    same_tenant = who == "system" or TENANTS.get(who, "acme") == job.tenant
    return {403} if same_tenant else {404}


@pytest.mark.parametrize("who", WHO)
async def test_one_job_at_a_time(ask: Asker, marked: list[Marked], who: str) -> None:
    for job in marked:
        allowed = may_read(who, job)
        for path in ("", "/status", "/history", "/attempts"):
            response = await ask(who, "GET", f"/api/jobs/{job.job_id}{path}")
            statuses = expected(who, job, allowed=allowed, success={200})
            assert response.status_code in statuses, (who, job, path, response.text)
            check_marks(who, response.text, marked)
        response = await ask(who, "GET", f"/api/dead-letters/{job.job_id}")
        assert response.status_code in expected(who, job, allowed=allowed, success={200, 404})
        check_marks(who, response.text, marked)


@pytest.mark.parametrize("who", WHO)
async def test_every_action_on_a_job(
    ask: Asker, jobs: Gantline, marked: list[Marked], audit: AuditKept, who: str
) -> None:
    for job in marked:
        allowed = may_act(who, job)
        before = (await jobs.store.get([_uuid(job)], tenant_id=None))[0]
        for method, path, body in (
            ("POST", "/redrive", None),
            ("POST", "/edited-redrive", {"priority": 1}),
            ("POST", "/cancel", None),
            ("DELETE", "", None),
        ):
            audit.entries.clear()
            response = await ask(who, method, f"/api/jobs/{job.job_id}{path}", body)
            done = expected(who, job, allowed=allowed, success={200, 202, 204, 404, 409})
            assert response.status_code in done, (who, job, path, response.text)
            check_marks(who, response.text, marked)
            assert audit.entries, (who, path)
            if not allowed:
                told = {403: "forbidden", 404: "hidden"}[response.status_code]
                assert [entry.outcome for entry in audit.entries] == [told]
        if not allowed:
            after = (await jobs.store.get([_uuid(job)], tenant_id=None))[0]
            assert after == before


async def test_the_audit_trail_tells_nobody_of_what_is_anothers(
    jobs: Gantline, marked: list[Marked]
) -> None:
    """With the sink that one gets without asking: everybody has tried everything."""
    async with asker_of(jobs.api(authenticator=ByName())) as ask:
        for who in WHO:
            for job in marked:
                await ask(who, "GET", f"/api/jobs/{job.job_id}")
                await ask(who, "POST", f"/api/jobs/{job.job_id}/cancel")
        await jobs.close()
        for who in ("admin", "eve"):
            response = await ask(who, "GET", "/api/audit?limit=200")
            assert response.status_code == 200
            check_marks(who, response.text, marked)
            mine, other = ("acme", "evil") if who == "admin" else ("evil", "acme")
            assert mine in response.text
            assert other not in response.text


@pytest.mark.parametrize("who", WHO)
async def test_every_list_and_number(ask: Asker, marked: list[Marked], who: str) -> None:
    own = TENANTS.get(who, "acme")
    lists = ("/api/jobs", "/api/dead-letters")
    filters = ["", *(f"subjectId={one.subject}" for one in marked[:4]), "createdBy=user:alice"]
    filters += [f"correlationId={marked[0].public}", "jobType=mail", "status=Failed", "limit=3"]
    for path in lists:
        for wanted in filters:
            if path == "/api/dead-letters" and wanted.split("=")[0] not in ("", "subjectId"):
                continue
            response = await ask(who, "GET", f"{path}?{wanted}".rstrip("?"))
            assert response.status_code in ({403} if who == "submitter" else {200})
            check_marks(who, response.text, marked, sent=wanted)
            shown = [item["jobId"] for item in response.json().get("items", [])]
            for job in marked:
                assert job.job_id not in shown or (may_read(who, job) and job.tenant == own)
    if who not in ("submitter",):
        everything = (await ask(who, "GET", "/api/jobs?limit=200")).json()["items"]
        visible = {job.job_id for job in marked if may_read(who, job) and job.tenant == own}
        assert {item["jobId"] for item in everything} == visible
    response = await ask(who, "GET", "/api/audit")
    assert response.status_code == (200 if who in ("admin", "eve", "system") else 403)
    for path in ("/api/stats", "/api/stats/scale", "/api/queues", "/api/dead-letters/summary"):
        response = await ask(who, "GET", path)
        sees = who in READS or who in ("eve", "system")
        assert response.status_code == (200 if sees else 403)
        check_marks(who, response.text, marked)


@pytest.mark.parametrize("who", WHO)
async def test_naming_another_tenant(ask: Asker, marked: list[Marked], who: str) -> None:
    other = "acme" if who == "eve" else "evil"
    for path in (
        "/api/jobs",
        "/api/dead-letters",
        "/api/dead-letters/summary",
        "/api/stats",
        "/api/stats/scale",
        "/api/queues",
        "/api/audit",
    ):
        response = await ask(who, "GET", f"{path}?tenantId={other}")
        assert response.status_code == (200 if who == "system" else 404)
        check_marks(who, response.text, marked)
    body = {"all": True, "tenantId": other, "dryRun": True}
    response = await ask(who, "POST", "/api/dead-letters/redrive", body)
    assert response.status_code == (200 if who == "system" else 404)
    response = await submit(ask, {"jobType": "sweep", "tenantId": other}, who)
    assert response.status_code == (202 if who == "system" else 404)


@pytest.mark.parametrize("who", WHO)
async def test_a_redrive_by_filter_touches_nobody_elses(
    ask: Asker, jobs: Gantline, marked: list[Marked], who: str
) -> None:
    own = TENANTS.get(who, "acme")
    before = {job.job_id: await _version(jobs, job) for job in marked}
    ids = [job.job_id for job in marked]
    for body in ({"all": True, "dryRun": True}, {"jobIds": ids, "dryRun": True}, {"jobIds": ids}):
        response = await ask(who, "POST", "/api/dead-letters/redrive", body)
        assert response.status_code in ({403} if who in ("submitter", "mailer") else {200})
        check_marks(who, response.text, marked)
    for job in marked:
        if not (may_act(who, job) and job.tenant == own):
            assert await _version(jobs, job) == before[job.job_id]
            assert job.job_id not in response.text


@pytest.mark.parametrize("who", WHO)
async def test_submitting_what_is_there_already(
    ask: Asker, jobs: Gantline, marked: list[Marked], who: str
) -> None:
    """By the same id, by the same key, in batches: only the id of the tenant's own comes back."""
    for job in marked:
        (stored,) = await jobs.store.get([_uuid(job)], tenant_id=None)
        assert stored is not None
        envelope = {
            "jobType": job.job_type,
            "payload": stored.job.data(),
            "idempotencyKey": stored.job.idempotency_key,
        }
        sent = str(envelope)
        for body in ({**envelope, "jobId": job.job_id}, envelope):
            one = await submit(ask, body, who)
            many = await ask(who, "POST", "/api/jobs/batch", {"jobs": [body]})
            for response in (one, many):
                check_marks(who, response.text, marked, sent=sent)
                if TENANTS.get(who, "acme") != job.tenant:
                    assert job.job_id not in response.text


@pytest.mark.parametrize(
    ("who", "status", "more"),
    [("mailer", 403, {}), ("eve", 404, {"tenantId": "acme"}), ("alice", 422, {})],
)
async def test_who_may_not_submit_is_not_told_what_it_would_have_to_be(
    ask: Asker, who: str, status: int, more: dict[str, str]
) -> None:
    body = {"jobType": "document-indexing", "payload": {"documentId": 5}, **more}
    one = await submit(ask, body, who)
    many = await ask(who, "POST", "/api/jobs/batch", {"jobs": [body]})
    problem = many.json()["items"][0]["problem"]
    assert one.status_code == problem["status"] == status
    for text in (one.text, str(problem)):
        assert ("documentId" in text) is (status == 422)


async def test_a_job_that_is_not_there_costs_the_same_calls_as_another_tenants(
    ask: Asker, jobs: Gantline, marked: list[Marked]
) -> None:
    calls: list[str] = []

    async def noting(verb: str, call: Call) -> Any:
        calls.append(verb)
        return await call()

    jobs.store = intercepted(jobs.store, noting)
    theirs = next(job for job in marked if job.tenant == "evil")
    seen = []
    for job_id in (theirs.job_id, str(uuid4())):
        calls.clear()
        texts = []
        for method, path in (("GET", "/status"), ("GET", ""), ("GET", "/history")):
            response = await ask("operator", method, f"/api/jobs/{job_id}{path}")
            texts.append(response.text.replace(job_id, "ID"))
            assert response.status_code == 404
        for verb in ("cancel", "redrive"):
            response = await ask("operator", "POST", f"/api/jobs/{job_id}/{verb}")
            assert response.status_code == 404
        seen.append(list(calls))
        problem = response.json()
        assert problem["detail"].replace(job_id, "ID") == "There is no job ID."
    assert seen[0] == seen[1]


def _uuid(job: Marked) -> Any:
    return UUID(job.job_id)


async def _version(jobs: Gantline, job: Marked) -> int:
    (found,) = await jobs.store.get([_uuid(job)], tenant_id=None)
    assert found is not None
    return found.version
