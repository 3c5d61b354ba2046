"""GET /api/jobs/{jobId}/why: for whom a job may be read, and no more than the caller may know."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from gantline import Gantline
from gantline.contract.query import LaneRequest
from gantline.manager.sessions import Session, register
from tests.api.conftest import Asker
from tests.api.test_submit import MAIL


async def _why(ask: Asker, who: str, job_id: str) -> Any:
    response = await ask(who, "GET", f"/api/jobs/{job_id}/why")
    assert response.status_code == 200, response.text
    return response.json()


async def _serve(jobs: Gantline, *, slots: int = 1) -> None:
    """A worker lives, and takes what it has slots for."""
    now = await jobs.store.ping()
    session = Session(
        session_id="host-7",
        host="host-7",
        pid=1,
        version="1",
        started_at=now,
        last_seen_at=now,
        queues={"default": slots},
        job_types=("mail", "sweep"),
    )
    await register(jobs.store, session)
    asked = [LaneRequest("default", ("mail", "sweep"), slots)]
    await jobs.store.claim("host-7", uuid4(), asked, lease=timedelta(minutes=1))


async def _submitted(ask: Asker, who: str) -> str:
    job_id: str = (await ask(who, "POST", "/api/jobs", MAIL)).json()["jobId"]
    return job_id


async def test_it_is_answered_to_who_may_read_the_job(ask: Asker) -> None:
    job_id = await _submitted(ask, "alice")
    found = await _why(ask, "alice", job_id)
    assert (found["jobId"], found["jobType"], found["queue"]) == (job_id, "mail", "default")
    assert (found["status"], found["state"]) == ("Queued", "Queued")
    (reason,) = found["reasons"]
    assert (reason["code"], reason["facts"]) == ("NO_WORKERS", {})
    assert reason["nextSteps"][0] == "Start one: gantline worker"
    path = f"/api/jobs/{job_id}/why"
    assert (await ask("bob", "GET", path)).status_code == 403
    assert (await ask("eve", "GET", path)).status_code == 404
    assert (await ask(None, "GET", path)).status_code == 401
    unknown = await ask("alice", "GET", f"/api/jobs/{uuid4()}/why")
    assert (unknown.status_code, unknown.json()["errorCode"]) == (404, "JOB_NOT_FOUND")


@pytest.mark.parametrize(
    ("who", "codes"),
    [
        ("alice", ["IN_LINE"]),
        ("mail-viewer", ["IN_LINE"]),
        ("viewer", ["JOBS_AHEAD", "IN_LINE"]),
        ("operator", ["JOBS_AHEAD", "IN_LINE"]),
        ("system", ["NO_FREE_SLOT", "JOBS_AHEAD"]),
    ],
)
async def test_what_others_do_is_shown_to_who_may_see_it(
    ask: Asker, jobs: Gantline, who: str, codes: list[str]
) -> None:
    for other in ("eve", "eve", "eve", "bob"):
        await _submitted(ask, other)
    job_id = await _submitted(ask, "alice")
    await _serve(jobs)
    found = await _why(ask, who, job_id)
    assert [one["code"] for one in found["reasons"]] == codes
    ahead = [one["facts"]["jobs"] for one in found["reasons"] if one["code"] == "JOBS_AHEAD"]
    assert ahead == {"viewer": [1], "operator": [1], "system": [2]}.get(who, [])


@pytest.mark.parametrize(
    ("who", "session"), [("alice", None), ("viewer", "host-7"), ("system", "host-7")]
)
async def test_where_it_runs_is_shown_to_whom_the_history_shows_it(
    ask: Asker, jobs: Gantline, who: str, session: str | None
) -> None:
    job_id = await _submitted(ask, "alice")
    await _serve(jobs)
    found = await _why(ask, who, job_id)
    (running,) = found["reasons"]
    assert (running["code"], running["facts"]["session"]) == ("RUNNING", session)
    assert ("host-7" in running["detail"]) is (session is not None)
