"""Flow torture: groups, limits and a gate under everything that can happen to jobs, by chance."""

from collections import Counter
from datetime import timedelta
from random import Random
from typing import Final
from uuid import UUID

from gantline.contract.flow import Gate, TypeFlow
from gantline.contract.outcome import Released, Snoozed, Stopped, Success
from gantline.contract.query import JobFilter
from gantline.contract.results import Applied
from gantline.contract.snapshot import Run
from gantline.contract.status import DEAD, JobStatus
from gantline.contract.transition import Transition
from gantline.testing.conformance.bench import LEASE, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.races import together
from gantline.testing.conformance.rule import rule_for
from gantline.testing.conformance.turns import by_group

NEEDS: Final = "limits"

_GROUPS: Final = (("default", ""), ("default", "a"), ("t", "a"), ("t", "b"), ("u", ""))
_QUEUES: Final = ("one", "two")
_FLOW: Final = (
    TypeFlow(job_type="a", running=2),
    TypeFlow(job_type="b", running=2, running_in_all=5, gate=Gate("g", per_second=5, burst=3)),
)
_TYPES: Final = ("a", "b", "c")
_STEPS: Final = 120
_ANY: Final = (100,)


class _Torture:
    def __init__(self, bench: Bench, other: Bench, seed: int) -> None:
        self._bench = bench
        self._handles = (bench, other)
        self._random = Random(seed)  # noqa: S311  # no secret
        self._running: dict[UUID, Run] = {}

    async def step(self) -> None:
        step = self._random.choices(
            (self._submit, self._claim, self._end, self._crash, self._act, self._wait),
            (25, 30, 30, 2, 5, 8),
        )[0]
        await step()

    async def _submit(self) -> None:
        tenant, group = self._random.choice(_GROUPS)
        await self._any_handle().submit_many(
            self._random.choice((1, 1, 5)),
            tenant_id=tenant,
            group=group,
            queue=self._random.choice(_QUEUES),
            job_type=self._random.choice(_TYPES),
            priority=self._random.randrange(4),
            delay=timedelta(seconds=self._random.choice((0, 0, 0, 1, 30))),
            max_attempts=50,
        )

    async def _claim(self) -> None:
        limit, suspects = self._random.choice((1, 3, 20)), self._random.choice(((), (), _ANY))
        claims = [
            handle.claim(
                *_TYPES, limit=limit, queue=queue, suspects=suspects, flow=_FLOW, session=session
            )
            for handle, queue, session in zip(self._handles, _QUEUES, "xy", strict=True)
        ]
        for runs in await together(*claims):
            self._note(runs)

    def _note(self, runs: list[Run]) -> None:
        self._running |= {run.job.job_id: run for run in runs}
        for kind in ("a", "b"):
            running = [run for run in self._running.values() if run.job.job_type == kind]
            shares = Counter((run.job.tenant_id, run.job.group) for run in running)
            assert max(shares.values(), default=0) <= 2, (kind, shares)
            assert kind == "a" or len(running) <= 5

    async def _end(self) -> None:
        some = list(self._running.values())
        for run in self._random.sample(some, min(len(some), self._random.choice((1, 4)))):
            if await self._end_of(run):
                del self._running[run.job.job_id]

    async def _end_of(self, run: Run) -> bool:
        closes = Transition.throttled(run, delay=timedelta(seconds=2), closes="g")
        outcome = self._random.choice(
            (
                *(Success(), Success(), PERMANENT, RETRYABLE, Released(), closes),
                Snoozed(timedelta(seconds=3)),
            )
        )
        if isinstance(outcome, Transition):
            (result,) = await self._any_handle().store.apply([outcome])
            return isinstance(result, Applied)
        settled = await self._any_handle().settle(run, outcome)
        if not settled.accepted:  # somebody has asked to stop it
            settled = await self._any_handle().settle(run, Stopped())
        assert settled.accepted
        return True

    async def _crash(self) -> None:
        self._bench.clock.advance(LEASE + timedelta(seconds=1))
        await self._any_handle().reap()
        self._running.clear()

    async def _act(self) -> None:
        page = await self._bench.store.find(JobFilter(tenant_id=None), limit=50)
        for job in self._random.sample(page.items, min(3, len(page.items))):
            if job.status in DEAD:
                await self._any_handle().redrive(job.job.job_id)
            elif not job.status.is_terminal:
                await self._any_handle().cancel(job.job.job_id)

    async def _wait(self) -> None:
        self._bench.clock.advance(self._random.choice((0.1, 1, 10)))

    def _any_handle(self) -> Bench:
        return self._random.choice(self._handles)

    async def drain(self) -> None:
        """Run all that waits to its end, one claim after the other."""
        for run in self._running.values():
            await self._end_of_drained(run)
        self._running.clear()
        idle = 0
        while idle < 3:
            idle += 1
            for queue in _QUEUES:
                for suspects in ((), _ANY):
                    runs = await self._bench.claim(
                        *_TYPES, queue=queue, suspects=suspects, flow=_FLOW
                    )
                    self._note(runs)
                    for run in runs:
                        idle = 0
                        await self._end_of_drained(run)
                        del self._running[run.job.job_id]
            self._bench.clock.advance(LEASE * 60 if idle else LEASE)

    async def _end_of_drained(self, run: Run) -> None:
        if not (await self._bench.settle(run, Success())).accepted:
            await self._bench.finish(run, Stopped())


@rule_for(range(4))
async def whatever_happens_limits_hold_and_nothing_is_left_behind(bench: Bench, seed: int) -> None:
    torture = _Torture(bench, await bench.another(), seed)
    for _ in range(_STEPS):
        await torture.step()
    await torture.drain()
    counts = await bench.recount()
    assert (counts["Queued"], counts["Running"]) == (0, 0)
    for kind in _TYPES:
        for queue in _QUEUES:
            page = await bench.store.groups(queue, kind, tenant_id=None, limit=10)
            assert page.items == ()
    # All places are as free as at the beginning.
    for group in ("a", "new"):
        await bench.submit_many(3, group=group, queue="one", job_type="b")
    runs = await bench.claim("b", queue="one", flow=_FLOW)
    assert sum(by_group(runs).values()) == 3
    bench.clock.advance(10)
    runs += await bench.claim("b", queue="one", flow=_FLOW)
    assert by_group(runs) == {"a": 2, "new": 2}
    assert {await bench.status(run.job.job_id) for run in runs} == {JobStatus.RUNNING}
