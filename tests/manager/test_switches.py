"""The switches as a process knows them: young ones are not read again, doubted ones are."""

from gantline.contract.clock import SystemClock
from gantline.contract.records import Record
from gantline.manager.switches import Switches
from gantline.stores.memory import MemoryStore


async def test_a_switch_that_was_thrown_elsewhere_is_read_once_it_is_doubted() -> None:
    store = MemoryStore(clock=SystemClock())
    known = Switches(store)
    await known.refresh()
    await Switches(store).pause_queue("mail")
    await known.refresh()
    assert known.paused_queues == frozenset()
    known.invalidate()
    await known.refresh()
    assert known.paused_queues == {"mail"}


async def test_a_switch_that_is_thrown_while_they_are_read_is_read_again() -> None:
    class Slow(MemoryStore):
        """Answers what was so when it was asked."""

        async def read_records(
            self, namespace: str, *, prefix: str = "", after: str = "", limit: int = 1000
        ) -> list[Record]:
            found = await super().read_records(namespace, prefix=prefix, after=after, limit=limit)
            if not thrown:
                thrown.append(True)
                await Switches(store).pause_queue("mail")
                known.invalidate()
            return found

    thrown: list[bool] = []
    store = Slow(clock=SystemClock())
    known = Switches(store)
    await known.refresh()
    assert known.paused_queues == frozenset()
    await known.refresh()
    assert known.paused_queues == {"mail"}
