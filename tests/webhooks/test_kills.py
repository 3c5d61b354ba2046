"""Workers die by SIGKILL anywhere between a job's end and its delivery: nothing is missing."""

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from gantline import Gantline
from gantline.contract.job import DEFAULT_QUEUE, DELIVERY_QUEUE
from gantline.contract.query import Cursor, JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.webhook import DELIVERY_TYPE, WebhookSpec
from gantline.testing.liveness import watching
from tests.judging import history_in, judge
from tests.servers.receiver import Received, Receiver
from tests.webhooks.killed_teller import LEASE
from tests.webhooks.shop import settings

_PATIENCE_SECONDS = 300
# Up to eight workers in a row die before they end a job: each needs a start, which takes seconds on
# a slow machine, and what the last one held waits for its lease.
ENDS_WITHIN = 8 * timedelta(seconds=4) + LEASE
TENANT = "default"


async def worker(url: str, *death: object) -> str:
    """Run one until all is told, or until it has killed itself; then it tells where."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.webhooks.killed_teller", url, *map(str, death)),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(_PATIENCE_SECONDS):
        said, _ = await process.communicate()
    assert process.returncode == (-signal.SIGKILL if said else 0)
    return said.decode().strip()


class Told:
    """Jobs, two endpoints that are told of them, and what these have received."""

    def __init__(self, url: str, receiver: Receiver, folder: Path) -> None:
        self._receiver = receiver
        self._folder = folder
        self._jobs = Gantline(url, webhooks=settings())
        self._ship = self._jobs.job("ship")(_ship)

    async def begin(self, number: int) -> None:
        assert self._jobs.webhooks is not None
        async with self._jobs:
            for path in ("/a", "/b"):
                spec = WebhookSpec(url=self._receiver.url(path), concurrency=20)
                await self._jobs.webhooks.create(spec, tenant_id=TENANT, actor="")
            await self._ship.submit_many(range(number))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Jobs and deliveries end all the while, whoever dies."""
        lanes = [(DEFAULT_QUEUE, "ship"), (DELIVERY_QUEUE, DELIVERY_TYPE)]
        async with (
            self._jobs,
            watching(self._jobs.store, within=ENDS_WITHIN, backlog=True, lanes=lanes) as oracle,
        ):
            yield
        oracle.check()

    async def check(self, number: int) -> None:
        """Every outcome is at both endpoints, always with the same id and body."""
        async with self._jobs:
            jobs = await self._all("ship")
            deliveries = await self._all(DELIVERY_TYPE)
            await judge(self._jobs.store, self._folder)
        assert len(jobs) == number
        assert len(deliveries) == 2 * number, "each outcome is delivered by one job a webhook"
        received = self._received()
        for path in ("/a", "/b"):
            at_path = {one.job_id: one for one in received[path].values()}
            missing = {job.job.job_id for job in jobs} - at_path.keys()
            assert not missing, f"{len(missing)} of {number} never arrived at {path}"
            for job in jobs:
                told = at_path[job.job.job_id]
                assert (told.status, told.version) == (job.status, job.version)
        assert received["/a"].keys().isdisjoint(received["/b"].keys())

    def _received(self) -> dict[str, dict[str, "_Event"]]:
        by_path: dict[str, dict[str, _Event]] = {"/a": {}, "/b": {}}
        bodies: dict[str, bytes] = {}
        for one in self._receiver.received:
            assert bodies.setdefault(one.webhook_id, one.body) == one.body, "the same, if repeated"
            by_path[one.path][one.webhook_id] = _event(one)
        return by_path

    async def _all(self, job_type: str) -> list[JobSnapshot]:
        job_filter = JobFilter(tenant_id=None, job_types=frozenset({job_type}))
        found: list[JobSnapshot] = []
        after: Cursor | None = None
        while True:
            page = await self._jobs.store.find(job_filter, limit=1000, after=after)
            found += page.items
            if (after := page.next) is None:
                return found


class _Event(msgspec.Struct, rename="camel"):
    job_id: UUID
    status: str
    version: int


def _event(received: Received) -> _Event:
    return msgspec.convert(msgspec.json.decode(received.body)["data"], _Event)


async def _ship(order: int) -> dict[str, int]:
    """Never called here."""
    return {}


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all processes do to the store, for the checker."""
    monkeypatch.setenv("GANTLINE_HISTORY", str(history_in(tmp_path)))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


# What happens between a job's end and its delivery, call by call.
VERBS = ("apply", "sequence", "lead", "read_records", "events", "get", "insert", "write_records")
POINTS = [(verb, when) for verb in (*VERBS, "claim", "renew") for when in ("before", "after")]


@pytest.mark.wide
@pytest.mark.xdist_group("processes")
async def test_wherever_a_worker_dies_nothing_is_missing(
    url: str, receiver: Receiver, tmp_path: Path
) -> None:
    """At the calls that matter most; `make chaos` has them all."""
    told = Told(url, receiver, tmp_path)
    await told.begin(40)
    deaths = (("apply", 1, "after"), ("insert", 1, "before"), ("insert", 1, "after"))
    async with told.watched():
        for death in (*deaths, ("apply", 3, "before"), ("apply", 3, "after")):
            await worker(url, *death, 400)
        assert await worker(url) == ""
    await told.check(40)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_of_5000_jobs_no_outcome_is_missing_though_workers_are_killed(
    url: str, receiver: Receiver, tmp_path: Path
) -> None:
    told = Told(url, receiver, tmp_path)
    await told.begin(5000)
    chance, died = random.Random(7), Counter[str]()
    async with told.watched():
        # Of many workers one reads the events, and so may die there: a matter of chance. At first
        # there is only one.
        for verb in (*VERBS, "claim"):
            died.update([await worker(url, verb, 1, "after", 100_000)])
        for point in POINTS * 2:
            first = (*point, chance.randint(1, 5))
            second = (*chance.choice(POINTS), chance.randint(5, 40))
            workers = [
                worker(url, verb, number, when, chance.randint(100, 300))
                for verb, when, number in (first, second)
            ]
            died.update(await asyncio.gather(*workers))
        assert {where.split()[1] for where in died if where} >= {*VERBS, "claim"}, died
        assert await worker(url) == ""
    await told.check(5000)
