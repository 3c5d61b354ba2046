"""What limits hold back, as the metrics page has it."""

from datetime import timedelta
from uuid import uuid4

from prometheus_client.parser import text_string_to_metric_families

from gantline import Gantline, Limit, Throttled
from gantline.contract.classify import classify
from gantline.contract.query import LaneRequest
from gantline.flow.limits import Limits
from gantline.flow.pressure import NO_PRESSURE, measure_pressure
from gantline.manager.manager import Ending
from gantline.stores.memory import MemoryStore
from gantline.telemetry.metrics_page import StoreCounts
from gantline.telemetry.prometheus import encode_page, store_families
from gantline.testing.clock import FakeClock
from gantline.testing.factories import register_sessions


async def test_what_limits_hold_back_is_counted_by_type_and_by_what() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    jobs = Gantline(store)

    @jobs.job("import", group=lambda of: of, limits=[Limit(running=1)])
    async def import_(of: str) -> None: ...

    @jobs.job("report", limits=[Limit(running=1, per="type")])
    async def report(of: str) -> None: ...

    @jobs.job("mail", limits=[Limit(rate="1/s", gate="mail-api")])
    async def mail(of: str) -> None: ...

    @jobs.job("call", limits=[Limit(rate="1/s", gate="call-api")])
    async def call(of: str) -> None: ...

    async with jobs:
        types = (import_, report, mail, call)
        await jobs.limits.declare([flow for one in types for flow in one.flows or ()])
        await register_sessions(store, "worker")
        await import_.submit_many(["a", "a", "a", "b"])
        await report.submit_many(["x", "x", "x"])
        await report.submit("x", delay=60)
        await mail.submit_many(["x", "x"])
        requests = [LaneRequest("default", ("import", "report", "mail"), 50)]
        runs = await jobs.manager.claim(
            "worker", uuid4(), jobs.limits.applied_to(requests), lease=timedelta(minutes=1)
        )
        (mailed,) = [run for run in runs if run.job.job_type == "mail"]
        await jobs.manager.settle([Ending(mailed, classify(Throttled(after=30)))])
        lanes, now = await store.counts(tenant_id=None), await store.ping()
        found = await measure_pressure(store, jobs.limits, lanes, now)
    assert found.gates == {"mail-api": 30.0, "call-api": 0.0}
    assert found.groups == {"import": 1}
    assert found.held_back == {
        ("import", "group"): 2,
        ("report", "type"): 2,
        ("mail", "gate"): 1,
        ("call", "gate"): 0,
    }
    page = encode_page(store_families(StoreCounts([], {}, {}, 0.0, found)))
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }
    assert samples["gantline_gate_closed", "mail-api"] == 1
    assert samples["gantline_gate_closed", "call-api"] == 0
    assert samples["gantline_gate_opens_in_seconds", "mail-api"] == 30
    assert samples["gantline_groups_waiting", "import"] == 1
    assert samples["gantline_jobs_held_back", "import", "group"] == 2


async def test_without_limits_nothing_is_read() -> None:
    class Unread(MemoryStore):
        def __getattribute__(self, name: str) -> object:
            assert name not in {"groups", "gates"}
            return super().__getattribute__(name)

    store = Unread(clock=FakeClock())
    limits = Limits(store)
    await limits.refresh()
    assert await measure_pressure(store, limits, [], await store.ping()) == NO_PRESSURE
