"""What workers do about limits: they ask for them, find freed places, and wait for gates."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from gantline import Gantline, Limit, Snooze, Throttled, WorkerSettings
from gantline.contract.classify import classify
from gantline.contract.outcome import Failure, Snoozed
from gantline.contract.query import LaneRequest
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import Event, JobStatus, Reason
from gantline.flow.rules import Override
from gantline.manager.manager import Ending
from gantline.testing.clock import FakeClock
from gantline.testing.factories import register_sessions

MINUTE = timedelta(minutes=1)
SLOW_POLL = WorkerSettings(queues={"default": 20}, poll=timedelta(hours=1))


async def eventually(reached: Callable[[], bool]) -> None:
    """Wait for what nothing tells of."""
    async with asyncio.timeout(20):
        while not reached():  # noqa: ASYNC110  # there is no signal
            await asyncio.sleep(0.002)


class Together:
    """A handler that ends when it is let go, and how many of it ran at once."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.begun: list[str] = []
        self.most = 0
        self._let_go: dict[str, asyncio.Event] = {}

    def runs_only(self, name: str) -> bool:
        return self.running == [name]

    def has_begun_more_than(self, number: int, *, of: int) -> bool:
        """Or all is done that there is."""
        return len(self.begun) > number or (len(self.begun) == of and not self.running)

    async def run(self, name: str) -> None:
        self.begun.append(name)
        self.running.append(name)
        self.most = max(self.most, len(self.running))
        await self._let_go.setdefault(name, asyncio.Event()).wait()
        self.running.remove(name)

    def let_go(self, name: str) -> None:
        self._let_go.setdefault(name, asyncio.Event()).set()


async def test_a_freed_place_is_taken_although_nothing_polls(store_url: str) -> None:
    jobs, together = Gantline(store_url, worker=SLOW_POLL), Together()

    @jobs.job("mail", limits=[Limit(running=1)])
    async def mail(name: str) -> None:
        await together.run(name)

    async with jobs, jobs.running():
        handles = await mail.submit_many(["a", "b", "c"])
        for handle, name in zip(handles, "abc", strict=True):
            await eventually(partial(together.runs_only, name))
            together.let_go(name)
            await handle.result()
    assert (together.begun, together.most) == (["a", "b", "c"], 1)


async def test_limits_count_the_runs_of_each_group_and_of_the_type(store_url: str) -> None:
    jobs, together = Gantline(store_url, worker=SLOW_POLL), Together()

    @jobs.job(
        "mail",
        group=lambda name: name[0],
        limits=[Limit(running=2), Limit(running=3, per="type")],
    )
    async def mail(name: str) -> None:
        await together.run(name)

    async with jobs, jobs.running():
        await mail.submit_many([f"{group}{number}" for group in "ab" for number in range(4)])
        await eventually(lambda: len(together.running) == 3)
        assert {name[0] for name in together.running} == {"a", "b"}
        while together.running:
            for name in together.running:
                together.let_go(name)
            await eventually(partial(together.has_begun_more_than, len(together.begun), of=8))
    assert (len(together.begun), together.most) == (8, 3)


async def test_a_full_type_delays_no_other(store_url: str) -> None:
    jobs, together = Gantline(store_url, worker=SLOW_POLL), Together()

    @jobs.job("mail", limits=[Limit(running=1)])
    async def mail(name: str) -> None:
        await together.run(name)

    @jobs.job("call")
    async def call(name: str) -> None:
        together.begun.append(name)

    async with jobs, jobs.running():
        await mail.submit_many(["a", "b"])
        await eventually(lambda: together.running == ["a"])
        await (await call.submit("c")).result()
        together.let_go("a")
        together.let_go("b")
        await eventually(lambda: together.begun == ["a", "c", "b"])


async def test_a_change_of_limits_reaches_a_worker_at_once(store_url: str) -> None:
    jobs, together = Gantline(store_url, worker=SLOW_POLL), Together()

    @jobs.job("mail", limits=[Limit(running=1)])
    async def mail(name: str) -> None:
        await together.run(name)

    async with jobs, jobs.running():
        await mail.submit_many(["a", "b"])
        await eventually(lambda: together.running == ["a"])
        await jobs.limits.set("mail", Override(running=2), by="ann")
        await eventually(lambda: together.running == ["a", "b"])
        together.let_go("a")
        together.let_go("b")


async def test_a_worker_wakes_when_a_gate_has_room(store_url: str) -> None:
    jobs, begun = Gantline(store_url, worker=SLOW_POLL), list[str]()

    @jobs.job("mail", limits=[Limit(rate="50/s", burst=1)])
    async def mail(name: str) -> None:
        begun.append(name)

    async with jobs, jobs.running():
        for handle in await mail.submit_many(["a", "b", "c"]):
            await handle.result()
    assert begun == ["a", "b", "c"]


async def test_suspects_are_claimed_within_limits(store_url: str) -> None:
    jobs = Gantline(store_url, worker=SLOW_POLL)

    @jobs.job("mail", limits=[Limit(running=1)])
    async def mail(name: str) -> None: ...

    asked: list[Any] = []
    claim = jobs.store.claim

    async def recording(session: str, claim_id: Any, requests: Any, **options: Any) -> Any:
        asked.extend(requests)
        return await claim(session, claim_id, requests, **options)

    jobs.store.claim = recording  # type: ignore[method-assign]  # to see what is asked for
    async with jobs, jobs.running():
        await (await mail.submit("a")).result()
    assert {bool(request.suspects) for request in asked} == {True, False}
    assert {flow.running for request in asked for flow in request.flow} == {1}
    assert all(request.flow for request in asked)


# -- throttled ------------------------------------------------------------------------------------

GATED: dict[str, Any] = {"limits": [Limit(rate="100/s", gate="mail-api")]}


def too_many(**headers: str) -> httpx2.HTTPStatusError:
    request = httpx2.Request("GET", "https://example.com")
    response = httpx2.Response(429, headers=headers, request=request)
    return httpx2.HTTPStatusError("429", request=request, response=response)


async def ran(
    error: Exception, options: dict[str, Any], gates: dict[str, timedelta] | None = None
) -> JobSnapshot:
    """How a job stands after a run that raised this; each of the gates is closed for so long."""
    jobs = Gantline("memory://")
    jobs.move_to("memory://", clock=(clock := FakeClock()))

    @jobs.job("mail", **options)
    async def mail(name: str) -> None: ...

    @jobs.job("call", limits=[Limit(rate="100/s", gate="call-api")])
    async def call(name: str) -> None: ...

    async with jobs:
        await register_sessions(jobs.store, "session")
        await jobs.limits.declare([flow for one in (mail, call) for flow in one.flows or ()])
        handle = await mail.submit("a")
        requests = [LaneRequest("default", ("mail",), 1)]
        (run,) = await jobs.manager.claim("session", uuid4(), requests, lease=MINUTE)
        await jobs.manager.settle([Ending(run, classify(error))])
        closed = {
            state.name: state.closed_until - clock.now()
            for state in await jobs.store.gates(["mail-api", "call-api"])
            if state.closed_until is not None
        }
        assert closed == (gates or {})
        (job,) = await jobs.store.get([handle.job_id], tenant_id=None)
        assert job is not None
        return job


async def test_a_throttled_run_closes_its_gate_and_costs_no_attempt() -> None:
    error = Throttled(after=60, closes="mail-api")
    job = await ran(error, GATED, {"mail-api": MINUTE})
    assert job.status is JobStatus.QUEUED
    assert job.last is not None
    assert (job.last.event, job.last.reason) == (Event.SNOOZED, Reason.THROTTLED)
    assert (job.attempt, job.snoozes) == (0, 1)


@pytest.mark.parametrize(
    ("error", "options", "gates"),
    [
        (Throttled(after=MINUTE), GATED, {"mail-api": MINUTE}),
        (Throttled(after=60, closes="call-api"), GATED, {"call-api": MINUTE}),
        (Throttled(after=60, closes="call-api"), {}, {"call-api": MINUTE}),
        (Throttled(after=60), {}, {}),
        (Throttled(after=60, closes="none"), GATED, {"mail-api": MINUTE}),
        (Throttled(after=timedelta(days=9)), GATED, {"mail-api": timedelta(days=1)}),
        (too_many(**{"Retry-After": "60"}), GATED, {"mail-api": MINUTE}),
    ],
)
async def test_which_gate_a_throttled_run_closes(
    error: Exception, options: dict[str, Any], gates: dict[str, timedelta]
) -> None:
    job = await ran(error, options, gates)
    assert job.last is not None
    assert job.last.reason is Reason.THROTTLED


@pytest.mark.parametrize(
    ("error", "options"),
    [(too_many(**{"Retry-After": "60"}), {}), (too_many(), GATED), (Snooze(60), GATED)],
)
async def test_what_else_closes_no_gate(error: Exception, options: dict[str, Any]) -> None:
    job = await ran(error, options)
    assert job.last is not None
    expected = Reason.SNOOZED if isinstance(error, Snooze) else Reason.RETRYABLE_ERROR
    assert job.last.reason is expected


async def test_who_is_throttled_too_often_is_poisoned() -> None:
    job = await ran(Throttled(after=60), {"max_snoozes": 0, **GATED})
    assert job.last is not None
    assert (job.status, job.last.reason) == (JobStatus.POISONED, Reason.SNOOZED_TOO_OFTEN)


class Answer:
    """A response as a library has it."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status_code = self.status = status
        self.headers = headers


def of_requests(status: int, headers: dict[str, str]) -> Exception:
    error = Exception("requests, httpx and httpx2 have it so")
    error.response = Answer(status, headers)  # type: ignore[attr-defined]  # as theirs
    return error


def of_aiohttp(status: int, headers: dict[str, str]) -> Exception:
    error = Exception("aiohttp has it so")
    error.status, error.headers = status, headers  # type: ignore[attr-defined]  # as theirs
    return error


@pytest.mark.parametrize("make", [of_requests, of_aiohttp])
@pytest.mark.parametrize(
    ("status", "headers", "is_too_many"),
    [
        (429, {"Retry-After": "7"}, True),
        (429, {"retry-after": "7"}, True),
        (429, {}, False),
        (429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, False),
        (503, {"Retry-After": "7"}, False),
    ],
)
def test_only_a_429_that_says_how_long_to_wait_throttles(
    make: Callable[[int, dict[str, str]], Exception],
    status: int,
    headers: dict[str, str],
    is_too_many: bool,
) -> None:
    outcome = classify(make(status, headers))
    assert isinstance(outcome, Failure)
    assert outcome.too_many is is_too_many


def test_a_classifier_may_say_that_a_run_was_throttled() -> None:
    outcome = classify(KeyError(), lambda error: Throttled(after=5, closes="api"))
    assert outcome == Snoozed(timedelta(seconds=5), "api")
