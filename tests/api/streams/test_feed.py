"""The feed: one reader for all streams, none where there is no stream, patient with the store."""

import asyncio
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest

from gantline import Gantline, WorkerSettings
from gantline.api.application import Api
from gantline.api.seal import SealKeeper
from gantline.api.streams.feed import Feed, Tail, TooOld
from gantline.api.streams.subscription import End, EventFilter, Subscription
from gantline.contract.errors import StoreUnavailable
from gantline.contract.query import Visibility
from gantline.contract.snapshot import Progress
from gantline.testing.faults import Call, intercepted
from tests.api.application import ByName, make_jobs
from tests.api.conftest import Asker, asker_of
from tests.api.playing import claim, success
from tests.api.streams.event_stream import PATIENCE_SECONDS, Listener, listening_to
from tests.api.streams.playing import HASTY, names, new_job, numbers, run_all, sealed, settle
from tests.api.test_submit import DOCUMENT
from tests.servers.postgres import PostgresServer

OF_ACME = EventFilter(tenant_id="acme", visible_to=Visibility(tenant_id="acme"))


class Counted:
    """Counts what is asked of a store, and lets it be away."""

    def __init__(self, jobs: Gantline) -> None:
        self.calls: Counter[str] = Counter()
        self.is_away = False
        self.refused = asyncio.Event()
        jobs.store = intercepted(jobs.store, self._around)

    async def _around(self, verb: str, call: Call) -> Any:
        self.calls[verb] += 1
        if self.is_away:
            self.refused.set()
            raise StoreUnavailable("away", next_step="")
        return await call()


async def none_run_but(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait until all other tasks have ended."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while others := asyncio.all_tasks() - tasks:
            await asyncio.wait(others)


async def test_where_nobody_listens_nothing_is_asked_and_nothing_runs(
    api: Api, ask: Asker, jobs: Gantline
) -> None:
    before = asyncio.all_tasks()
    async with listening_to(api) as listen:
        job_id = await new_job(ask)
        stream = await listen("alice", f"/api/jobs/{job_id}/events")
        await listen("alice", "/api/events")
        await stream.hears()
        await stream.hang_up()
    await none_run_but(before)
    counted = Counted(jobs)
    async with listening_to(api) as listen:
        await run_all(jobs)
        assert (counted.calls["events"], counted.calls["last_event"]) == (0, 0)
        assert (await listen("alice", "/api/events", last=await sealed(jobs, 0))).status == 200
        assert counted.calls["last_event"] == 1


async def test_many_streams_are_one_reader(api: Api, ask: Asker, jobs: Gantline) -> None:
    async with listening_to(api) as listen:
        job_id = await new_job(ask)
        paths = ["/api/events", f"/api/jobs/{job_id}/events", f"/api/events?jobId={job_id}"]
        streams = [await listen("alice", path) for path in paths * 6]
        (run,) = await claim(jobs)
        counted = Counted(jobs)
        await settle(jobs, run, success())
        for stream in streams:
            await stream.hears_until("completed")
        # Every look of the reader is one call, and those are far apart.
        assert counted.calls["events"] < len(streams)


async def test_a_store_that_is_away_for_a_while_costs_no_event(
    api: Api, ask: Asker, jobs: Gantline
) -> None:
    async with listening_to(api) as listen:
        job_id = await new_job(ask)
        streams = [
            await listen("alice", path) for path in (f"/api/jobs/{job_id}/events", "/api/events")
        ]
        (run,) = await claim(jobs)
        real = jobs.store
        counted = Counted(jobs)
        counted.is_away = True
        await asyncio.wait_for(counted.refused.wait(), PATIENCE_SECONDS)
        refused = await listen("alice", "/api/events")
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        jobs.store = real
        await settle(jobs, run, success())
        for stream in streams:
            assert await numbers(jobs, (await stream.hears_until("completed"))[-1:]) == [1]


async def test_a_page_that_cannot_be_made_out_is_read_again(
    api: Api, ask: Asker, jobs: Gantline
) -> None:
    """Events were read, their jobs could not be: nothing was handed out, nothing is lost."""
    async with listening_to(api) as listen:
        await new_job(ask)
        stream = await listen("alice", "/api/events")
        (run,) = await claim(jobs)
        failed = asyncio.Event()

        async def around(verb: str, call: Call) -> Any:
            if verb == "get" and not failed.is_set():
                failed.set()
                raise StoreUnavailable("away", next_step="")
            return await call()

        jobs.store = intercepted(jobs.store, around)
        await settle(jobs, run, success())
        assert await numbers(jobs, (await stream.hears_until("completed"))[-1:]) == [1]
        assert failed.is_set()


async def test_what_waits_for_a_slow_stream_is_bounded(ask: Asker, jobs: Gantline) -> None:
    feed = Feed(jobs, SealKeeper(jobs), most_missed=100)
    slow, quick = [Subscription(OF_ACME, most_bytes=size) for size in (2_000, 10_000_000)]
    for subscription in (slow, quick):
        await feed.follow(subscription)
    batch = [{"jobType": "sweep", "payload": None} for _ in range(50)]
    await ask("alice", "POST", "/api/jobs/batch", {"jobs": batch})
    await run_all(jobs)
    assert await feed.caught_up() == 50
    assert (slow.end, quick.end) == (End.TOO_SLOW, None)
    taken = slow.take()
    assert 1 <= len(taken) < 10
    assert sum(len(event.text) for event in taken) <= 2_000
    assert [event.number for event in quick.take()] == list(range(1, 51))
    await feed.close()


async def test_one_event_larger_than_the_bound_is_still_told(ask: Asker, jobs: Gantline) -> None:
    feed = Feed(jobs, SealKeeper(jobs), most_missed=100)
    subscription = Subscription(OF_ACME, most_bytes=10)
    await feed.follow(subscription)
    await new_job(ask)
    await run_all(jobs)
    await feed.caught_up()
    assert len(subscription.take()) == 1
    await feed.close()


async def test_the_tail_remembers_so_much_and_reads_the_rest_once(
    ask: Asker, jobs: Gantline
) -> None:
    batch = [{"jobType": "sweep", "payload": None} for _ in range(30)]
    await ask("alice", "POST", "/api/jobs/batch", {"jobs": batch})
    await run_all(jobs)
    counted = Counted(jobs)
    tail = Tail(lambda: jobs.store, most=20)
    tail.begin(30)
    assert await tail.numbers(OF_ACME, after=15, upto=30) == list(range(16, 31))
    assert await tail.numbers(OF_ACME, after=20, upto=30) == list(range(21, 31))
    assert counted.calls["events"] == 1
    assert await tail.numbers(OF_ACME, after=10, upto=30) == list(range(11, 31))
    assert counted.calls["events"] == 2
    for after, upto in ((9, 30), (31, 30), (15, 31), (-1, 30)):
        with pytest.raises(TooOld):
            await tail.numbers(OF_ACME, after=after, upto=upto)
    tail.append(await jobs.store.events(after=30, limit=1))
    assert await tail.numbers(OF_ACME, after=30, upto=30) == []


async def test_those_who_come_back_together_read_what_they_missed_once(
    ask: Asker, api: Api, jobs: Gantline
) -> None:
    job_ids = [
        await new_job(ask, {**DOCUMENT, "payload": {"documentId": f"d{n}"}}) for n in range(9)
    ]
    await run_all(jobs)
    last, counted = await sealed(jobs, 0), Counted(jobs)
    async with listening_to(api) as listen:
        streams = await asyncio.gather(
            *(listen("alice", f"/api/jobs/{job_id}/events", last=last) for job_id in job_ids)
        )
        for stream in streams:
            assert names(await stream.ends()) == ["completed"]
    # One event each, and the tail for all of them; what the feed reads comes on top.
    assert counted.calls["events"] <= 2 * len(job_ids) + 5


# -- where events are numbered after their commit -------------------------------------------------


@pytest.fixture
def postgres_jobs(postgres: PostgresServer) -> Gantline:
    return make_jobs(postgres.url(schema=f"w{uuid4().hex}"))


async def test_on_postgres_a_job_is_followed_while_a_worker_runs_it(
    postgres_jobs: Gantline,
) -> None:
    jobs = postgres_jobs
    api = jobs.api(authenticator=ByName(), settings=HASTY)
    settings = WorkerSettings(queues={"documents": 5}, maintain_every=None)
    async with jobs, asker_of(api) as ask, listening_to(api) as listen, jobs.running(settings):
        job_id = await new_job(ask)
        stream = await listen("alice", f"/api/jobs/{job_id}/events")
        heard = await stream.ends()
        assert heard[-1].shown == ("completed", "Completed")
        assert await numbers(jobs, heard[-1:]) == [1]
        assert (
            await listen("alice", f"/api/jobs/{job_id}/events", last=await sealed(jobs, 1))
        ).status == 204


async def test_on_postgres_nothing_is_missed_though_nobody_else_numbers(
    postgres_jobs: Gantline,
) -> None:
    """The worker died before it could: the feed numbers by itself, in a while or when asked."""
    jobs = postgres_jobs
    api = jobs.api(authenticator=ByName(), settings=HASTY)
    async with jobs, asker_of(api) as ask, listening_to(api) as listen:
        job_id = await new_job(ask)
        live = await listen("alice", f"/api/jobs/{job_id}/events")
        first = await live.hears()
        await run_all(jobs)
        assert names(await live.ends())[-1] == "completed"
        other = await new_job(ask, {**DOCUMENT, "payload": {"documentId": "d2"}})
        path = f"/api/jobs/{other}/events"
        before = await (await listen("alice", path)).hears()
        await run_all(jobs)
        # Ended, and without a number: who comes back must not be told that he has heard all.
        back = await listen("alice", path, last=before.last_id)
        assert names(await back.ends()) == ["completed"]
        assert await numbers(jobs, [first]) == [0]


async def test_on_postgres_progress_is_told(postgres_jobs: Gantline) -> None:
    jobs = postgres_jobs
    api = jobs.api(authenticator=ByName(), settings=HASTY)
    async with jobs, asker_of(api) as ask, listening_to(api) as listen:
        job_id = await new_job(ask)
        stream: Any = await listen("alice", f"/api/jobs/{job_id}/events")
        (run,) = await claim(jobs)
        while (await stream.hears()).data["status"] != "Running":
            pass
        await jobs.store.progress([Progress(run.ref, 30, "half")])
        heard = await stream.hears()
        assert (heard.name, heard.data["progress"], heard.data["phase"]) == ("progress", 30, "half")


async def test_who_joins_while_the_log_grows_hears_all_from_then_on(
    listen: Listener, ask: Asker, jobs: Gantline
) -> None:
    batch = [{"jobType": "sweep", "payload": None} for _ in range(200)]
    await ask("alice", "POST", "/api/jobs/batch", {"jobs": batch})
    runs = await claim(jobs, limit=200)

    async def work() -> None:
        for run in runs:
            await settle(jobs, run, success())
            await asyncio.sleep(0)

    working = asyncio.create_task(work())
    joined = [await listen("viewer", "/api/events?jobType=sweep") for _ in range(5)]
    await working
    for stream in joined:
        heard = [
            event for event in await stream.hears_up_to(jobs, 200) if event.name == "completed"
        ]
        assert await numbers(jobs, heard) == list(range(201 - len(heard), 201))
