"""How old counts may be: as old as they are dear, and not older because many wait their turn."""

import asyncio

from gantline.contract.query import LaneCounts
from gantline.stores.slow_counts import SlowCounts, Stopwatch
from gantline.testing.clock import FakeClock


class Counter:
    """Counts one job more each time, after a wait for a connection and some work of the server."""

    def __init__(self, clock: FakeClock, *, waits: float, works: float) -> None:
        self._clock = clock
        self._waits = waits
        self._works = works
        self._counted = 0

    async def __call__(self, timed: Stopwatch) -> list[LaneCounts]:
        self._clock.advance(self._waits)
        with timed:
            self._clock.advance(self._works)
            self._counted += 1
        return [LaneCounts(queue="q", job_type="t", queued=self._counted)]


def slow_counts(clock: FakeClock) -> SlowCounts[LaneCounts]:
    return SlowCounts(clock.monotonic, clock.monotonic)


async def told(counts: SlowCounts[LaneCounts], count: Counter) -> int:
    (lane,) = await counts.get("a", count)
    return lane.queued


async def test_a_count_that_was_dear_is_told_again_for_a_while() -> None:
    clock = FakeClock()
    counts, count = slow_counts(clock), Counter(clock, waits=0.0, works=0.1)
    assert [await told(counts, count) for _ in range(3)] == [1, 1, 1]
    clock.advance(2.1)
    assert await told(counts, count) == 2


async def test_waiting_for_a_connection_makes_no_count_dear() -> None:
    clock = FakeClock()
    counts, count = (
        SlowCounts[LaneCounts](clock.monotonic, clock.monotonic),
        Counter(clock, waits=5.0, works=0.01),
    )
    assert [await told(counts, count) for _ in range(3)] == [1, 2, 3]


async def test_who_comes_while_a_slow_count_is_made_anew_gets_the_one_before() -> None:
    """Else all who ask for it would keep the threads of a store from others at the same moment."""
    clock = FakeClock()
    counts, count = slow_counts(clock), Counter(clock, waits=0.0, works=0.1)
    assert await told(counts, count) == 1
    clock.advance(2.1)
    under_way, may_end = asyncio.Event(), asyncio.Event()

    async def wait(timed: Stopwatch) -> list[LaneCounts]:
        under_way.set()
        await may_end.wait()
        return await count(timed)

    anew = asyncio.create_task(counts.get("a", wait))
    await under_way.wait()
    assert await told(counts, count) == 1
    may_end.set()
    assert [lane.queued for lane in await anew] == [2]
