"""Pools of connections: one per event loop, also while loops of other threads end."""

import asyncio

import pytest

from gantline.stores.pool import Pools, Purpose


class Idle:
    """A connection that does nothing."""

    is_reusable = True

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


async def connect() -> Idle:
    return Idle()


def test_several_threads_may_find_that_a_loop_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = Pools(connect, 1)

    async def use() -> None:
        async with pools.get(Purpose.VERBS).connection():
            pass

    ended = asyncio.new_event_loop()
    ended.run_until_complete(use())
    ended.close()

    def is_closed() -> bool:
        pools._pools.pop((ended, Purpose.VERBS), None)  # as another thread does just now
        return True

    monkeypatch.setattr(ended, "is_closed", is_closed)
    asyncio.run(use())
    assert (ended, Purpose.VERBS) not in pools._pools
