"""The pruner catches up in steps of bounded time, and leaves the store to others between them."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from gantline.contract.errors import StoreUnavailable
from gantline.contract.query import Pruned, PruneRule
from gantline.manager.pruner import Pruner
from gantline.manager.switches import Switches
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from tests.moving_stores import close

IN_TIME = timedelta(0)
LATE = timedelta(minutes=1)


class Enough(BaseException):
    """The test has seen what it wanted."""


class Backlog(MemoryStore):
    """A store with old jobs that take time to remove."""

    def __init__(self, jobs: int, *, job_micros: float, overdue: timedelta = IN_TIME) -> None:
        super().__init__(clock=FakeClock())
        self.left = jobs
        self.seconds = 0.0
        self.steps: list[tuple[int, float]] = []
        """The limit of each, and how long it took."""
        self.pauses: list[float] = []
        self._job_seconds = job_micros / 1e6
        self._left_overdue = overdue

    async def prune(
        self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
    ) -> Pruned:
        removed = min(limit, self.left)
        self.left -= removed
        self.seconds += removed * self._job_seconds
        self.steps.append((limit, removed * self._job_seconds))
        return Pruned(removed, 0, 0, self._left_overdue, removed * self._job_seconds)

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.pauses.append(seconds)

    def pruner(self) -> Pruner:
        return Pruner(self, Switches(self), monotonic=lambda: self.seconds, sleep=self.sleep)


async def test_it_goes_on_until_nothing_old_is_left() -> None:
    store = Backlog(123_456, job_micros=10)
    assert (await store.pruner().run_once()).jobs == 123_456
    assert store.left == 0


@pytest.mark.parametrize(
    ("job_micros", "limit"), [(1, 5_000), (10, 2_000), (100, 200), (10_000, 100)]
)
async def test_steps_become_as_large_as_their_time_allows(job_micros: float, limit: int) -> None:
    store = Backlog(50_000, job_micros=job_micros)
    await store.pruner().run_once()
    assert all(100 <= size <= 5_000 for size, _ in store.steps)
    assert all(size == pytest.approx(limit, rel=0.01) for size, _ in store.steps[10:])
    if 100 < limit < 5_000:
        assert max(seconds for _, seconds in store.steps[3:]) < 0.021


@pytest.mark.parametrize(
    ("overdue", "share"), [(IN_TIME, 0.25), (LATE / 2, 0.5), (LATE, 0.75), (100 * LATE, 0.75)]
)
async def test_the_later_it_is_the_more_of_the_time_it_takes(
    overdue: timedelta, share: float
) -> None:
    store = Backlog(100_000, job_micros=20, overdue=overdue)
    await store.pruner().run_once()
    pruning = sum(seconds for _, seconds in store.steps)
    assert pruning / store.seconds == pytest.approx(share, abs=0.01)


async def test_a_step_that_stood_still_is_followed_by_a_short_pause() -> None:
    store = Backlog(5_000, job_micros=1_000_000)
    await store.pruner().run_once()
    assert max(store.pauses) == 5


async def test_it_looks_less_often_while_nothing_becomes_old() -> None:
    store = Backlog(1, job_micros=10)

    async def sleep(seconds: float) -> None:
        store.pauses.append(seconds)
        if len(store.pauses) == 3:
            raise Enough

    with pytest.raises(Enough):
        await Pruner(store, Switches(store), sleep=sleep).run_for_ever()
    assert store.pauses == [5, 30, 30]


async def test_it_survives_a_store_that_is_away() -> None:
    class Away(Backlog):
        async def prune(
            self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
        ) -> Pruned:
            if not self.pauses:
                raise StoreUnavailable("It is away.")
            return await super().prune(rules, limit=limit)

    store = Away(10, job_micros=10)

    async def sleep(seconds: float) -> None:
        store.pauses.append(seconds)
        if not store.left:
            raise Enough

    with pytest.raises(Enough):
        await Pruner(store, Switches(store), sleep=sleep).run_for_ever()
    assert store.pauses == [5, 5]


async def test_it_stops_between_two_steps_when_the_store_is_closed() -> None:
    store = Backlog(50_000, job_micros=10)

    async def sleep(seconds: float) -> None:
        await close(store)
        pruner._switches.invalidate()
        store.seconds += 1

    pruner = Pruner(store, Switches(store), monotonic=lambda: store.seconds, sleep=sleep)
    assert (await pruner.run_once()).jobs == 500
