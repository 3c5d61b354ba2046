"""The numbers of events as they are read out, also of those whose commit came late."""

from gantline.contract.outcome import Success
from gantline.contract.stored import Part, StoredJob
from gantline.contract.transition import Transition
from gantline.manager.sequencer import number_events
from gantline.testing.conformance.bench import HOUR, Bench
from tests.harness import PostgresHarness
from tests.servers.postgres import PostgresServer


async def dumped_numbers(bench: Bench) -> dict[tuple[str, int], int]:
    page = await bench.store.dump(Part.JOBS, limit=1000)
    return {
        (str(item.job.job_id), row.entry.version): row.sequence
        for item in page.items
        if isinstance(item, StoredJob)
        for row in item.log
    }


async def test_a_late_commit_is_read_out_with_its_number(postgres: PostgresServer) -> None:
    bench = await Bench.on(PostgresHarness(postgres))
    try:
        await bench.submit_many(6)
        runs = await bench.claim()
        late, *early = runs
        async with bench.store.transaction() as transaction:
            await transaction.apply(Transition.completed(late, Success(), hold_key=HOUR))
            for run in early[:3]:  # batches of their own, behind a gap
                await bench.finish(run)
                await number_events(bench.store)
        await number_events(bench.store)  # a batch of late rows only
        for run in early[3:]:
            await bench.finish(run)
        await number_events(bench.store)
        events = await bench.store.events(after=0, limit=100)
        told = {(str(one.entry.job_id), one.entry.version): one.sequence for one in events}
        assert await dumped_numbers(bench) == told
        assert sorted(told.values()) == [1, 2, 3, 4, 5, 6]
        assert told[str(late.job.job_id), 3] == 4
    finally:
        await bench.close()
