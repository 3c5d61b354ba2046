"""How many streams, how long, for how slow a client; and what ends them."""

from uuid import uuid4

from gantline import Gantline
from gantline.api.application import Api
from gantline.api.shares import Share
from tests.api.application import ByName
from tests.api.conftest import Asker
from tests.api.streams.event_stream import (
    Listener,
    listening_to,
)
from tests.api.streams.playing import names, new_job, numbers, run_all, sealed, streams
from tests.api.test_submit import submit

ONE = Share(of_principal=1, of_tenant=10, in_process=10)


async def test_one_principal_has_a_bounded_number_of_streams(ask: Asker, jobs: Gantline) -> None:
    settings = streams(open=Share(of_principal=2, of_tenant=3, in_process=3))
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        first, second = [await listen("alice", "/api/events") for _ in range(2)]
        assert [first.status, second.status] == [200, 200]
        refused = await listen("alice", "/api/events")
        assert (refused.status, refused.headers["retry-after"]) == (429, "10")
        assert b"TOO_MANY_STREAMS" in refused.body
        assert (await listen("viewer", "/api/events")).status == 200
        assert (await listen("operator", "/api/events")).status == 429
        await first.hang_up()
        assert (await listen("alice", "/api/events")).status == 200


async def test_one_tenant_leaves_streams_to_others(ask: Asker, jobs: Gantline) -> None:
    settings = streams(open=Share(of_principal=1, of_tenant=2, in_process=3))
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        statuses = [
            (await listen(who, "/api/events")).status
            for who in ("alice", "viewer", "operator", "eve", "system")
        ]
        assert statuses == [200, 200, 429, 200, 429]


async def test_a_place_is_given_back_whatever_becomes_of_the_request(
    ask: Asker, jobs: Gantline
) -> None:
    settings = streams(open=ONE)
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        job_id = await new_job(ask)
        await run_all(jobs)
        path = f"/api/jobs/{job_id}/events"
        for _ in range(2):
            assert names(await (await listen("alice", path)).ends())[-1] == "completed"
            assert (await listen("alice", path, last=await sealed(jobs, 1))).status == 204
            assert (await listen("alice", f"/api/jobs/{uuid4()}/events")).status == 404
            assert (await listen("alice", path, method="HEAD")).status == 200


async def test_a_head_request_has_the_headers_and_no_stream(ask: Asker, listen: Listener) -> None:
    job_id = await new_job(ask)
    stream = await listen("alice", f"/api/jobs/{job_id}/events", method="HEAD")
    await stream.ends()
    assert (stream.status, stream.body) == (200, b"")
    assert stream.headers["content-type"] == "text/event-stream"


async def test_a_client_that_is_too_slow_is_let_go_and_can_come_back(
    ask: Asker, jobs: Gantline
) -> None:
    settings = streams(most_waiting_bytes=3000)
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        slow, quick = await listen("viewer", "/api/events"), await listen("viewer", "/api/events")
        slow.pause()
        for _ in range(20):
            await submit(ask, {"jobType": "sweep", "payload": None})
            await run_all(jobs)
            await quick.hears_until("completed")
        slow.go_on()
        heard = await slow.ends()
        assert 0 < len(heard) < 20
        back = await listen("viewer", "/api/events", last=heard[-1].last_id)
        while len(heard) < 20:
            heard.append(await back.hears())
        assert await numbers(jobs, heard) == list(range(1, 21))


async def test_a_client_that_takes_nothing_at_all_is_dropped(ask: Asker, jobs: Gantline) -> None:
    settings = streams(stall_seconds=0.01, ping_seconds=0.01, open=ONE)
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        stuck = await listen("alice", "/api/events")
        stuck.pause()
        await stuck.ends()
        assert (await listen("alice", "/api/events")).status == 200


async def test_a_stream_is_ended_after_a_time_for_its_client_to_come_back(
    ask: Asker, jobs: Gantline
) -> None:
    settings = streams(longest_seconds=0.01)
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        job_id = await new_job(ask)
        heard = await (await listen("alice", f"/api/jobs/{job_id}/events")).ends()
        assert names(heard) == ["state"]


async def test_a_server_that_stops_ends_its_streams(ask: Asker, jobs: Gantline, api: Api) -> None:
    is_stopping = False
    extensions = {"gantline.stopping": lambda: is_stopping}
    async with listening_to(api) as listen:
        job_id = await new_job(ask)
        paths = (f"/api/jobs/{job_id}/events", "/api/events")
        streams = [await listen("alice", path, extensions=extensions) for path in paths]
        for stream in streams:
            await stream.hears()
        is_stopping = True
        for stream in streams:
            assert await stream.ends() == []


async def test_an_application_that_is_closed_ends_its_streams(jobs: Gantline, api: Api) -> None:
    async with listening_to(api) as listen:
        stream = await listen("alice", "/api/events")
        await jobs.close()
        await stream.ends()
        assert stream.status == 200
