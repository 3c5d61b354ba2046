"""Events that a type asks for, as streams and documents show them."""

from uuid import uuid4

from gantline import Gantline
from gantline.contract.query import LaneRequest
from gantline.contract.snapshot import Progress, Run
from gantline.testing.conformance.bench import LEASE
from gantline.testing.conformance.on_request import logged
from gantline.testing.factories import register_sessions
from tests.api.conftest import Asker
from tests.api.playing import success
from tests.api.streams.event_stream import Listener
from tests.api.streams.playing import settle


async def submitted(jobs: Gantline) -> str:
    new = logged({"to": "a"}, job_type="mail", created_by="user:alice", tenant_id="acme")
    await jobs.store.insert([new])
    return str(new.job.job_id)


async def started(jobs: Gantline) -> Run:
    requests = [LaneRequest("default", ("mail",), 1, ("mail",))]
    await register_sessions(jobs.store, "worker")
    (run,) = await jobs.store.claim("worker", uuid4(), requests, lease=LEASE)
    return run


async def test_a_stream_of_all_jobs_shows_each_with_where_the_job_stood(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    stream = await listen("alice", "/api/events")
    job_id = await submitted(jobs)
    run = await started(jobs)
    await jobs.store.progress([Progress(run.ref, 40, "sending", logged=True)])
    await settle(jobs, run, success())
    heard = await stream.hears_until("completed")
    messages = [event for event in heard if event.data.get("jobId") == job_id]
    assert [event.shown for event in messages] == [
        ("submitted", "Queued"),
        ("started", "Running"),
        ("progressed", "Running"),
        ("completed", "Completed"),
    ]
    assert [event.data["version"] for event in messages] == [1, 2, 3, 4]
    assert [event.data["progress"] for event in messages] == [None, 0, 40, 100]
    assert [event.data["phase"] for event in messages] == [None, None, "sending", None]
    assert [event.data["reason"] for event in messages] == [None, None, None, "Succeeded"]


async def test_a_stream_of_the_job_never_goes_back_and_ends_with_its_end(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await submitted(jobs)
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    run = await started(jobs)
    for percent in (20, 40, 60):
        await jobs.store.progress([Progress(run.ref, percent, "sending", logged=percent > 20)])
    await settle(jobs, run, success())
    heard = await stream.ends()
    assert heard[-1].shown == ("completed", "Completed")
    versions = [event.data["version"] for event in heard]
    assert versions == sorted(versions)


async def test_history_has_them_and_attempts_have_not(ask: Asker, jobs: Gantline) -> None:
    job_id = await submitted(jobs)
    run = await started(jobs)
    await jobs.store.progress([Progress(run.ref, 40, "sending", logged=True)])
    attempts = (await ask("alice", "GET", f"/api/jobs/{job_id}/attempts")).json()["items"]
    assert [(one["attempt"], one["outcome"]) for one in attempts] == [(1, None)]
    await settle(jobs, run, success())
    history = (await ask("alice", "GET", f"/api/jobs/{job_id}/history")).json()["items"]
    assert [(one["event"], one["progress"], one["phase"]) for one in history] == [
        ("submitted", None, None),
        ("started", None, None),
        ("progressed", 40, "sending"),
        ("completed", None, None),
    ]
    attempts = (await ask("alice", "GET", f"/api/jobs/{job_id}/attempts")).json()["items"]
    assert [(one["attempt"], one["outcome"]) for one in attempts] == [(1, "completed")]
    status = (await ask("alice", "GET", f"/api/jobs/{job_id}/status")).json()
    assert (status["status"], status["reason"]) == ("Completed", "Succeeded")
