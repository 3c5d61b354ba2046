"""Who is told what: nothing reaches whom it is not for, at first, live or when coming back."""

import asyncio
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from gantline import Gantline
from gantline.auth.authenticator import Credentials
from gantline.auth.principal import Principal
from gantline.contract.errors import InvalidCredentials
from gantline.contract.query import Visibility
from gantline.contract.snapshot import Progress
from tests.api.application import PRINCIPALS, AuditKept, ByName
from tests.api.conftest import Asker
from tests.api.playing import PERMANENT, claim
from tests.api.streams.event_stream import (
    PATIENCE_SECONDS,
    Listener,
    listening_to,
)
from tests.api.streams.playing import HASTY, OPERATOR_DETAIL, new_job, run_all, sealed, settle
from tests.api.test_submit import DOCUMENT, MAIL, OTHER, submit


@pytest.mark.parametrize(("who", "status"), [("eve", 404), ("bob", 403), ("submitter", 403)])
async def test_nobody_follows_a_job_that_he_may_not_read(
    ask: Asker, listen: Listener, audit: AuditKept, who: str, status: int
) -> None:
    job_id = await new_job(ask)
    for path in (f"/api/jobs/{job_id}/events", f"/api/jobs/{job_id}/events?lastEventId=0"):
        stream = await listen(who, path)
        assert (stream.status, stream.headers["content-type"]) == (
            status,
            "application/problem+json",
        )
    outcome = "hidden" if status == 404 else "forbidden"
    assert audit.outcomes()[-1] == (PRINCIPALS[who].id, "jobs:read", outcome)


async def test_without_credentials_nothing_is_told(ask: Asker, listen: Listener) -> None:
    job_id = await new_job(ask)
    for path in (f"/api/jobs/{job_id}/events", "/api/events"):
        for who in (None, "mallory"):
            assert (await listen(who, path)).status == 401


MATRIX = [
    # who, the jobs (by what was submitted) whose events reach him
    ("alice", {"alice's", "alice's mail", "bob's subject"}),
    ("bob", {"bob's", "bob's subject"}),
    ("viewer", {"alice's", "alice's mail", "bob's subject", "bob's", "mailer's"}),
    ("operator", {"alice's", "alice's mail", "bob's subject", "bob's", "mailer's"}),
    ("mailer", {"mailer's"}),
    ("eve", {"eve's"}),
]
SUBMITTED = {
    "alice's": ("alice", "document-indexing", "d1"),
    "alice's mail": ("alice", "mail", "a"),
    "bob's subject": ("alice", "document-indexing", "doc-of-bob"),
    "bob's": ("bob", "document-indexing", "d2"),
    "mailer's": ("mailer", "mail", "b"),
    "eve's": ("eve", "document-indexing", "d1"),
}
QUERIES = (
    "",
    "?jobType=document-indexing&jobType=mail",
    "?subjectId=d1",
    "?subjectId=doc-of-bob",
    "?{ids}",
)


def _body(job_type: str, about: str) -> dict[str, Any]:
    payload = about if job_type == "mail" else {"documentId": about}
    return {"jobType": job_type, "payload": payload}


@pytest.mark.parametrize(("who", "seen"), MATRIX, ids=[who for who, _ in MATRIX])
@pytest.mark.parametrize("query", QUERIES)
async def test_no_event_reaches_whom_it_is_not_for(
    ask: Asker, listen: Listener, jobs: Gantline, who: str, seen: set[str], query: str
) -> None:
    """Principal by tenant by subject: at first, live, when coming back, and by name."""
    named = {
        what: await new_job(ask, _body(job_type, about), owner)
        for what, (owner, job_type, about) in SUBMITTED.items()
    }
    asked = query.format(ids="&".join(f"jobId={job_id}" for job_id in named.values()))
    admitted = {
        what
        for what in seen
        if "subjectId=" not in query or SUBMITTED[what][2] == query.partition("=")[2]
    }
    expected = {named[what] for what in admitted}
    live = await listen(who, f"/api/events{asked}")
    for run in await claim(jobs):
        await jobs.store.progress([Progress(run.ref, 10)])
        await settle(jobs, run, PERMANENT)
    last = await jobs.store.last_event()
    assert last == len(SUBMITTED)
    start = await sealed(jobs, 0, PRINCIPALS[who].tenant_id)
    back = await listen(who, f"/api/events{asked}", last=start)
    for stream in (live, back):
        heard = await stream.hears_up_to(jobs, last)
        assert {event.data["jobId"] for event in heard} == expected
        failed = [event.data["jobId"] for event in heard if event.name == "failed"]
        assert sorted(failed) == sorted(expected)
        body = stream.body.decode()
        for what, job_id in named.items():
            assert (job_id in body) == (job_id in expected), what
        assert not any(detail in body for detail in OPERATOR_DETAIL)


@pytest.mark.parametrize("who", ["eve", "bob", "mailer"])
async def test_a_named_job_of_others_is_told_like_one_that_is_not_there(
    ask: Asker, listen: Listener, jobs: Gantline, who: str
) -> None:
    job_id = await new_job(ask)
    stream = await listen(who, f"/api/events?jobId={job_id}")
    nothing = await listen(who, f"/api/events?jobId={uuid4()}")
    await run_all(jobs)
    for one in (stream, nothing):
        assert one.status == 200
        assert await one.hears_up_to(jobs, 1) == []


async def test_a_tenant_is_named_only_by_who_operates_the_installation(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    assert (await listen("eve", "/api/events?tenantId=acme")).status == 404
    assert (await listen("submitter", "/api/events")).status == 403
    stream = await listen("system", "/api/events?tenantId=acme")
    assert (await stream.hears()).data["jobId"] == job_id
    of_evil = await listen("system", "/api/events?tenantId=evil")
    await run_all(jobs)
    assert (await stream.hears_until("completed"))[-1].data["jobId"] == job_id
    assert await of_evil.hears_up_to(jobs, 1) == []


async def test_an_id_that_changed_hands_is_not_told_to_who_had_it_before(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = str(uuid4())
    await submit(ask, {**DOCUMENT, "jobId": job_id})
    await run_all(jobs)
    stream = await listen("alice", f"/api/events?jobId={job_id}")
    assert (await stream.hears()).shown == ("state", "Completed")
    await ask("operator", "DELETE", f"/api/jobs/{job_id}")
    await submit(ask, {**DOCUMENT, "jobId": job_id}, "eve")
    await run_all(jobs, PERMANENT)
    assert await stream.hears_up_to(jobs, 2) == []
    assert "Failed" not in stream.body.decode()


class Changing:
    """Knows alice as whoever the test says she is now."""

    challenge = "Bearer"

    def __init__(self) -> None:
        self.principal: Principal | None = PRINCIPALS["alice"]
        self.asked = asyncio.Event()

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        self.asked.set()
        if self.principal is None:
            raise InvalidCredentials("The key is revoked.")
        return self.principal

    async def is_asked_twice(self) -> None:
        """Then what was answered first has been heeded."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(2):
                self.asked.clear()
                await self.asked.wait()


async def test_a_revoked_key_ends_the_stream(ask: Asker, jobs: Gantline) -> None:
    who = Changing()
    api = jobs.api(authenticator=who, settings=HASTY)
    async with listening_to(api) as listen:
        job_id = await new_job(ask)
        streams = [
            await listen("alice", path) for path in (f"/api/jobs/{job_id}/events", "/api/events")
        ]
        for stream in streams:
            await stream.hears()
        who.principal = None
        for stream in streams:
            assert await stream.ends() == []
        await run_all(jobs)
        assert all("Completed" not in stream.body.decode() for stream in streams)


@pytest.mark.parametrize(
    "now",
    [
        Principal(id="user:alice", tenant_id="evil"),
        Principal(id="user:eve", tenant_id="acme"),
        Principal(id="user:alice", tenant_id="acme", job_types=frozenset({"mail"})),
        Principal(id="user:alice", tenant_id="acme", scopes=frozenset()),
    ],
    ids=["other tenant", "other person", "other types", "no right"],
)
async def test_rights_that_are_taken_away_end_the_stream_of_a_job(
    ask: Asker, jobs: Gantline, now: Principal
) -> None:
    who = Changing()
    api = jobs.api(authenticator=who, settings=HASTY)
    async with listening_to(api) as listen:
        job_id = await new_job(ask)
        stream = await listen("alice", f"/api/jobs/{job_id}/events")
        await stream.hears()
        who.principal = now
        assert await stream.ends() == []


async def test_rights_that_are_taken_away_narrow_the_stream_of_many(
    ask: Asker, jobs: Gantline
) -> None:
    who = Changing()
    api = jobs.api(authenticator=who, settings=HASTY)
    async with listening_to(api) as listen:
        stream = await listen("alice", "/api/events")
        who.principal = msgspec.structs.replace(PRINCIPALS["alice"], job_types=frozenset({"mail"}))
        await who.is_asked_twice()
        document, mail = await new_job(ask), await new_job(ask, MAIL)
        await run_all(jobs)
        assert (await stream.hears()).data["jobId"] == mail
        assert document not in stream.body.decode()


async def test_rights_that_are_given_widen_the_stream_of_many(ask: Asker, jobs: Gantline) -> None:
    who = Changing()
    async with listening_to(jobs.api(authenticator=who, settings=HASTY)) as listen:
        stream = await listen("alice", "/api/events")
        who.principal = msgspec.structs.replace(PRINCIPALS["alice"], subjects=frozenset({"d2"}))
        await who.is_asked_twice()
        granted = await new_job(ask, OTHER, "bob")
        await run_all(jobs)
        assert (await stream.hears()).data["jobId"] == granted


async def test_every_event_is_asked_for_one_by_one(ask: Asker, jobs: Gantline) -> None:
    """The filter is narrowed already; an authorizer of one's own may say more."""

    class NotD2:
        async def may(self, principal: Principal, action: Any, target: Any) -> bool:
            return bool(target.subject_id != "d2")

        def scope(self, principal: Principal, action: Any) -> Any:
            return Visibility(tenant_id=principal.tenant_id)

    api = jobs.api(authenticator=ByName(), authorizer=NotD2(), settings=HASTY)
    async with listening_to(api) as listen:
        stream = await listen("alice", "/api/events")
        seen, hidden = await new_job(ask), await new_job(ask, OTHER)
        again = await listen("alice", f"/api/events?jobId={seen}&jobId={hidden}")
        await run_all(jobs)
        back = await listen("alice", "/api/events", last=await sealed(jobs, 0))
        for one in (stream, again, back):
            heard = await one.hears_until("completed")
            assert {event.data["jobId"] for event in heard} == {seen}
            assert hidden not in one.body.decode()
