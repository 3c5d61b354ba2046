"""A chain has one order, whoever writes to it and whatever happens meanwhile."""

import asyncio
import hashlib
import json
from contextlib import suppress
from typing import Any

import msgspec

from gantline.audit.chain import FIRST_PREVIOUS, MOST_IN_A_BLOCK, NAMESPACE, AuditChains
from gantline.audit.chain_writer import ChainWriter
from gantline.contract.errors import StoreCorrupt, StoreUnavailable
from gantline.contract.records import RecordWrite
from gantline.testing.clock import FakeClock
from gantline.testing.conformance.bench import HOUR
from gantline.testing.faults import AnswerLost, Call, intercepted, losing_answers
from tests.audit.conftest import TENANT, Trail, draft, slow


async def test_each_event_is_tied_to_the_one_before(trail: Trail) -> None:
    events = await trail.append(3)
    assert [event.version for event in events] == [1, 2, 3]
    assert [event.previous_hash for event in events] == [
        FIRST_PREVIOUS,
        events[0].hash,
        events[1].hash,
    ]
    assert await trail.events() == events
    result = await trail.verified()
    assert (result.events, result.first_version, result.last_version) == (3, 1, 3)
    assert result.findings == []


async def test_anybody_can_compute_the_hashes(trail: Trail) -> None:
    """With nothing but the standard library, as docs/audit.md says."""
    await trail.writer.append(TENANT, draft(text='ü "quoted" \u2028 \x7f \\', none=None, n=1.5))

    def digest(value: Any) -> str:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    (event,) = [json.loads(msgspec.json.encode(one)) for one in await trail.events()]
    names = ("tenantId", "aggregate", "version", "type", "time", "actor")
    sealed = {name: event[name] for name in (*names, "payloadHash", "previousHash")}
    assert event["payloadHash"] == digest(event["payload"])
    assert event["hash"] == digest(sealed)


async def test_what_waits_together_is_written_together(trail: Trail) -> None:
    count = MOST_IN_A_BLOCK + 5
    events = await asyncio.gather(
        *(trail.writer.append(TENANT, draft(number)) for number in range(count))
    )
    assert [event.version for event in events] == [*range(1, count + 1)]
    assert len(await trail.store.read_records(NAMESPACE)) == 2
    assert (await trail.verified()).findings == []


async def test_tenants_have_chains_of_their_own(trail: Trail) -> None:
    names = ["", "a", "a/b", "a%2Fb", "a-b", "a0", "%", "ü", "a" * 128, "\U0010ffff" * 128]
    await asyncio.gather(
        *(trail.writer.append(name, draft(number)) for name in names for number in range(3))
    )
    assert sorted(await trail.chains.tenants()) == sorted(names)
    for name in names:
        result = await trail.verified(name)
        assert (result.events, result.findings) == (3, [])
        assert {event.tenant_id for event in await trail.events(name)} == {name}


async def test_a_record_of_another_kind_does_not_lead_in_circles(trail: Trail) -> None:
    await trail.append()
    odd = ["0", "a", "zzz", TENANT]
    await trail.store.write_records([RecordWrite(NAMESPACE, key, b"x") for key in odd])
    assert await trail.chains.tenants() == [TENANT]


async def test_time_is_the_stores_and_never_goes_back(trail: Trail, clock: FakeClock) -> None:
    begun = clock.now()
    clock.advance(HOUR)
    await trail.append()
    clock.advance(-HOUR)
    await trail.append()
    clock.advance(2 * HOUR)
    await trail.append()
    times = [event.time - begun for event in await trail.events()]
    assert times == [HOUR, HOUR, 2 * HOUR]


async def test_writers_who_saw_the_same_head_do_not_both_get_its_place(trail: Trail) -> None:
    others = [ChainWriter(slow(trail.store)) for _ in range(5)]
    await asyncio.gather(
        *(one.append(TENANT, draft(number)) for one in others for number in range(20))
    )
    result = await trail.verified()
    assert (result.events, result.findings) == (100, [])


async def test_a_lost_answer_doubles_nothing(trail: Trail) -> None:
    writer = ChainWriter(losing_answers(trail.store))
    for number in range(5):
        await writer.append(TENANT, draft(number))
    lost = 0

    async def around(verb: str, call: Call) -> Any:
        nonlocal lost
        answer = await call()
        if verb == "write_records" and lost < 2:
            lost += 1
            raise AnswerLost("the line broke")
        return answer

    await ChainWriter(intercepted(trail.store, around)).append(TENANT, draft(5))
    assert lost == 2
    result = await trail.verified()
    assert (result.events, result.findings) == (6, [])


async def test_a_store_that_fails_is_told_to_each_who_waits(trail: Trail) -> None:
    async def around(verb: str, call: Call) -> Any:
        if verb == "write_records":
            raise StoreUnavailable("gone")
        return await call()

    writer = ChainWriter(intercepted(trail.store, around))
    answers = await asyncio.gather(
        *(writer.append(TENANT, draft()) for _ in range(3)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    assert await trail.events() == []


async def test_a_damaged_chain_is_not_the_others_trouble(trail: Trail) -> None:
    await trail.append()
    (record,) = await trail.store.read_records(NAMESPACE)
    await trail.store.write_records([RecordWrite(NAMESPACE, record.key, b"not JSON")])
    bad, good = await asyncio.gather(
        trail.writer.append(TENANT, draft()),
        trail.writer.append("other", draft()),
        return_exceptions=True,
    )
    assert isinstance(bad, StoreCorrupt)
    assert "gantline audit verify" in str(bad)
    assert not isinstance(good, BaseException)


async def test_there_is_a_limit_to_what_may_wait(trail: Trail) -> None:
    writer = ChainWriter(trail.store, most_waiting=2)
    answers = await asyncio.gather(
        *(writer.append(TENANT, draft()) for _ in range(3)), return_exceptions=True
    )
    assert isinstance(answers[2], StoreUnavailable)
    assert (await trail.verified()).events == 2


async def test_what_waits_of_one_tenant_stands_in_nobody_elses_way(trail: Trail) -> None:
    writer = ChainWriter(trail.store, most_waiting=500)
    ended: list[str] = []

    async def append(tenant_id: str) -> None:
        with suppress(StoreUnavailable):
            await writer.append(tenant_id, draft())
            ended.append(tenant_id)

    await asyncio.gather(*(append(TENANT) for _ in range(600)), append("other"))
    assert ended.count(TENANT) == 500
    assert ended.index("other") <= 200, "it waits for no more than what is being written"


async def test_a_chain_is_read_on_below_a_version(trail: Trail) -> None:
    await asyncio.gather(*(trail.writer.append(TENANT, draft(n)) for n in range(10)))
    await trail.append(3)
    chains = AuditChains(trail.store)
    for below in range(1, 15):
        found = [event async for event in chains.events(TENANT, below=below)]
        assert [event.version for event in found] == [*reversed(range(1, min(below, 14)))]  # type: ignore[union-attr]  # all can be read
