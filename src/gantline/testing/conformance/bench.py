"""The bench that a rule works at: a fresh store, its clock, and short words for common steps."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID, uuid4

from gantline.contract.errors import Code
from gantline.contract.flow import TypeFlow
from gantline.contract.outcome import ErrorInfo, Failure, Outcome, Snoozed, Success
from gantline.contract.results import Applied
from gantline.contract.snapshot import JobSnapshot, Run
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.manager.manager import Acted, Ending, JobManager, Settled
from gantline.manager.reaper import Reaped, Reaper
from gantline.testing.clock import FakeClock
from gantline.testing.factories import lane_requests, make_new, register_sessions

LEASE = timedelta(seconds=60)
HOUR = timedelta(hours=1)

PERMANENT = Failure(ErrorInfo("BROKEN", "It is broken."), retryable=False)
RETRYABLE = Failure(ErrorInfo(Code.NETWORK_ERROR, "Try again."))


class StoreHarness(Protocol):
    """What a store's author provides: one empty database, and handles on it.

    Every handle stands for a process of its own where the store has such a thing.
    """

    @property
    def clock(self) -> FakeClock: ...

    async def open(self, *, before_commit: Callable[[], None] | None = None) -> JobStore:
        """Open another handle on the same database; call `before_commit` inside every commit."""
        ...

    async def close(self) -> None:
        """Close all handles and remove the database."""
        ...


class Bench:
    """One store under test."""

    def __init__(self, harness: StoreHarness, store: JobStore) -> None:
        self.harness = harness
        self.clock = harness.clock
        self.store = store
        self.manager = JobManager(store, jitter=lambda: 0.0)
        self._registered: set[str] = set()

    @classmethod
    async def on(cls, harness: StoreHarness) -> "Bench":
        return cls(harness, await harness.open())

    async def close(self) -> None:
        await self.harness.close()

    async def another(self) -> "Bench":
        """A second process on the same database."""
        return Bench(self.harness, await self.harness.open())

    def over(self, store: JobStore) -> "Bench":
        """The same database, seen through another store object."""
        return Bench(self.harness, store)

    # -- steps --------------------------------------------------------------------------------

    async def submit(self, payload: Any = None, **fields: Any) -> UUID:
        new = make_new(payload, **fields)
        assert await self.store.insert([new]) == [Applied(1)]
        return new.job.job_id

    async def submit_many(self, count: int, **fields: Any) -> list[UUID]:
        new = [make_new(number, **fields) for number in range(count)]
        assert await self.store.insert(new) == [Applied(1)] * count
        return [one.job.job_id for one in new]

    async def register(self, session: str) -> None:
        """Let a session claim; done once."""
        if session not in self._registered:
            await register_sessions(self.store, session)
            self._registered.add(session)

    async def claim(
        self,
        *job_types: str,
        limit: int = 100,
        session: str = "worker-1",
        queue: str = "default",
        claim_id: UUID | None = None,
        at_most: dict[str, int] | None = None,
        suspects: tuple[int, ...] = (),
        flow: tuple[TypeFlow, ...] = (),
    ) -> list[Run]:
        await self.register(session)
        requests = lane_requests(
            *job_types, limit=limit, queue=queue, at_most=at_most, suspects=suspects, flow=flow
        )
        return await self.store.claim(session, claim_id or uuid4(), requests, lease=LEASE)

    async def start(self, payload: Any = None, *, session: str = "worker-1", **fields: Any) -> Run:
        """Submit a job and claim it."""
        job_id = await self.submit(payload, **fields)
        runs = await self.claim(session=session)
        assert [run.job.job_id for run in runs] == [job_id]
        return runs[0]

    async def settle(self, run: Run, outcome: Outcome) -> Settled:
        return (await self.manager.settle([Ending(run, outcome)]))[0]

    async def finish(self, run: Run, outcome: Outcome | None = None) -> None:
        settled = await self.settle(run, outcome or Success())
        assert settled.accepted, settled.result

    async def cancel(self, job_id: UUID) -> Acted:
        acted = (await self.manager.cancel([job_id], tenant_id=None, actor="op"))[0]
        assert isinstance(acted, Acted), acted
        return acted

    async def redrive(self, job_id: UUID) -> Acted:
        acted = (await self.manager.redrive([job_id], tenant_id=None, actor="op"))[0]
        assert isinstance(acted, Acted), acted
        return acted

    async def snapshot(self, job_id: UUID) -> JobSnapshot:
        job = (await self.store.get([job_id], tenant_id=None))[0]
        assert job is not None, f"{job_id} is gone"
        return job

    async def status(self, job_id: UUID) -> JobStatus:
        return (await self.snapshot(job_id)).status

    async def reap(self) -> Reaped:
        return await Reaper(self.store, jitter=lambda: 0.0).run_once()

    async def let_leases_expire(self) -> None:
        self.clock.advance(LEASE + timedelta(seconds=1))

    async def reap_expired(self) -> None:
        """Let the current runs crash; their jobs wait for their backoff."""
        await self.let_leases_expire()
        await self.reap()

    async def bring_to(self, status: JobStatus, **fields: Any) -> tuple[UUID, Run]:
        """Make a job that stands in `status` and has been run; return its newest run too."""
        run = await self.start(**fields)
        job_id = run.job.job_id
        match status:
            case JobStatus.RUNNING:
                pass
            case JobStatus.QUEUED:
                await self.finish(run, Snoozed(timedelta(0)))
            case JobStatus.COMPLETED:
                await self.finish(run)
            case JobStatus.FAILED:
                await self.finish(run, PERMANENT)
            case JobStatus.POISONED:
                for _ in range(run.job.max_attempts - 1):
                    await self.finish(run, RETRYABLE)
                    self.clock.advance(HOUR)
                    run = (await self.claim())[0]
                await self.finish(run, RETRYABLE)
            case JobStatus.CANCELLED:
                await self.finish(run, Snoozed(timedelta(0)))
                await self.cancel(job_id)
        assert await self.status(job_id) is status
        return job_id, run

    async def recount(self) -> dict[str, int]:
        """What the store counts per status, over all lanes."""
        lanes = await self.store.counts(tenant_id=None)
        return {
            status.value: sum(getattr(lane, status.value.lower()) for lane in lanes)
            for status in JobStatus
        }
