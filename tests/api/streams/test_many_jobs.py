"""One stream for many jobs: those named, those of a type or a subject, or all."""

from uuid import uuid4

from gantline import Gantline
from gantline.contract.snapshot import Progress
from tests.api.conftest import Asker
from tests.api.playing import claim, success
from tests.api.streams.event_stream import (
    Listener,
)
from tests.api.streams.playing import names, new_job, numbers, run_all, sealed, settle
from tests.api.test_submit import DOCUMENT, MAIL, OTHER, submit


async def test_one_stream_tells_of_many_jobs(ask: Asker, listen: Listener, jobs: Gantline) -> None:
    mine = [await new_job(ask, {**DOCUMENT, "payload": {"documentId": f"d{n}"}}) for n in range(3)]
    other = await new_job(ask, MAIL)
    query = "&".join(f"jobId={job_id}" for job_id in mine)
    stream = await listen("alice", f"/api/events?{query}")
    states = [await stream.hears() for _ in mine]
    assert {event.data["jobId"] for event in states} == set(mine)
    assert names(states) == ["state"] * 3
    (run, *runs) = [run for run in await claim(jobs) if str(run.job.job_id) in mine]
    await jobs.store.progress([Progress(run.ref, 50)])
    while (await stream.hears()).data["progress"] != 50:
        pass
    for one in (run, *runs):
        await settle(jobs, one, success())
    ended: set[str] = set()
    while len(ended) < 3:
        (*_, event) = await stream.hears_until("completed")
        ended.add(event.data["jobId"])
    assert ended == set(mine)
    assert other not in stream.body.decode()


async def test_a_stream_names_a_job_by_either_id(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    given = str(uuid4())
    job_id = await new_job(ask, {**MAIL, "jobId": given})
    await new_job(ask, {**MAIL, "jobId": given}, "eve")
    of_one = await listen("alice", f"/api/jobs/{given}/events")
    of_many = await listen("alice", f"/api/events?jobId={given}")
    for stream in (of_one, of_many):
        assert (await stream.hears()).data["jobId"] == job_id
    await run_all(jobs)
    for stream in (of_one, of_many):
        (*_, ended) = await stream.hears_until("completed")
        assert (ended.data["jobId"], ended.data["externalId"]) == (job_id, given)


async def test_a_stream_of_a_type_or_a_subject_tells_of_those_only(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    document, other, mail = (
        await new_job(ask),
        await new_job(ask, OTHER),
        await new_job(ask, MAIL),
    )
    by_type = await listen("alice", "/api/events?jobType=mail")
    by_subject = await listen("alice", "/api/events?subjectId=d2")
    everything = await listen("alice", "/api/events")
    assert (await by_type.hears()).data["jobId"] == mail
    assert (await by_subject.hears()).data["jobId"] == other
    assert {(await everything.hears()).data["jobId"] for _ in range(3)} == {document, other, mail}
    await run_all(jobs)
    assert {(await everything.hears()).data["jobId"] for _ in range(3)} == {document, other, mail}
    assert (await by_type.hears()).data["jobId"] == mail
    assert (await by_subject.hears()).data["jobId"] == other
    assert (by_type.so_far(), by_subject.so_far()) == ([], [])


async def test_a_named_job_may_be_submitted_later(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    given = str(uuid4())
    stream = await listen("alice", f"/api/events?jobId={given}")
    await submit(ask, OTHER)
    await submit(ask, {**DOCUMENT, "jobId": given}, "eve")
    await submit(ask, {**DOCUMENT, "jobId": given})
    assert (await stream.hears()).shown == ("state", "Queued")
    await run_all(jobs)
    (*_, ended) = await stream.hears_until("completed")
    assert (ended.data["externalId"], ended.data["subjectId"]) == (given, "d1")
    assert [event for event in stream.so_far() if event.data["externalId"] != given] == []


async def test_a_thousand_events_reach_everybody_once(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    streams = [await listen("viewer", "/api/events") for _ in range(3)]
    for first in range(0, 600, 200):
        batch = [{"jobType": "sweep", "payload": None} for _ in range(200)]
        assert (await ask("alice", "POST", "/api/jobs/batch", {"jobs": batch})).status_code == 202
        while runs := await claim(jobs, limit=50):
            for run in runs:
                await settle(jobs, run, success())
        for stream in streams:
            heard = [await stream.hears() for _ in range(200)]
            assert await numbers(jobs, heard) == [first + number for number in range(1, 201)]


async def test_missed_events_of_many_jobs_come_in_order_and_then_the_new_ones(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    for number in range(250):
        await submit(ask, {"jobType": "sweep", "payload": None, "queue": f"q{number % 3}"})
    await run_all(jobs)
    stream = await listen("viewer", "/api/events?jobType=sweep", last=await sealed(jobs, 7))
    await submit(ask, {"jobType": "sweep", "payload": None})
    await run_all(jobs)
    heard = [await stream.hears() for _ in range(244)]
    assert await numbers(jobs, heard) == list(range(8, 252))
