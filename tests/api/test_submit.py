"""Submitting over HTTP: the 202 of the contract, and nothing stored that was refused."""

from uuid import UUID, uuid4

import pytest

from tests.api.conftest import Asker
from windlass import Windlass
from windlass.contract.query import JobFilter
from windlass.contract.snapshot import JobSnapshot

DOCUMENT = {"jobType": "document-indexing", "payload": {"documentId": "d1", "rowVersion": 5}}


async def stored(jobs: Windlass) -> list[JobSnapshot]:
    return list((await jobs.store.find(JobFilter(tenant_id=None), limit=200)).items)


async def test_a_submit_answers_202_with_the_five_keys_in_order(ask: Asker, jobs: Windlass) -> None:
    response = await ask("alice", "POST", "/api/jobs", DOCUMENT)
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


async def test_the_status_tells_where_the_job_stands(ask: Asker, jobs: Windlass) -> None:
    accepted = (await ask("alice", "POST", "/api/jobs", DOCUMENT)).json()
    response = await ask("alice", "GET", accepted["statusUrl"])
    status = response.json()
    assert response.status_code == 200
    assert response.headers["cache-control"] == "private, no-cache"
    assert status["jobId"] == accepted["jobId"]
    assert (status["status"], status["state"], status["attempt"]) == ("Queued", "Queued", 1)
    assert "payload" not in status
    assert response.headers["etag"] == f'"{accepted["jobId"]}-1-Queued"'


async def test_without_credentials_nothing_is_told_and_nothing_stored(
    ask: Asker, jobs: Windlass
) -> None:
    assert (await ask(None, "POST", "/api/jobs", DOCUMENT)).status_code == 401
    assert (await ask("mallory", "POST", "/api/jobs", DOCUMENT)).status_code == 401
    assert (await ask(None, "GET", f"/api/jobs/{uuid4()}/status")).status_code == 401
    assert await stored(jobs) == []


@pytest.mark.parametrize("who", ["eve", "bob", "submitter"])
async def test_another_tenants_job_is_404_and_a_colleagues_403(ask: Asker, who: str) -> None:
    accepted = (await ask("alice", "POST", "/api/jobs", DOCUMENT)).json()
    response = await ask(who, "GET", accepted["statusUrl"])
    assert response.status_code == (404 if who == "eve" else 403)
