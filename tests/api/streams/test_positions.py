"""Positions: who comes back goes on where he was, or is told that this cannot be."""

import asyncio
from base64 import urlsafe_b64decode
from contextlib import AsyncExitStack

import pytest

from gantline import Gantline
from gantline.api.seal import NO_NUMBER, read_seal
from tests.api.application import ByName, make_jobs
from tests.api.conftest import Asker, asker_of
from tests.api.playing import claim, success
from tests.api.streams.event_stream import (
    PATIENCE_SECONDS,
    Heard,
    Listener,
    listening_to,
)
from tests.api.streams.playing import (
    HASTY,
    names,
    new_job,
    numbers,
    run_all,
    sealed,
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
        assert names(await heard_of(listen, last=await sealed(jobs, 1))) == [
            "completed",
            "completed",
        ]
        assert names(await heard_of(listen, last=await sealed(jobs, 0))) == ["reset"]


async def test_a_position_behind_which_a_job_was_removed_is_a_reset(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    """Its end cannot be told any more, and whoever shows it would show it for ever."""
    first = await new_job(ask)
    await run_all(jobs)
    await new_job(ask, OTHER)
    await run_all(jobs)
    assert (await ask("operator", "DELETE", f"/api/jobs/{first}")).status_code == 204
    assert names(await heard_of(listen, last=await sealed(jobs, 0))) == ["reset"]
    assert names(await heard_of(listen, last=await sealed(jobs, 1))) == ["completed"]


async def test_the_last_position_is_known_though_its_job_was_removed(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    await run_all(jobs)
    await ask("operator", "DELETE", f"/api/jobs/{job_id}")
    assert names(await heard_of(listen, last=await sealed(jobs, 0))) == ["reset"]
    assert names(await heard_of(listen, last=await sealed(jobs, 1))) == []


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
    zero, one = [f"{path}?lastEventId={await sealed(jobs, number)}" for number in (0, 1)]
    assert names(await (await listen("alice", zero)).ends()) == ["completed"]
    assert (await listen("alice", one)).status == 204
    both = await listen("alice", one, last=await sealed(jobs, 0))
    assert names(await both.ends()) == ["completed"]


async def test_a_ping_keeps_the_connection_and_moves_the_position(
    ask: Asker, jobs: Gantline
) -> None:
    settings = streams(ping_seconds=0.02)
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        job_id = await new_job(ask)
        stream = await listen("alice", f"/api/jobs/{job_id}/events")
        assert await numbers(jobs, [await stream.hears()]) == [0]
        await stream.hears_a_ping()
        assert set(stream.parser.comments) == {"ping"}
        (run,) = await claim(jobs)
        await new_job(ask, OTHER)
        await run_all(jobs)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await stream.hears_up_to(jobs, 1)
        await settle(jobs, run, success())
        assert await numbers(jobs, (await stream.ends())[-1:]) == [2]


# -- a position tells nothing about others --------------------------------------------------------


async def test_an_id_tells_neither_the_number_nor_how_much_others_did(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    """The numbers are those of all tenants: two of them would say what happened in between."""
    stream = await listen("viewer", "/api/events")
    told = []
    for others in (0, 3):
        for number in range(others):
            await new_job(ask, {**OTHER, "payload": {"documentId": f"e{number}"}}, who="eve")
        await run_all(jobs)
        await new_job(ask, {**DOCUMENT, "payload": {"documentId": f"d{others}"}})
        await run_all(jobs)
        told.append((await stream.hears_until("completed"))[-1])
    assert await numbers(jobs, told) == [1, 5]
    shown = [urlsafe_b64decode(event.last_id + "==") for event in told]
    assert {len(one) for one in shown} == {32}
    for start in range(len(shown[0])):
        parts = [int.from_bytes(one[start:], "big") for one in shown]
        assert parts[1] - parts[0] != 4
        assert parts != [1, 5]


async def test_a_ping_is_the_same_whether_others_do_something_or_not(
    ask: Asker, jobs: Gantline
) -> None:
    settings = streams(ping_seconds=0.02)
    async with listening_to(jobs.api(authenticator=ByName(), settings=settings)) as listen:
        stream = await listen("viewer", "/api/events")
        await stream.hears_a_position()
        for _ in range(2):
            before = stream.parser.last_id
            stream.parser.comments.clear()
            await stream.hears_a_ping()
            assert stream.parser.last_id != before
            await new_job(ask, who="eve")
            await run_all(jobs)


@pytest.mark.parametrize("place", range(43))
async def test_an_id_with_another_letter_is_none_of_ours(jobs: Gantline, place: int) -> None:
    seal, text = await read_seal(jobs.store), await sealed(jobs, 7)
    other = "A" if text[place] not in "ABCD" else "Z"
    assert seal.open_number(text, "acme") == 7
    assert seal.open_number(text[:place] + other + text[place + 1 :], "acme") == NO_NUMBER
    assert seal.open_number(text[:place], "acme") == NO_NUMBER


async def test_an_id_of_another_tenant_is_a_reset(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    await new_job(ask)
    await run_all(jobs)
    assert names(await heard_of(listen, last=await sealed(jobs, 0))) == ["completed"]
    assert names(await heard_of(listen, last=await sealed(jobs, 0, "evil"))) == ["reset"]


async def test_another_process_goes_on_by_the_same_ids(store_url: str) -> None:
    """The key of the seal is in the store: two applications know of each other by that alone."""
    one = make_jobs(store_url)
    async with AsyncExitStack() as opened:
        await opened.enter_async_context(one)
        other = one
        if store_url != "memory://":
            other = await opened.enter_async_context(make_jobs(store_url))
        apis = [jobs.api(authenticator=ByName(), settings=HASTY) for jobs in (one, other)]
        async with asker_of(apis[0]) as ask, listening_to(apis[0]) as listen:
            job_id = await new_job(ask)
            first = await (await listen("alice", f"/api/jobs/{job_id}/events")).hears()
            await run_all(one)
        async with listening_to(apis[1]) as listen:
            back = await listen("alice", f"/api/jobs/{job_id}/events", last=first.last_id)
            heard = await back.ends()
            assert names(heard) == ["completed"]
            assert await numbers(one, heard) == await numbers(other, heard) == [1]
            again = await listen("alice", f"/api/jobs/{job_id}/events", last=heard[-1].last_id)
            assert again.status == 204
