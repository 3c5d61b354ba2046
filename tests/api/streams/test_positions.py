"""Positions: who comes back goes on where he was, or is told that this cannot be."""

import asyncio

import pytest

from gantline import Gantline
from tests.api.application import ByName
from tests.api.conftest import Asker
from tests.api.playing import claim, success
from tests.api.streams.event_stream import (
    PATIENCE_SECONDS,
    Heard,
    Listener,
    listening_to,
)
from tests.api.streams.playing import (
    names,
    new_job,
    run_all,
    settle,
    streams,
)
from tests.api.test_submit import DOCUMENT, OTHER


@pytest.mark.parametrize("last", ["99999", "abc", "-1", "1.5", "٣", "9" * 30, "0x1"])
async def test_a_position_that_is_not_ours_is_a_reset_and_then_all_is_told(
    ask: Asker, listen: Listener, jobs: Gantline, last: str
) -> None:
    job_id = await new_job(ask)
    stream = await listen("alice", f"/api/jobs/{job_id}/events", headers={"last-event-id": last})
    heard = [await stream.hears() for _ in range(2)]
    assert names(heard) == ["reset", "state"]
    assert heard[0].data["detail"]
    await run_all(jobs)
    assert names(await stream.ends())[-1] == "completed"


async def test_a_position_too_far_back_is_a_reset(ask: Asker, jobs: Gantline) -> None:
    settings = streams(most_missed=2)
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        for number in range(3):
            await new_job(ask, {**DOCUMENT, "payload": {"documentId": f"d{number}"}})
        await run_all(jobs)
        assert names(await heard_of(listen, last="1")) == ["completed", "completed"]
        assert names(await heard_of(listen, last="0")) == ["reset"]


async def test_a_position_behind_which_a_job_was_removed_is_a_reset(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    """Its end cannot be told any more, and whoever shows it would show it for ever."""
    first = await new_job(ask)
    await run_all(jobs)
    await new_job(ask, OTHER)
    await run_all(jobs)
    assert (await ask("operator", "DELETE", f"/api/jobs/{first}")).status_code == 204
    assert names(await heard_of(listen, last="0")) == ["reset"]
    assert names(await heard_of(listen, last="1")) == ["completed"]


async def test_the_last_position_is_known_though_its_job_was_removed(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    await run_all(jobs)
    await ask("operator", "DELETE", f"/api/jobs/{job_id}")
    assert names(await heard_of(listen, last="0")) == ["reset"]
    assert names(await heard_of(listen, last="1")) == []


async def heard_of(listen: Listener, *, last: str, who: str = "viewer") -> list[Heard]:
    """What a stream over all tells at first."""
    stream = await listen(who, "/api/events", last=last)
    await stream.hears_a_position()
    await stream.hang_up()
    return stream.so_far()


async def test_a_position_may_come_as_a_parameter(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    await run_all(jobs)
    path = f"/api/jobs/{job_id}/events"
    assert names(await (await listen("alice", f"{path}?lastEventId=0")).ends()) == ["completed"]
    assert (await listen("alice", f"{path}?lastEventId=1")).status == 204
    both = await listen("alice", f"{path}?lastEventId=1", last="0")
    assert names(await both.ends()) == ["completed"]


async def test_a_ping_keeps_the_connection_and_moves_the_position(
    ask: Asker, jobs: Gantline
) -> None:
    settings = streams(ping_seconds=0.02)
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        job_id = await new_job(ask)
        stream = await listen("alice", f"/api/jobs/{job_id}/events")
        assert (await stream.hears()).last_id == "0"
        await stream.hears_a_ping()
        assert set(stream.parser.comments) == {"ping"}
        (run,) = await claim(jobs)
        await new_job(ask, OTHER)
        await run_all(jobs)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while stream.parser.last_id != "1":
                stream.parser.comments.clear()
                await stream.hears_a_ping()
        await settle(jobs, run, success())
        assert (await stream.ends())[-1].last_id == "2"
