"""Envelopes over HTTP: what is ignored is named, and what counts only by a right needs it."""

from typing import Any
from uuid import uuid4

import pytest

from gantline import Gantline
from tests.api.application import AuditKept
from tests.api.conftest import Asker
from tests.api.playing import stored
from tests.api.test_submit import DOCUMENT, MAIL, submit

OWNED: dict[str, Any] = {"jobType": "owned", "payload": {"documentId": "d1"}}
IGNORED = "is not known here and was ignored"


def pointers(body: Any) -> list[str]:
    return [warning["pointer"] for warning in body.get("warnings", [])]


async def batch(ask: Asker, body: Any, who: str = "alice") -> Any:
    (item,) = (await ask(who, "POST", "/api/jobs/batch", {"jobs": [body]})).json()["items"]
    return item


# -- what is not known ------------------------------------------------------------------------


async def test_members_that_are_not_known_are_ignored_and_named(ask: Asker, jobs: Gantline) -> None:
    strange = {"partitionKey": "p", "externalId": str(uuid4()), "a/b": 1}
    expected = ["#/partitionKey", "#/externalId", "#/a~1b"]
    body = (await submit(ask, {**MAIL, **strange})).json()
    assert body["warnings"] == [{"pointer": one, "detail": IGNORED} for one in expected]
    item = await batch(ask, {**MAIL, "payload": "b", **strange})
    assert pointers(item["job"]) == expected
    again = (await submit(ask, {**DOCUMENT, **strange})).json()
    assert pointers(again) == expected
    assert all(job.job.external_id is None for job in await stored(jobs))


async def test_warnings_are_bounded_and_cannot_steer_a_terminal(ask: Asker) -> None:
    nasty = {"\x1b[2J": 1, "\u202eoff": 1, "x" * 10_000: 1}
    many = {f"m{number}": number for number in range(500)}
    answer = await submit(ask, {**MAIL, **nasty, **many})
    warnings = answer.json()["warnings"]
    assert [one["pointer"] for one in warnings[:3]] == [
        "#/\\x1b[2J",
        "#/\\u202eoff",
        f"#/{'x' * 64}…",
    ]
    assert warnings[20] == {
        "pointer": "#",
        "detail": "has 483 more that are not known and were ignored",
    }
    assert len(warnings) == 21


async def test_null_is_not_said(ask: Asker, jobs: Gantline) -> None:
    names = (
        "jobId subjectId correlationId idempotencyKey attempt maxAttempts createdAt tenantId queue "
        "priority scheduledAt delaySeconds expiresAt payloadVersion createdBy parentJobId "
        "traceContext"
    )
    said = await submit(ask, {**MAIL, **dict.fromkeys(names.split())})
    plain = await submit(ask, MAIL)
    assert "warnings" not in said.json()
    one, other = await stored(jobs)
    assert (one.job.max_attempts, one.job.queue) == (other.job.max_attempts, other.job.queue)
    assert plain.status_code == said.status_code == 202


async def test_an_answer_that_waited_has_the_warnings_too(ask: Asker, jobs: Gantline) -> None:
    async with jobs.running():
        waited = await submit(ask, {**MAIL, "strange": 1}, prefer="wait=10")
    assert (waited.status_code, pointers(waited.json())) == (200, ["#/strange"])


# -- the attempt and the instant ----------------------------------------------------------------


async def test_attempts_that_were_used_elsewhere_are_used(ask: Asker, jobs: Gantline) -> None:
    await submit(ask, {**MAIL, "attempt": 3, "maxAttempts": 3})
    (job,) = await stored(jobs)
    assert (job.attempt, job.job.attempts_used) == (2, 2)


@pytest.mark.parametrize(
    ("created_at", "is_taken"),
    [
        ("0001-01-01T00:00:00Z", True),
        ("2025-12-12T00:00:00+00:00", True),
        ("2026-01-02T11:59:59Z", True),
        ("2026-01-02T12:00:01Z", False),
        ("9999-12-31T23:59:59Z", False),
    ],
)
async def test_a_job_was_created_when_it_says_but_not_in_the_future(
    ask: Asker, created_at: str, is_taken: bool
) -> None:
    """A clock may be ahead by a day."""
    answer = await submit(ask, {**MAIL, "createdAt": created_at})
    item = await batch(ask, {**MAIL, "payload": "b", "createdAt": created_at})
    if is_taken:
        assert answer.status_code == 202
        assert item["job"] is not None
        return
    for problem in (answer.json(), item["problem"]):
        assert problem["errors"] == [{"pointer": "#/createdAt", "detail": "is in the future"}]


# -- the id in a header -------------------------------------------------------------------------


async def test_the_header_names_the_external_id(ask: Asker, jobs: Gantline) -> None:
    given = str(uuid4())
    first = (await submit(ask, MAIL, x_async_request_id=given)).json()
    again = (await submit(ask, {**MAIL, "jobId": given})).json()
    both = (await submit(ask, {**MAIL, "jobId": given}, x_async_request_id=given)).json()
    assert again == both == {**first, "duplicate": True}
    (job,) = await stored(jobs)
    assert str(job.job.external_id) == given
    two = await submit(ask, {**MAIL, "jobId": str(uuid4())}, x_async_request_id=given)
    none = await submit(ask, MAIL, x_async_request_id="mine")
    for refused in (two, none):
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["parameter"] == "X-Async-Request-Id"


# -- in whose name ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "status"),
    [
        ("alice", 403),
        ("submitter", 403),
        ("viewer", 403),
        ("operator", 403),
        ("mailer", 403),
        ("admin", 202),
        ("system", 202),
    ],
)
async def test_only_an_admin_submits_in_somebody_elses_name(
    ask: Asker, jobs: Gantline, audit: AuditKept, who: str, status: int
) -> None:
    body = {**MAIL, "createdBy": "user:bob", "tenantId": "acme"}
    answer = await submit(ask, body, who)
    item = await batch(ask, {**body, "payload": "b"}, who)
    assert answer.status_code == status
    assert (item["job"] is not None) == (status == 202)
    owners = {job.job.created_by for job in await stored(jobs)}
    assert owners == ({"user:bob"} if status == 202 else set())
    if status == 403:
        assert answer.json()["detail"].endswith(
            "This needs the right jobs:submit-for. Leave createdBy out: then the job is the "
            "caller's own."
        )
    # Done or refused, it is in the audit trail: the job does not say who it was.
    kept = [entry for entry in audit.entries if entry.action == "jobs:submit-for"]
    assert {(one.outcome, one.what) for one in kept} == {
        ("allowed" if status == 202 else "forbidden", "createdBy:user:bob")
    }
    assert len(kept) == 2


async def test_an_admin_of_another_tenant_names_nobody_here(ask: Asker, jobs: Gantline) -> None:
    body = {**MAIL, "createdBy": "user:bob", "tenantId": "acme"}
    assert (await submit(ask, body, "eve")).status_code == 404
    assert await stored(jobs) == []


@pytest.mark.parametrize("created_by", [None, "", "user:alice"])
async def test_the_callers_own_name_needs_no_right(
    ask: Asker, jobs: Gantline, audit: AuditKept, created_by: str | None
) -> None:
    assert (await submit(ask, {**MAIL, "createdBy": created_by})).status_code == 202
    (job,) = await stored(jobs)
    assert job.job.created_by == "user:alice"
    assert audit.entries == []


async def test_keys_of_each_owner_are_those_of_whom_the_job_is_for(
    ask: Asker, jobs: Gantline
) -> None:
    body = {**OWNED, "createdBy": "user:bob", "idempotencyKey": "k"}
    first = (await submit(ask, body, "admin")).json()
    again = (await submit(ask, {**OWNED, "idempotencyKey": "k"}, "bob")).json()
    assert again == {**first, "duplicate": True}


# -- of which job -------------------------------------------------------------------------------


async def test_a_parent_that_the_caller_may_read_is_kept_by_either_of_its_ids(
    ask: Asker, jobs: Gantline
) -> None:
    given = str(uuid4())
    parent = (await submit(ask, {**MAIL, "jobId": given})).json()["jobId"]
    for number, named in enumerate((parent, given)):
        body = {**MAIL, "payload": str(number), "parentJobId": named}
        assert "warnings" not in (await submit(ask, body)).json()
        newest = (await stored(jobs))[0]
        assert str(newest.job.parent_job_id) == parent


async def test_any_other_parent_is_ignored_with_the_same_answer(ask: Asker, jobs: Gantline) -> None:
    """Unknown, another tenant's, or a colleague's: nobody learns which."""
    given = str(uuid4())
    foreign = (await submit(ask, {**OWNED, "jobId": given}, "eve")).json()["jobId"]
    of_colleague = (await submit(ask, OWNED, "bob")).json()["jobId"]
    answers = []
    for named in (str(uuid4()), foreign, given, of_colleague):
        body = {**OWNED, "parentJobId": named}
        answer = await submit(ask, body, x_correlation_id="c")
        item = await batch(ask, body)
        assert item["job"]["warnings"] == answer.json()["warnings"]
        answers.append(answer.text.replace(answer.json()["jobId"], "MINE"))
    assert len(set(answers)) == 1
    assert '"pointer":"#/parentJobId"' in answers[0]
    mine = [job for job in await stored(jobs) if job.job.created_by == "user:alice"]
    assert {job.job.parent_job_id for job in mine} == {None}


async def test_a_system_caller_gives_no_job_a_parent_of_another_tenant(ask: Asker) -> None:
    theirs = (await submit(ask, MAIL)).json()["jobId"]
    for tenant_id, expected in (("acme", []), ("evil", ["#/parentJobId"])):
        body = {**MAIL, "payload": "x", "tenantId": tenant_id, "parentJobId": theirs}
        assert pointers((await submit(ask, body, "system")).json()) == expected
