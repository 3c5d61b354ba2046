"""The liveness oracle is seen to fail: workers that are stuck, and runs that were for nothing."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from gantline.contract.errors import StoreUnavailable
from gantline.contract.outcome import ErrorInfo, Failure, Outcome, Released, Success
from gantline.contract.store import JobStore
from gantline.manager.manager import Ending, JobManager
from gantline.manager.reaper import Reaper
from gantline.manager.sessions import Session, register
from gantline.manager.switches import Switches
from gantline.stores.memory import MemoryStore
from gantline.telemetry.health import WELL, Check, build_response
from gantline.telemetry.health_server import HealthServer, Routes, parse_address
from gantline.testing.clock import FakeClock
from gantline.testing.factories import JOB_TYPE, lane_requests, make_new, register_sessions
from gantline.testing.faults import Call, intercepted
from gantline.testing.liveness import LivenessOracle, RanForNothing, WaitedTooLong, watching
from gantline.testing.readiness import of_port

WITHIN = timedelta(seconds=5)
LEASE = timedelta(seconds=10)


class StuckWorker:
    """Registers itself, and claims only when the test says so."""

    def __init__(self, store: JobStore, clock: FakeClock) -> None:
        self.clock = clock
        self.store = store
        self.manager = JobManager(store)
        self.says = WELL

    async def readiness(self) -> Check:
        return self.says

    def oracle(self) -> LivenessOracle:
        return LivenessOracle(self.store, readiness=[self.readiness], within=WITHIN)

    async def register(self) -> None:
        session = Session(
            session_id="stuck",
            host="host",
            pid=1,
            version="0",
            started_at=self.clock.now(),
            last_seen_at=self.clock.now(),
            queues={"default": 1},
            job_types=(JOB_TYPE,),
        )
        await register(self.store, session)

    async def run_one(self, outcome: Outcome) -> None:
        await register_sessions(self.store, "runner")
        (run,) = await self.manager.claim("runner", uuid4(), lane_requests(limit=1), lease=LEASE)
        await self.manager.settle([Ending(run, outcome)])

    async def crash_one(self) -> None:
        await register_sessions(self.store, "runner")
        await self.manager.claim("runner", uuid4(), lane_requests(limit=1), lease=LEASE)
        self.clock.advance(LEASE + timedelta(seconds=1))
        await Reaper(self.store).run_once()


@pytest.fixture
async def worker() -> StuckWorker:
    clock = FakeClock()
    worker = StuckWorker(MemoryStore(clock=clock), clock)
    await worker.register()
    return worker


async def test_a_due_job_that_no_ready_worker_starts_is_a_violation(worker: StuckWorker) -> None:
    oracle = worker.oracle()
    await worker.store.insert([make_new()])
    await oracle.sample()
    worker.clock.advance(6)
    await oracle.sample()
    (late,) = oracle.violations
    assert isinstance(late, WaitedTooLong)
    assert (late.queue, late.job_type, late.seconds) == ("default", JOB_TYPE, 6.0)
    with pytest.raises(AssertionError, match=r"not started for 6\.0 s \(ready\)"):
        oracle.check()


async def test_a_job_that_waits_on_is_one_violation_with_its_longest_wait(
    worker: StuckWorker,
) -> None:
    oracle = worker.oracle()
    await worker.store.insert([make_new()])
    for _ in range(5):
        await oracle.sample()
        worker.clock.advance(3)
    (late,) = oracle.violations
    assert isinstance(late, WaitedTooLong)
    assert late.seconds == 12.0


async def test_a_job_that_starts_in_time_is_none(worker: StuckWorker) -> None:
    oracle = worker.oracle()
    await worker.store.insert([make_new()])
    await oracle.sample()
    worker.clock.advance(4)
    await oracle.sample()
    await worker.run_one(Success())
    worker.clock.advance(60)
    await oracle.sample()
    oracle.check()


async def test_a_job_whose_time_has_not_come_is_none(worker: StuckWorker) -> None:
    oracle = worker.oracle()
    await worker.store.insert([make_new(delay=timedelta(minutes=1))])
    await oracle.sample()
    worker.clock.advance(59)
    await oracle.sample()
    oracle.check()


async def test_a_worker_that_says_why_it_is_unready_may_let_jobs_wait(worker: StuckWorker) -> None:
    oracle = worker.oracle()
    await worker.store.insert([make_new()])
    worker.says = Check(ok=False, message="A handler blocks it.")
    for _ in range(4):
        await oracle.sample()
        worker.clock.advance(4)
    oracle.check()
    worker.says = WELL
    await oracle.sample()
    worker.clock.advance(2)
    await oracle.sample()
    with pytest.raises(AssertionError, match=r"not started for 6\.0 s"):
        oracle.check()


async def test_a_worker_that_is_unready_without_a_reason_may_not(worker: StuckWorker) -> None:
    oracle = worker.oracle()
    await worker.store.insert([make_new()])
    worker.says = Check(ok=False)
    await oracle.sample()
    worker.clock.advance(6)
    await oracle.sample()
    with pytest.raises(AssertionError, match="not ready, without a reason"):
        oracle.check()


async def test_one_ready_worker_among_unready_ones_must_run_the_job(worker: StuckWorker) -> None:
    async def ready() -> Check:
        return WELL

    worker.says = Check(ok=False, message="It is stopping.")
    oracle = LivenessOracle(worker.store, readiness=[worker.readiness, ready], within=WITHIN)
    await worker.store.insert([make_new()])
    await oracle.sample()
    worker.clock.advance(6)
    await oracle.sample()
    with pytest.raises(AssertionError, match=r"It is stopping\.; ready"):
        oracle.check()


@pytest.mark.parametrize(
    "stop",
    [
        lambda switches: switches.pause_queue("default"),
        lambda switches: switches.pause_type(JOB_TYPE),
        lambda switches: switches.disable_type(JOB_TYPE),
    ],
    ids=["queue paused", "type paused", "type disabled"],
)
async def test_jobs_that_are_not_to_run_may_wait(
    worker: StuckWorker, stop: Callable[[Switches], Awaitable[None]]
) -> None:
    oracle = worker.oracle()
    await stop(Switches(worker.store))
    await worker.store.insert([make_new()])
    await oracle.sample()
    worker.clock.advance(6)
    await oracle.sample()
    oracle.check()


async def test_jobs_that_no_worker_serves_may_wait_unless_the_test_names_their_lane(
    worker: StuckWorker,
) -> None:
    by_sessions = worker.oracle()
    by_name = LivenessOracle(
        worker.store, readiness=[], within=WITHIN, lanes=[("default", "other")]
    )
    await worker.store.insert([make_new(job_type="other")])
    for oracle in (by_sessions, by_name):
        await oracle.sample()
    worker.clock.advance(6)
    for oracle in (by_sessions, by_name):
        await oracle.sample()
    by_sessions.check()
    with pytest.raises(AssertionError, match="other in queue default"):
        by_name.check()


async def test_in_a_backlog_a_job_may_wait_as_long_as_others_end(worker: StuckWorker) -> None:
    strict = worker.oracle()
    oracle = LivenessOracle(worker.store, readiness=[worker.readiness], within=WITHIN, backlog=True)
    await worker.store.insert([make_new() for _ in range(5)])
    for _ in range(3):
        await oracle.sample()
        await strict.sample()
        worker.clock.advance(4)
        await worker.run_one(Success())
    await oracle.sample()
    oracle.check()
    await strict.sample()
    with pytest.raises(AssertionError):
        strict.check()
    worker.clock.advance(6)
    await worker.run_one(Released())  # starts, and ends nothing
    await oracle.sample()
    with pytest.raises(AssertionError, match=r"not started for 6\.0 s"):
        oracle.check()


async def test_while_the_store_does_not_answer_nothing_is_expected_to_start(
    worker: StuckWorker,
) -> None:
    is_away = False

    async def around(verb: str, call: Call) -> Any:
        if is_away:
            raise StoreUnavailable("It does not answer.")
        return await call()

    store = intercepted(worker.store, around)
    oracle = LivenessOracle(store, readiness=[worker.readiness], within=WITHIN)
    await store.insert([make_new()])
    await oracle.sample()
    is_away = True
    worker.clock.advance(30)
    await oracle.sample()
    is_away = False
    await oracle.sample()
    oracle.check()
    worker.clock.advance(6)
    await oracle.sample()
    with pytest.raises(AssertionError, match=r"not started for 6\.0 s"):
        oracle.check()


async def test_an_oracle_that_never_saw_the_store_proves_nothing(worker: StuckWorker) -> None:
    with pytest.raises(AssertionError, match="nothing is proven"):
        worker.oracle().check()


async def test_watching_samples_at_its_pace_and_once_at_the_end(worker: StuckWorker) -> None:
    paused = asyncio.Queue[float]()
    go_on = asyncio.Queue[None]()

    async def pause(seconds: float) -> None:
        await paused.put(seconds)
        await go_on.get()

    async with watching(
        worker.store,
        readiness=[worker.readiness],
        within=WITHIN,
        every=timedelta(seconds=1),
        pause=pause,
    ) as oracle:
        await worker.store.insert([make_new()])
        assert await paused.get() == 1.0
        await go_on.put(None)
        assert await paused.get() == 1.0
        assert oracle.samples == 2
        worker.clock.advance(6)
    assert oracle.samples == 3
    with pytest.raises(AssertionError, match="not started"):
        oracle.check()


async def test_an_error_of_the_block_says_what_had_waited_too_long(worker: StuckWorker) -> None:
    """Most tests have a timeout, which ends them before they come to check."""

    async def stand_still(oracle: LivenessOracle) -> None:
        await worker.store.insert([make_new()])
        await oracle.sample()
        worker.clock.advance(6)
        await oracle.sample()
        raise TimeoutError

    with pytest.raises(TimeoutError) as raised:
        async with watching(worker.store, readiness=[worker.readiness], within=WITHIN) as oracle:
            await stand_still(oracle)
    assert [note for note in raised.value.__notes__ if "not started for 6.0 s (ready)" in note]


async def test_a_sample_that_fails_ends_the_watching_with_its_error(worker: StuckWorker) -> None:
    failed = asyncio.Event()

    async def broken() -> Check:
        failed.set()
        raise LookupError("no such worker")

    with pytest.raises(LookupError):
        async with watching(worker.store, readiness=[broken], within=WITHIN):
            await failed.wait()


async def test_each_job_that_ran_once_is_no_waste(worker: StuckWorker) -> None:
    oracle = worker.oracle()
    await worker.store.insert([make_new(), make_new()])
    await worker.run_one(Success())
    await oracle.sample()
    await oracle.check_economy()


async def test_a_retry_that_the_handler_asked_for_is_no_waste(worker: StuckWorker) -> None:
    oracle = worker.oracle()
    await worker.store.insert([make_new()])
    await worker.run_one(Failure(ErrorInfo("CODE", "again"), retry_after=timedelta(0)))
    await worker.run_one(Success())
    await oracle.sample()
    await oracle.check_economy()


async def test_a_run_that_was_given_back_is_waste(worker: StuckWorker) -> None:
    oracle = worker.oracle()
    await worker.store.insert([make_new()])
    await worker.run_one(Released())
    await worker.run_one(Success())
    await oracle.sample()
    with pytest.raises(AssertionError, match="2 runs, and its history has released, completed"):
        await oracle.check_economy()
    (wasted,) = oracle.violations
    assert isinstance(wasted, RanForNothing)


async def test_a_run_that_was_taken_over_is_waste(worker: StuckWorker) -> None:
    oracle = worker.oracle()
    await worker.store.insert([make_new()])
    await oracle.sample()
    await worker.crash_one()
    worker.clock.advance(60)
    await worker.run_one(Success())
    with pytest.raises(AssertionError, match="crashed, completed"):
        await oracle.check_economy()


async def test_readiness_over_a_port_names_the_check_that_failed() -> None:
    checks = {"store": WELL, "consuming": Check(ok=False, message="It cannot claim.")}
    server = HealthServer(
        parse_address("127.0.0.1:0"), Routes({"/readyz": lambda: _async(build_response(checks))})
    )
    await asyncio.to_thread(server.start)
    try:
        assert server.address.port is not None
        assert await of_port(server.address.port)() == checks["consuming"]
        checks["consuming"] = WELL
        assert (await of_port(server.address.port)()).ok
    finally:
        await asyncio.to_thread(server.stop)


async def test_where_nobody_listens_readiness_says_so() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        check = await of_port(port)()
    assert check == Check(ok=False, message=f"port {port} does not answer (ConnectionRefusedError)")


async def _async(value: Any) -> Any:
    return value


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 134\r\n\r\n"])
async def test_a_worker_that_dies_while_it_answers_is_not_ready(sent: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(sent)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        check = await of_port(server.sockets[0].getsockname()[1])()
    assert (check.ok, check.message) == (False, "hung up before the end of its answer")
