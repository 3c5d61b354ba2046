"""The store in memory forgets groups of which nothing waits any more."""

from gantline.stores.memory import MemoryStore
from gantline.testing.conformance.bench import Bench
from gantline.testing.conformance.suspects import submit_suspect
from tests.harness import MemoryHarness


async def test_groups_of_suspects_are_forgotten_with_their_last() -> None:
    """Each claim of suspects walks all of those it knows."""
    bench = await Bench.on(MemoryHarness())
    store = bench.store
    assert isinstance(store, MemoryStore)
    for index in range(3):
        await submit_suspect(bench, group=f"group-{index}")
    for left in (2, 1, 0):
        assert len(await bench.claim(limit=1, suspects=(1,))) == 1
        known = [list(turns) for turns in store._turns.values()]
        assert [len(groups) for groups in known] == [left + 1] * bool(left)
    await bench.close()
