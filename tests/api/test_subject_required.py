"""DefaultAuthorizer(subject_required=True): a job is about something, or nobody's own."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gantline import Gantline
from gantline.auth.authorizer import DefaultAuthorizer
from tests.api.application import ByName
from tests.api.conftest import Asker, asker_of
from tests.api.test_submit import DOCUMENT, MAIL, submit

ABOUT = {**MAIL, "subjectId": "letter-1"}


@pytest.fixture
async def strict(jobs: Gantline) -> AsyncIterator[Asker]:
    authorizer = DefaultAuthorizer(subject_required=True)
    async with asker_of(jobs.api(authenticator=ByName(), authorizer=authorizer)) as ask:
        yield ask


def where(response: Any) -> list[str]:
    return [error["pointer"] for error in response.json()["errors"]]


async def test_a_job_without_a_subject_is_refused(strict: Asker) -> None:
    for who in ("alice", "operator"):
        refused = await submit(strict, MAIL, who)
        assert (refused.status_code, refused.json()["errorCode"]) == (422, "VALIDATION_ERROR")
        assert where(refused) == ["#/subjectId"]
    assert (await submit(strict, ABOUT)).status_code == 202
    made_of_the_payload = await submit(strict, DOCUMENT)
    assert made_of_the_payload.json()["subjectId"] == "d1"
    rows = await strict("alice", "POST", "/api/jobs/batch", {"jobs": [MAIL, ABOUT]})
    items = rows.json()["items"]
    assert [item["problem"] and item["problem"]["errorCode"] for item in items] == [
        "VALIDATION_ERROR",
        None,
    ]


async def test_other_faults_are_named_first_and_rights_are_not_told(strict: Asker) -> None:
    bad = await submit(strict, {**DOCUMENT, "payload": {}})
    assert (bad.status_code, where(bad)) == (422, ["#/payload/documentId"])
    refused = await submit(strict, MAIL, "canceller")
    assert (refused.status_code, refused.json()["errorCode"]) == (403, "FORBIDDEN")


async def test_the_status_of_a_job_without_a_subject_is_for_roles_alone(
    ask: Asker, strict: Asker
) -> None:
    job_id = (await submit(ask, MAIL)).json()["jobId"]
    about = (await submit(ask, ABOUT)).json()["jobId"]
    for path in (f"/api/jobs/{job_id}/status", f"/api/jobs/{job_id}"):
        assert (await ask("alice", "GET", path)).status_code == 200
        assert (await strict("alice", "GET", path)).status_code == 403
        assert (await strict("operator", "GET", path)).status_code == 200
    assert (await strict("alice", "POST", f"/api/jobs/{job_id}/cancel")).status_code == 403
    assert (await strict("alice", "GET", f"/api/jobs/{about}/status")).status_code == 200
    for path in ("/api/jobs", "/api/jobs?status=Queued", "/api/jobs?createdBy=user:alice"):
        listed = (await strict("alice", "GET", path)).json()["items"]
        assert [item["jobId"] for item in listed] == [about], path
