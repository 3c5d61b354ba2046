"""Retention removes what is old, and the chain that is left still proves itself."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gantline.audit.chain import NAMESPACE
from gantline.audit.retention import AuditPruner, AuditRetention
from gantline.audit.verification import Checkpoint, Removed
from gantline.contract.errors import InvalidInput
from gantline.contract.records import RecordWrite
from gantline.manager.maintenance import Maintenance
from gantline.manager.switches import Switches
from gantline.testing.faults import Crash, CrashPoint
from tests.audit.conftest import TENANT, Trail, draft

DAY = timedelta(days=1)


async def aged(trail: Trail, *, days: int = 10) -> None:
    """An event a day, the last of them a day ago."""
    for _ in range(days):
        await trail.append()
        trail.clock.advance(DAY)


async def prune(trail: Trail, days: float) -> Any:
    before = trail.clock.now() - days * DAY
    return await AuditPruner(trail.store).prune(TENANT, before=before, actor="user:admin")


async def test_what_is_old_goes_and_a_checkpoint_comes(trail: Trail) -> None:
    await aged(trail)
    hashes = [event.hash for event in await trail.events()]
    pruned = await prune(trail, 5.5)
    assert (pruned.count, pruned.through, pruned.findings) == (5, 5, [])
    events = await trail.events()
    assert [event.version for event in events] == [*range(6, 12)]
    last = events[-1]
    assert (last.aggregate, last.type, last.actor) == ("audit", "pruneAudit", "user:admin")
    before = trail.clock.now() - 5.5 * DAY
    assert msgspec.convert(last.payload["details"], Removed) == Removed(
        through=5, hash=hashes[4], count=5, before=before, actor="user:admin"
    )
    result = await trail.verified()
    assert result.removed is not None
    assert (result.removed.before, result.removed.actor) == (before, "user:admin")
    assert (result.first_version, result.last_version, result.findings) == (6, 11, [])


async def test_it_can_be_done_again_and_again(trail: Trail) -> None:
    for _ in range(4):
        await aged(trail, days=5)
        await prune(trail, 2.5)
        assert (await trail.verified()).findings == []
    await trail.append()
    trail.clock.advance(10 * DAY)
    await prune(trail, 1)
    (only,) = await trail.events()  # the one that says what has gone
    assert only.type == "pruneAudit"
    assert (await trail.verified()).findings == []
    assert (await prune(trail, 0.5)).count == 0


async def test_removing_more_than_the_checkpoint_says_is_found(trail: Trail) -> None:
    await aged(trail)
    await prune(trail, 5.5)
    records = await trail.store.read_records(NAMESPACE)
    await trail.store.write_records([RecordWrite(NAMESPACE, records[-1].key, None)])
    (finding,) = (await trail.verified()).findings
    assert (finding.what, finding.version) == ("missing", 6)


async def test_a_checkpoint_from_before_still_holds(trail: Trail) -> None:
    await aged(trail)
    events = await trail.events()
    await prune(trail, 5.5)
    for event in events:
        known = Checkpoint(
            tenant_id=TENANT, version=event.version, hash=event.hash, time=event.time
        )
        assert (await trail.verified(checkpoint=known)).findings == []


async def test_what_a_forged_checkpoint_removed_too_early_is_found(trail: Trail) -> None:
    """Who can append can say that all was old; a checkpoint kept elsewhere knows better."""
    await aged(trail)
    kept = [
        Checkpoint(tenant_id=TENANT, version=event.version, hash=event.hash, time=event.time)
        for event in await trail.events()
    ]
    hash_ = kept[8].hash
    details = {"through": 9, "hash": hash_, "count": 9, "before": kept[5].time}
    forged = draft(details=msgspec.to_builtins(details))
    await trail.writer.append(TENANT, msgspec.structs.replace(forged, type="pruneAudit"))
    for record in (await trail.store.read_records(NAMESPACE))[2:]:
        await trail.store.write_records([RecordWrite(NAMESPACE, record.key, None)])
    assert (await trail.verified()).findings == []
    assert (await trail.verified(checkpoint=kept[2])).findings == []
    (finding,) = (await trail.verified(checkpoint=kept[7])).findings
    assert (finding.what, finding.version) == ("missing", 8)


async def test_blocks_go_whole_or_not_at_all(trail: Trail) -> None:
    for _ in range(3):
        await asyncio.gather(*(trail.writer.append(TENANT, draft(n)) for n in range(7)))
        trail.clock.advance(DAY)
    assert (await prune(trail, 1.5)).through == 14
    assert (await trail.verified()).findings == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_dying_on_the_way_leaves_a_chain_that_verifies(
    trail: Trail, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantline.audit.retention._DELETED_AT_ONCE", 1)
    await aged(trail, days=5)
    at = 0
    while True:
        at += 1
        point = CrashPoint(at=at, after=after)
        pruner = AuditPruner(point.wrap(trail.store))
        cut = trail.clock.now() - 2.5 * DAY
        try:
            await pruner.prune(TENANT, before=cut, actor="user:admin")
        except Crash:
            assert (await trail.verified()).findings == []
        if not point.reached:
            break
    assert at > 5
    assert (await trail.events())[0].version == 4


async def test_a_chain_that_does_not_verify_is_kept(trail: Trail) -> None:
    await aged(trail)
    records = await trail.store.read_records(NAMESPACE)
    await trail.store.write_records([RecordWrite(NAMESPACE, records[-3].key, None)])
    pruned = await prune(trail, 5.5)
    assert (pruned.count, [finding.version for finding in pruned.findings]) == (0, [3])
    assert len(await trail.events()) == 9


async def test_what_is_young_stays(trail: Trail) -> None:
    with pytest.raises(InvalidInput, match="younger than an hour"):
        await prune(trail, 0)
    with pytest.raises(InvalidInput, match="an hour at least"):
        AuditRetention(trail.store, timedelta(minutes=1))


async def test_the_maintenance_prunes_all_chains_once_a_day(trail: Trail) -> None:
    for _ in range(20):
        await trail.append(tenant_id="a")
        await trail.append(tenant_id="b")
        trail.clock.advance(DAY / 2)
    await trail.append(tenant_id="young")
    retention = AuditRetention(trail.store, 5 * DAY)
    assert await retention.run_once() == 20
    for tenant_id in ("a", "b"):
        assert (await trail.verified(tenant_id)).findings == []
        assert (await trail.events(tenant_id))[-1].actor == "maintenance"
    assert len(await trail.events("young")) == 1
    trail.clock.advance(DAY / 2)
    assert await retention.run_once() == 0
    trail.clock.advance(DAY)
    assert await retention.run_once() > 0


async def test_the_maintenance_tells_what_it_does_not_touch(
    trail: Trail, caplog: pytest.LogCaptureFixture
) -> None:
    await aged(trail)
    records = await trail.store.read_records(NAMESPACE)
    await trail.store.write_records([RecordWrite(NAMESPACE, records[-3].key, None)])
    with caplog.at_level(logging.ERROR, "gantline.audit"):
        assert await AuditRetention(trail.store, 2 * DAY).run_once() == 0
    assert "the audit chain of 'acme' does not verify (1 findings)" in caplog.text


async def test_it_is_a_chore_of_who_leads(trail: Trail) -> None:
    await aged(trail)
    retention = AuditRetention(trail.store, 2 * DAY)
    leading = Maintenance(trail.store, Switches(trail.store), "one", chores=[retention])
    report = await leading.run_once()
    assert report is not None
    assert report.chores == 8
    again = await leading.run_once()
    assert again is not None
    assert again.chores == 0
