"""The stream of a job: where it stands, then all that happens to it, once each, to its end."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from gantline import Gantline
from gantline.contract.snapshot import Progress
from gantline.testing.clock import FakeClock
from gantline.testing.faults import Call, intercepted
from tests.api.application import AuditKept, ByName
from tests.api.conftest import Asker
from tests.api.playing import PERMANENT, RETRYABLE, claim, success
from tests.api.streams.event_stream import (
    Listener,
    listening_to,
)
from tests.api.streams.playing import (
    OPERATOR_DETAIL,
    names,
    new_job,
    numbers,
    run_all,
    sealed,
    settle,
    streams,
)
from tests.api.test_submit import DOCUMENT, OTHER

Happens = Callable[[], Awaitable[None]]


async def test_a_job_is_followed_from_where_it_stands_to_its_end(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream"
    assert stream.headers["x-accel-buffering"] == "no"
    assert stream.headers["cache-control"] == "no-store, no-transform"
    assert stream.headers["x-correlation-id"]
    assert "content-length" not in stream.headers
    first = await stream.hears()
    assert first.shown == ("state", "Queued")
    assert first.data == (await ask("alice", "GET", f"/api/jobs/{job_id}/status")).json()
    await run_all(jobs, success({"pages": 3}))
    heard = await stream.ends()
    assert heard[-1].shown == ("completed", "Completed")
    assert heard[-1].data == (await ask("alice", "GET", f"/api/jobs/{job_id}/status")).json()
    assert heard[-1].data["result"] == {"pages": 3}
    assert stream.parser.retry == 3000


async def test_every_event_comes_once_in_order_with_the_state_that_it_made(
    ask: Asker, listen: Listener, jobs: Gantline, clock: FakeClock
) -> None:
    job_id = await new_job(ask)
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    await run_all(jobs, RETRYABLE)
    clock.advance(timedelta(hours=1))
    await run_all(jobs, RETRYABLE)
    clock.advance(timedelta(hours=1))
    await run_all(jobs, PERMANENT)
    heard = [event for event in await stream.ends() if event.name not in ("state", "progress")]
    assert [event.shown for event in heard] == [
        ("retried", "Retrying"),
        ("retried", "Retrying"),
        ("failed", "Failed"),
    ]
    assert [event.data["attempt"] for event in heard] == [1, 2, 3]
    logged = await jobs.store.events(after=0, limit=9)
    assert await numbers(jobs, heard) == [event.sequence for event in logged]
    assert heard[-1].data["errorCode"] == "DOCUMENT_UNKNOWN"
    assert not any(detail in stream.body.decode() for detail in OPERATOR_DETAIL)


async def test_of_a_job_that_has_ended_the_end_is_told_and_the_stream_ends(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    await run_all(jobs)
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    heard = await stream.ends()
    assert [event.shown for event in heard] == [
        ("state", "Completed"),
        ("completed", "Completed"),
    ]
    assert await numbers(jobs, heard) == [-1, 1]


async def test_who_has_heard_the_end_is_told_not_to_come_back(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    await run_all(jobs)
    await new_job(ask, OTHER)
    await run_all(jobs)
    path = f"/api/jobs/{job_id}/events"
    (*_, last) = await (await listen("alice", path)).ends()
    again = await listen("alice", path, last=last.last_id)
    assert again.status == 204
    assert again.body == b""
    before = await listen("alice", path, last=await sealed(jobs, 0))
    assert names(await before.ends()) == ["completed"]


async def test_who_comes_back_hears_what_he_missed_once(
    ask: Asker, listen: Listener, jobs: Gantline, clock: FakeClock
) -> None:
    job_id = await new_job(ask)
    path = f"/api/jobs/{job_id}/events"
    stream = await listen("alice", path)
    await run_all(jobs, RETRYABLE)
    heard = await stream.hears_until("retried")
    await stream.hang_up()
    clock.advance(timedelta(hours=1))
    await run_all(jobs, RETRYABLE)
    clock.advance(timedelta(hours=1))
    await run_all(jobs)
    back = await listen("alice", path, last=heard[-1].last_id)
    heard = await back.ends()
    assert [event.shown for event in heard] == [
        ("retried", "Retrying"),
        ("completed", "Completed"),
    ]
    assert heard[0].data["attempt"] == 2


async def test_who_comes_back_to_a_job_that_goes_on_is_told_where_it_stands(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    (run,) = await claim(jobs)
    path = f"/api/jobs/{job_id}/events"
    first = await (await listen("alice", path)).hears()
    await jobs.store.progress([Progress(run.ref, 40, "parsed")])
    back = await listen("alice", path, last=first.last_id)
    heard = await back.hears()
    assert (heard.name, heard.data["progress"]) == ("state", 40)
    await settle(jobs, run, success())
    assert names(await back.ends()) == ["completed"]


async def test_a_redriven_job_can_be_followed_again(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    await run_all(jobs, PERMANENT)
    path = f"/api/jobs/{job_id}/events"
    (*_, failed) = await (await listen("alice", path)).ends()
    await ask("alice", "POST", f"/api/jobs/{job_id}/redrive")
    back = await listen("alice", path, last=failed.last_id)
    assert [(await back.hears()).shown for _ in range(2)] == [
        ("redriven", "Queued"),
        ("state", "Queued"),
    ]
    await run_all(jobs)
    assert (await back.ends())[-1].name == "completed"


async def test_a_start_and_progress_are_told_though_they_leave_no_event(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    queued = await stream.hears()
    (run,) = await claim(jobs)
    started = await stream.hears()
    assert started.shown == ("state", "Running")
    await jobs.store.progress([Progress(run.ref, 50, "parsed")])
    progressed = await stream.hears()
    assert (progressed.name, progressed.data["progress"], progressed.data["phase"]) == (
        "progress",
        50,
        "parsed",
    )
    assert await numbers(jobs, [queued, started, progressed]) == [0, 0, 0]
    versions = [event.data["version"] for event in (queued, started, progressed)]
    assert versions == sorted(set(versions))
    await settle(jobs, run, success())
    assert names(await stream.ends()) == ["completed"]


async def test_progress_is_told_as_it_stands_however_often_it_changed(
    ask: Asker, jobs: Gantline, audit: AuditKept
) -> None:
    """Looked at now and then, not told by the run: a thousand changes are one event or two."""
    settings = streams(progress_seconds=0.2)
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        job_id = await new_job(ask)
        (run,) = await claim(jobs)
        stream = await listen("alice", f"/api/jobs/{job_id}/events")
        for percent in range(100):
            await jobs.store.progress([Progress(run.ref, percent)])
        heard = await stream.hears_until("progress")
        while heard[-1].data["progress"] < 99:
            heard.append(await stream.hears())
        assert len(heard) < 20


async def test_a_scheduled_job_that_turns_due_by_time_alone_is_told(
    ask: Asker, listen: Listener, clock: FakeClock
) -> None:
    job_id = await new_job(ask, {**DOCUMENT, "delaySeconds": 60})
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    assert (await stream.hears()).shown == ("state", "Scheduled")
    clock.advance(timedelta(minutes=2))
    assert (await stream.hears()).shown == ("state", "Queued")


async def test_a_cancel_is_told_at_once(ask: Asker, listen: Listener, jobs: Gantline) -> None:
    job_id = await new_job(ask)
    await claim(jobs)
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    await ask("alice", "POST", f"/api/jobs/{job_id}/cancel")
    heard = await stream.hears_until("cancel_requested")
    assert heard[-1].shown == ("cancel_requested", "Cancelling")
    await stream.hang_up()


async def test_what_is_in_the_state_told_first_is_not_told_again(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    """An event comes about after the stream has joined, and before it has read the job."""
    job_id = await new_job(ask)
    (run,) = await claim(jobs)
    OnReadOfStream(jobs, before=lambda: settle(jobs, run, RETRYABLE))
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    heard = await stream.hears_up_to(jobs, 1)
    assert [event.shown for event in heard] == [("state", "Retrying")]
    assert heard[0].data["errorCode"] == "NETWORK_ERROR"


async def test_who_comes_back_is_not_told_an_older_state_than_what_he_missed(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    """A job ends after its state was read, and before it is known what was missed."""
    job_id = await new_job(ask)
    (run,) = await claim(jobs)
    OnReadOfStream(jobs, after=lambda: settle(jobs, run, success()))
    stream = await listen("alice", f"/api/jobs/{job_id}/events", last=await sealed(jobs, 0))
    assert names(await stream.ends()) == ["completed"]


class OnReadOfStream:
    """Lets something happen beside the reading of a stream that opens. Whether the caller may read
    the job is found out before, by the snapshots, which are not intercepted."""

    def __init__(
        self, jobs: Gantline, *, before: Happens | None = None, after: Happens | None = None
    ) -> None:
        self._jobs = jobs
        self._store = jobs.store
        self._before = before
        self._after = after
        jobs.store = intercepted(jobs.store, self._around)

    async def _around(self, verb: str, call: Call) -> Any:
        if verb != "get":
            return await call()
        self._jobs.store = self._store
        if self._before is not None:
            await self._before()
        found = await call()
        if self._after is not None:
            await self._after()
        return found


async def test_a_job_that_is_removed_ends_its_stream(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    await stream.hears()

    async def around(verb: str, call: Call) -> Any:
        return [None] if verb == "get" else await call()

    jobs.store = intercepted(jobs.store, around)
    assert await stream.ends() == []
