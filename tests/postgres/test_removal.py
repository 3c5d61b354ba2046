"""Pruning on PostgreSQL: what becomes of the batches that number events."""

from gantline.contract.query import PruneRule
from gantline.contract.status import JobStatus
from gantline.manager.sequencer import number_events
from gantline.stores.postgres import PostgresStore
from gantline.testing.conformance.bench import HOUR, Bench
from tests.harness import PostgresHarness
from tests.servers.postgres import PostgresServer


async def test_each_look_at_the_batches_goes_on_where_the_last_one_ended(
    postgres: PostgresServer,
) -> None:
    """Dead jobs are kept for longer, and their batches must not hide the empty ones after them."""
    bench = await Bench.on(PostgresHarness(postgres))
    store = bench.store
    assert isinstance(store, PostgresStore)

    async def batches() -> list[int]:
        text = "SELECT last FROM gantline.event_batch ORDER BY last"
        return [row[0] for row in await store.calls.run(lambda sql: sql.rows(text))]

    for status in [JobStatus.FAILED] * 10 + [JobStatus.COMPLETED] * 10:
        await bench.bring_to(status)
        await number_events(store)
    bench.clock.advance(HOUR)
    rules = [PruneRule(JobStatus.COMPLETED, bench.clock.now())]
    await store.prune(rules, limit=1)  # looks at four events for each job that goes
    assert await batches() == list(range(1, 21))
    await store.prune(rules, limit=2)
    assert await batches() == [*range(1, 11), *range(14, 21)]
    await bench.close()
