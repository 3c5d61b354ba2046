"""Events that a type asks for: told to consumers, shown in history, and counted nowhere."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import psycopg
import pytest

from gantline import Context, Gantline, InvalidInput
from gantline.consumers.event_reader import DeclaredConsumer, EventReader
from gantline.contract.status import Event
from gantline.manager.sequencer import number_events
from gantline.testing.kit import JobsTest
from gantline.worker.context import EVENTS_A_RUN, ProgressLog
from tests.ear import PATIENCE_SECONDS
from tests.servers.postgres import PostgresServer
from tests.test_consumers import QUICK, Listener

Asked = Literal["submitted", "started", "progressed"]
ALL: tuple[Asked, ...] = ("submitted", "started", "progressed")


def shop(store: Any, *listeners: Listener, events: tuple[Asked, ...] = ALL) -> tuple[Gantline, Any]:
    jobs = Gantline(store)
    for listener in listeners:  # from the start, for jobs may be there before the worker is
        jobs.add_consumer(listener, from_start=True)

    @jobs.job("ship", events=events)
    async def ship(order: int, ctx: Context) -> int:
        await ctx.progress(10, "packing")
        await ctx.progress(20, "packing")  # within the same second: shown, and no event
        await ctx.progress(90, "sent")
        return order

    @jobs.job("quiet")
    async def quiet(order: int, ctx: Context) -> None:
        await ctx.progress(50, "half")
        ctx.follow_up(ship, order)

    return jobs, (ship, quiet)


async def test_consumers_hear_of_them_in_order_of_each_job(store_url: str) -> None:
    listener = Listener()
    jobs, (ship, _) = shop(store_url, listener)
    async with jobs, jobs.running(QUICK):
        handles = [await ship.submit(1), await ship.submit(2)]
        events = await listener.has(10)
    for handle in handles:
        of_job = [event for event in events if event.job.job_id == handle.job_id]
        assert [event.type for event in of_job] == [
            "job.submitted",
            "job.started",
            "job.progressed",
            "job.progressed",
            "job.completed",
        ]
        told = [event.document() for event in of_job]
        assert [(one.progress, one.phase) for one in told[2:4]] == [(10, "packing"), (90, "sent")]
        assert [one.status for one in told] == [
            "Queued",
            "Running",
            "Running",
            "Running",
            "Completed",
        ]
        assert [one.version for one in told] == [1, 2, 3, 5, 6]


async def test_a_follow_up_tells_of_itself_and_who_does_not_ask_is_quiet(store_url: str) -> None:
    listener = Listener()
    jobs, (_, quiet) = shop(store_url, listener, events=("submitted", "started"))
    async with jobs, jobs.running(QUICK):
        await quiet.submit(1)
        events = await listener.has(4)
    of_the_follow_up = [event.type for event in events if event.job.job_type == "ship"]
    assert of_the_follow_up == ["job.submitted", "job.started", "job.completed"]
    assert [event.type for event in events if event.job.job_type == "quiet"] == ["job.completed"]


async def test_what_a_caller_rolls_back_was_never_told(tmp_path: Path) -> None:
    jobs, (ship, _) = shop(f"sqlite:///{tmp_path}/gantline.db")
    async with jobs:
        await jobs.store.ping()
        with sqlite3.connect(tmp_path / "gantline.db", isolation_level=None) as connection:
            for ending in ("ROLLBACK", "COMMIT"):
                connection.execute("BEGIN IMMEDIATE")
                handle = await ship.submit(1, connection=connection)
                connection.execute(ending)
        connection.close()
        (event,) = await jobs.store.events(after=0, limit=10)
    assert (event.entry.event, event.entry.job_id) == (Event.SUBMITTED, handle.job_id)


async def test_a_submit_in_the_callers_transaction_is_told_when_it_commits(
    postgres: PostgresServer,
) -> None:
    """Its row has an older number than those that were committed before: none is skipped."""
    jobs, (ship, _) = shop(postgres.url(schema=f"w{uuid4().hex}"))
    listener = Listener()
    async with jobs:
        declared = DeclaredConsumer(consumer=listener)
        reader = EventReader(jobs.store, declared, "here", clock=jobs.clock)
        await reader.begin()
        connection = await psycopg.AsyncConnection.connect(postgres.url())
        async with connection, connection.transaction():
            late = await ship.submit(1, connection=connection)
            early = await ship.submit(2)
            await number_events(jobs.store)
            await reader.run_once()
            assert [event.job.job_id for event in listener.taken] == [early.job_id]
        await number_events(jobs.store)
        await reader.run_once()
    assert [event.job.job_id for event in listener.taken] == [early.job_id, late.job_id]
    assert {event.entry.event for event in listener.taken} == {Event.SUBMITTED}


async def test_a_test_kit_tells_of_them_too() -> None:
    jobs, (ship, _) = shop("memory://")
    async with JobsTest(jobs) as kit:
        handle = await ship.submit(1)
        await kit.drain()
        history = await jobs.store.history(handle.job_id, tenant_id=None)
    assert [row.event for row in history][:2] == [Event.SUBMITTED, Event.STARTED]


def test_progress_becomes_an_event_at_each_phase_and_once_a_second_and_not_for_ever() -> None:
    now = 100.0
    log = ProgressLog(clock=lambda: now)
    assert [log.admits("a"), log.admits("a"), log.admits("b"), log.admits("b")] == [
        True,
        False,
        True,
        False,
    ]
    now += 1
    assert log.admits("b")
    assert sum(log.admits(str(number)) for number in range(1000)) == EVENTS_A_RUN - 3
    now += 3600
    assert not log.admits("much later")


@pytest.mark.parametrize("events", [("done",), ("completed",), "submitted", ("claimed", "started")])
def test_what_cannot_be_asked_for_is_refused(events: Any) -> None:
    jobs = Gantline("memory://")
    with pytest.raises(InvalidInput, match=r"It must be .*'submitted'"):
        jobs.job("ship", events=events)


async def test_a_start_is_told_at_once_and_not_with_the_end(store_url: str) -> None:
    listener, may_end = Listener(), asyncio.Event()
    jobs = Gantline(store_url)
    jobs.add_consumer(listener)

    @jobs.job("long", events=("started", "progressed"))
    async def long(order: int, ctx: Context) -> None:
        await ctx.progress(50, "half")
        await may_end.wait()

    async with jobs, jobs.running(QUICK):
        handle = await long.submit(1)
        events = await listener.has(2)
        assert [event.type for event in events] == ["job.started", "job.progressed"]
        may_end.set()
        await handle.wait(timeout=PATIENCE_SECONDS)
        await listener.has(3)
