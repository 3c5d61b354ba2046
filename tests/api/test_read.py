"""Reading over HTTP: the truth about a job, as often as somebody asks."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from gantline import Gantline
from gantline.contract.classify import classify
from gantline.contract.outcome import ErrorInfo, Failure
from gantline.contract.query import PruneRule
from gantline.contract.snapshot import Progress
from gantline.contract.status import JobStatus
from gantline.testing.clock import FakeClock
from tests.api.conftest import Asker
from tests.api.playing import PERMANENT, RETRYABLE, claim, run_all, settle, standing, success
from tests.api.test_submit import DOCUMENT, MAIL, submit


async def status_of(ask: Asker, job_id: str, who: str = "alice") -> Any:
    return (await ask(who, "GET", f"/api/jobs/{job_id}/status")).json()


async def submitted(ask: Asker, body: Any = DOCUMENT, who: str = "alice") -> str:
    job_id: str = (await submit(ask, body, who)).json()["jobId"]
    return job_id


async def test_the_status_has_what_the_contract_says(ask: Asker) -> None:
    job_id = await submitted(ask)
    response = await ask("alice", "GET", f"/api/jobs/{job_id}/status")
    status = response.json()
    assert response.headers["cache-control"] == "private, no-cache"
    assert list(status)[:5] == ["jobId", "jobType", "subjectId", "correlationId", "status"]
    for key in (
        "attempt",
        "maxAttempts",
        "createdAt",
        "startedAt",
        "completedAt",
        "errorCode",
        "errorMessage",
        "progress",
        "phase",
        "scheduledAt",
    ):
        assert key in status
    assert status["createdAt"].endswith("Z")
    assert "payload" not in status


async def test_the_status_follows_the_job_to_its_end(ask: Asker, jobs: Gantline) -> None:
    job_id = await submitted(ask)
    (run,) = await claim(jobs)
    await jobs.manager.progress([Progress(run.ref, 40, "parsing")])
    status = await status_of(ask, job_id)
    assert (status["status"], status["progress"], status["phase"]) == ("Running", 40, "parsing")
    await settle(jobs, run, success({"pages": 3}))
    status = await status_of(ask, job_id)
    assert (status["status"], status["progress"]) == ("Completed", 100)
    assert status["result"] == {"pages": 3}
    assert status["completedAt"] is not None


async def test_an_error_is_shown_safely_and_never_its_detail(ask: Asker, jobs: Gantline) -> None:
    job_id = await submitted(ask)
    await run_all(jobs, PERMANENT)
    status = await status_of(ask, job_id)
    assert (status["errorCode"], status["status"]) == ("DOCUMENT_UNKNOWN", "Failed")
    for path in ("status", "history", "attempts"):
        for who in ("alice", "operator", "admin"):
            text = (await ask(who, "GET", f"/api/jobs/{job_id}/{path}")).text
            assert "There is no such document." in text
            assert "secret detail" not in text


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ("alice", None),
        ("viewer", None),
        ("operator", "KeyError"),
        ("admin", "KeyError"),
        ("system", "KeyError"),
    ],
)
async def test_operators_are_told_of_which_type_an_error_was_and_nobody_else(
    ask: Asker, jobs: Gantline, who: str, told: str | None
) -> None:
    """It says where to look; what the exception said may be anybody's data."""
    job_id = await submitted(ask)
    (run,) = await claim(jobs)
    try:
        raise KeyError("secret detail")
    except KeyError as error:
        failure = classify(error)
    assert isinstance(failure, Failure)
    await settle(jobs, run, Failure(failure.error, retryable=False))
    whole = f"/api/jobs/{job_id}"
    lists = ("/api/jobs?tenantId=acme", "/api/dead-letters?tenantId=acme")
    for path in (
        whole,
        f"/api/dead-letters/{job_id}",
        f"{whole}/history",
        f"{whole}/attempts",
        *lists,
    ):
        response = await ask(who, "GET", path)
        assert response.status_code == 200, path
        shown = response.json()
        assert [one["errorType"] for one in shown.get("items", [shown])] == [told], path
        assert "secret detail" not in response.text
    assert "errorType" not in (await ask(who, "GET", f"{whole}/status")).json()


async def test_an_unchanged_job_is_304(ask: Asker, jobs: Gantline) -> None:
    job_id = await submitted(ask)
    path = f"/api/jobs/{job_id}/status"
    tag = (await ask("alice", "GET", path)).headers["etag"]
    assert tag == f'"{job_id}-1-Queued"'
    for sent in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        response = await ask("alice", "GET", path, headers={"if-none-match": sent})
        assert (response.status_code, response.content) == (304, b"")
        assert response.headers["etag"] == tag
        assert "content-length" not in response.headers
    (run,) = await claim(jobs)
    running = await ask("alice", "GET", path, headers={"if-none-match": tag})
    assert running.status_code == 200
    await jobs.manager.progress([Progress(run.ref, 10)])
    tag = running.headers["etag"]
    assert (await ask("alice", "GET", path, headers={"if-none-match": tag})).status_code == 200


async def test_a_scheduled_job_changes_its_tag_by_time_alone(ask: Asker, clock: FakeClock) -> None:
    job_id = (await submit(ask, {**DOCUMENT, "delaySeconds": 60})).json()["jobId"]
    path = f"/api/jobs/{job_id}/status"
    tag = (await ask("alice", "GET", path)).headers["etag"]
    assert tag.endswith('-Scheduled"')
    clock.advance(timedelta(minutes=2))
    response = await ask("alice", "GET", path, headers={"if-none-match": tag})
    assert response.headers["etag"].endswith('-Queued"')


async def test_a_head_request_has_the_headers_and_no_body(ask: Asker) -> None:
    path = f"/api/jobs/{await submitted(ask)}/status"
    head, get = await ask("alice", "HEAD", path), await ask("alice", "GET", path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == get.headers["etag"]
    assert head.headers["content-length"] == str(len(get.content))


async def test_a_purged_job_is_410_while_its_request_is_remembered(
    ask: Asker, jobs: Gantline, clock: FakeClock
) -> None:
    job_id = (await submit(ask, MAIL, idempotency_key="abc")).json()["jobId"]
    forgotten = (await submit(ask, {**MAIL, "payload": "b"})).json()["jobId"]
    await run_all(jobs)
    clock.advance(timedelta(hours=1))
    rule = PruneRule(JobStatus.COMPLETED, clock.now())
    assert (await jobs.store.prune([rule], limit=10)).jobs == 2
    gone = await ask("alice", "GET", f"/api/jobs/{job_id}/status")
    assert (gone.status_code, gone.json()["errorCode"]) == (410, "JOB_PURGED")
    for who in ("bob", "eve"):
        assert (await ask(who, "GET", f"/api/jobs/{job_id}/status")).status_code == 404
    assert (await ask("operator", "GET", f"/api/jobs/{job_id}/status")).status_code == 410
    assert (await ask("alice", "GET", f"/api/jobs/{forgotten}/status")).status_code == 404
    again = (await submit(ask, MAIL, idempotency_key="abc")).json()
    assert (again["jobId"], again["status"], again["duplicate"]) == (job_id, None, True)
    clock.advance(timedelta(days=1))
    assert (await ask("alice", "GET", f"/api/jobs/{job_id}/status")).status_code == 404


async def test_the_whole_job_shows_its_payload_to_those_who_may_read_it(ask: Asker) -> None:
    job_id = await submitted(ask)
    for who in ("alice", "operator"):
        job = (await ask(who, "GET", f"/api/jobs/{job_id}")).json()
        assert job["payload"] == {"documentId": "d1", "rowVersion": 5, "flags": []}
        assert (job["createdBy"], job["tenantId"], job["queue"]) == (
            "user:alice",
            "acme",
            "documents",
        )
    job = (await ask("viewer", "GET", f"/api/jobs/{job_id}")).json()
    assert job["payload"] is None
    assert job["payloadOmitted"] is not None


async def test_history_and_attempts_tell_every_run(
    ask: Asker, jobs: Gantline, clock: FakeClock
) -> None:
    job_id = await submitted(ask)
    await run_all(jobs, RETRYABLE)
    clock.advance(timedelta(hours=1))
    await claim(jobs)
    history = (await ask("alice", "GET", f"/api/jobs/{job_id}/history")).json()["items"]
    assert [(row["event"], row["errorCode"]) for row in history] == [("retried", "NETWORK_ERROR")]
    attempts = (await ask("alice", "GET", f"/api/jobs/{job_id}/attempts")).json()["items"]
    assert [(one["attempt"], one["outcome"]) for one in attempts] == [(1, "retried"), (2, None)]
    assert attempts[0]["session"] is None
    shown = (await ask("operator", "GET", f"/api/jobs/{job_id}/attempts")).json()["items"]
    assert shown[1]["session"] == "host-1-worker"


# -- lists ----------------------------------------------------------------------------------------


async def listed(ask: Asker, query: str = "", who: str = "alice") -> list[str]:
    response = await ask(who, "GET", f"/api/jobs{query}")
    assert response.status_code == 200, response.text
    return [item["jobId"] for item in response.json()["items"]]


async def test_a_list_has_only_what_the_caller_may_see(ask: Asker) -> None:
    own = await submitted(ask, MAIL)
    shared = await submitted(ask, {**DOCUMENT, "subjectId": "doc-of-bob"}, "operator")
    theirs = await submitted(ask, MAIL, "eve")
    assert await listed(ask) == [own]
    assert await listed(ask, who="bob") == [shared]
    assert sorted(await listed(ask, who="viewer")) == sorted([own, shared])
    assert await listed(ask, who="mailer") == []
    assert await listed(ask, who="eve") == [theirs]
    assert await listed(ask, who="system") == []
    assert await listed(ask, "?tenantId=evil", who="system") == [theirs]
    assert (await ask("submitter", "GET", "/api/jobs")).status_code == 403
    assert (await ask("alice", "GET", "/api/jobs?tenantId=evil")).status_code == 404


async def test_a_list_is_narrowed_before_it_is_paged(ask: Asker, clock: FakeClock) -> None:
    """What others have does not make pages short, nor does their number show."""
    own = [await submitted(ask, {**DOCUMENT, "payload": {"documentId": str(n)}}) for n in range(3)]
    clock.advance(timedelta(seconds=1))
    for number in range(5):
        await submitted(ask, {**DOCUMENT, "payload": {"documentId": f"x{number}"}}, "operator")
    for path in ("/api/jobs?limit=3", "/api/jobs?limit=3&status=Queued"):
        page = (await ask("alice", "GET", path)).json()
        assert sorted(item["jobId"] for item in page["items"]) == sorted(own)
        assert page["nextCursor"] is None


async def test_pages_lead_from_one_to_the_next_and_lose_nothing(
    ask: Asker, clock: FakeClock
) -> None:
    ids = []
    for number in range(5):
        ids.append(await submitted(ask, {**DOCUMENT, "payload": {"documentId": str(number)}}))
        clock.advance(timedelta(seconds=1))
    found: list[str] = []
    path = "/api/jobs?limit=2&jobType=document-indexing&status=Queued"
    while True:
        response = await ask("alice", "GET", path)
        page = response.json()
        found += [item["jobId"] for item in page["items"]]
        if page["nextCursor"] is None:
            assert "link" not in response.headers
            break
        link = response.headers["link"]
        assert link.endswith('>; rel="next"')
        path = link[1 : link.index(">")]
        assert f"cursor={page['nextCursor']}" in path
    assert found == ids[::-1]


async def test_filters_narrow_a_list(ask: Asker, jobs: Gantline, clock: FakeClock) -> None:
    document = await submitted(ask)
    await run_all(jobs)
    clock.advance(timedelta(minutes=1))
    middle = clock.now().isoformat().replace("+", "%2B")
    mail = (await submit(ask, MAIL, x_correlation_id="corr-7")).json()["jobId"]
    assert await listed(ask, "?status=Completed") == [document]
    assert await listed(ask, "?status=SUCCEEDED&status=pending") == [mail, document]
    assert await listed(ask, "?jobType=mail") == [mail]
    assert await listed(ask, "?queue=documents") == [document]
    assert await listed(ask, "?subjectId=d1") == [document]
    assert await listed(ask, "?correlationId=corr-7") == [mail]
    assert await listed(ask, f"?createdFrom={middle}") == [mail]
    assert await listed(ask, f"?createdBefore={middle}") == [document]
    assert await listed(ask, "?createdBy=user:alice") == [mail, document]
    assert await listed(ask, "?createdBy=user:bob") == []
    assert await listed(ask, f"?parentJobId={uuid4()}") == []
    assert await listed(ask, "?minAttempts=1") == [document]
    assert await listed(ask, "?minAttempts=2") == []


async def test_a_list_by_status_takes_what_is_shown_as_state(
    ask: Asker, jobs: Gantline, clock: FakeClock
) -> None:
    due = await submitted(ask, MAIL)
    later = (await submit(ask, {**MAIL, "delaySeconds": 60})).json()["jobId"]
    assert await listed(ask, "?status=Scheduled") == [later]
    assert await listed(ask, "?status=scheduled&status=Completed") == [later]
    assert sorted(await listed(ask, "?status=Queued")) == sorted([due, later])
    assert len(await claim(jobs)) == 1
    assert await listed(ask, "?status=Cancelling") == []
    await ask("alice", "POST", f"/api/jobs/{due}/cancel")
    assert await listed(ask, "?status=Cancelling") == [due]
    soon = (clock.now() + timedelta(seconds=60)).isoformat().replace("+", "%2B")
    after = (clock.now() + timedelta(seconds=61)).isoformat().replace("+", "%2B")
    assert await listed(ask, f"?dueBefore={soon}") == []
    assert await listed(ask, f"?dueBefore={after}") == [later]
    clock.advance(timedelta(seconds=60))
    assert await listed(ask, "?status=Scheduled") == []
    refused = await ask("alice", "GET", "/api/jobs?status=Nowhere")
    assert "Scheduled, Retrying, Cancelling" in refused.json()["detail"]
    failing = await submitted(ask, MAIL)
    await run_all(jobs, Failure(ErrorInfo("BROKEN", "It is broken."), retryable=True))
    assert failing in await listed(ask, "?status=Retrying")


async def test_the_status_of_a_job_that_goes_on_says_when_to_ask_again(
    ask: Asker, jobs: Gantline, clock: FakeClock
) -> None:
    """Not before a Scheduled job is due, nor later than in an hour; never once it has ended."""
    cases = {0: "1", 0.5: "1", 60: "60", 86_400: "3600"}
    for delay, expected in cases.items():
        job_id = (await submit(ask, {**MAIL, "delaySeconds": delay})).json()["jobId"]
        for path in (f"/api/jobs/{job_id}/status", f"/api/jobs/{job_id}"):
            answer = await ask("alice", "GET", path)
            assert answer.headers["retry-after"] == expected, (delay, path)
            tag = {"if-none-match": answer.headers["etag"]}
            unchanged = await ask("alice", "GET", path, headers=tag)
            assert (unchanged.status_code, unchanged.headers["retry-after"]) == (304, expected)
        await ask("alice", "POST", f"/api/jobs/{job_id}/cancel")
        for path in (f"/api/jobs/{job_id}/status", f"/api/jobs/{job_id}"):
            assert "retry-after" not in (await ask("alice", "GET", path)).headers
    job_id = await submitted(ask, MAIL)
    await claim(jobs)
    running = await ask("alice", "GET", f"/api/jobs/{job_id}/status")
    assert (running.json()["status"], running.headers["retry-after"]) == ("Running", "1")


async def test_jobs_are_found_by_the_code_of_their_error(ask: Asker, jobs: Gantline) -> None:
    dead = await submitted(ask)
    await run_all(jobs, Failure(ErrorInfo("BROKEN", "It is broken."), retryable=False))
    await submitted(ask, MAIL)
    assert await listed(ask, "?errorCode=BROKEN&errorCode=OTHER") == [dead]
    assert await listed(ask, "?errorCode=BROKEN&status=Queued") == []
    letters = await ask("alice", "GET", "/api/dead-letters?errorCode=BROKEN&createdBy=user:alice")
    assert [item["jobId"] for item in letters.json()["items"]] == [dead]
    none = await ask("alice", "GET", "/api/dead-letters?errorCode=OTHER")
    assert none.json()["items"] == []


async def test_all_tenants_are_those_that_the_caller_may_see(ask: Asker) -> None:
    mine = await submitted(ask, MAIL)
    theirs = (await ask("system", "POST", "/api/jobs", {**MAIL, "tenantId": "evil"})).json()[
        "jobId"
    ]
    assert set(await listed(ask, "?allTenants=true", "system")) == {mine, theirs}
    assert await listed(ask, "?allTenants=true") == [mine]
    assert await listed(ask, "?allTenants=true", "operator") == [mine]
    assert theirs not in await listed(ask, "?allTenants=false", "system")


async def test_the_mount_and_the_proxy_are_in_every_url(jobs: Gantline) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from tests.api.application import ByName
    from tests.api.conftest import asker_of

    app = Starlette(routes=[Mount("/gantline", jobs.api(authenticator=ByName()))])
    async with asker_of(app) as ask:
        response = await ask("alice", "POST", "/gantline/api/jobs", DOCUMENT)
        url = response.json()["statusUrl"]
        assert url == f"/gantline/api/jobs/{response.json()['jobId']}/status"
        assert (await ask("alice", "GET", url)).status_code == 200
        await ask("alice", "POST", "/gantline/api/jobs", MAIL)
        link = (await ask("alice", "GET", "/gantline/api/jobs?limit=1")).headers["link"]
        assert link.startswith("</gantline/api/jobs?limit=1&cursor=")
        problem = (await ask("alice", "GET", "/gantline/api/nothing")).json()
        assert problem["type"] == "/gantline/api/problems/not-found"
        assert problem["instance"] == "/gantline/api/nothing"


@pytest.mark.parametrize("status", ["Completed", "Failed", "Cancelled"])
async def test_every_end_is_told(ask: Asker, jobs: Gantline, status: str) -> None:
    job_id = await submitted(ask)
    match status:
        case "Completed":
            await run_all(jobs)
        case "Failed":
            await run_all(jobs, PERMANENT)
        case _:
            await ask("alice", "POST", f"/api/jobs/{job_id}/cancel")
    assert (await status_of(ask, job_id))["status"] == status
    assert (await standing(jobs, job_id)).status == status
