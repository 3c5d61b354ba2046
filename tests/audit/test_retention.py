"""Retention removes what is old, and the chain that is left still proves itself."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gantline.audit.chain import NAMESPACE, chain_event, make_write
from gantline.audit.retention import AuditPruner, AuditRetention
from gantline.audit.verification import ChainReport, Checkpoint, Removed
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
    fifth = (await trail.events())[4]
    pruned = await prune(trail, 5.5)
    assert (pruned.count, pruned.through, pruned.findings) == (5, 5, [])
    events = await trail.events()
    assert [event.version for event in events] == [*range(6, 12)]
    last = events[-1]
    assert (last.aggregate, last.type, last.actor) == ("audit", "pruneAudit", "user:admin")
    before = trail.clock.now() - 5.5 * DAY
    assert msgspec.convert(last.payload["details"], Removed) == Removed(
        last=fifth.sealed, count=5, before=before, actor="user:admin"
    )
    assert fifth.sealed.hash == fifth.hash
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


# -- an event that says that retention removed what somebody else did ------------------------------


async def forge(
    trail: Trail, removed: Removed, *, later: timedelta = timedelta(0), keep: int = 1
) -> ChainReport:
    """Append it as whoever reaches the store can, and remove all but the newest few; verify."""
    head = (await trail.events())[-1]
    event = msgspec.structs.replace(
        draft(details=msgspec.to_builtins(removed)), type="pruneAudit", actor="maintenance"
    )
    made = chain_event(
        event,
        tenant_id=TENANT,
        version=head.version + 1,
        time=trail.clock.now() + later,
        previous_hash=head.hash,
    )
    await trail.store.write_records([make_write([made])])
    for record in (await trail.store.read_records(NAMESPACE))[1 + keep :]:
        await trail.store.write_records([RecordWrite(NAMESPACE, record.key, None)])
    return await trail.verified()


async def test_a_forged_event_that_says_the_truth_is_like_any_other(trail: Trail) -> None:
    await aged(trail)
    fifth = (await trail.events())[4]
    removed = Removed(last=fifth.sealed, count=5, before=fifth.time + DAY / 2)
    assert (await forge(trail, removed, keep=5)).findings == []


@pytest.mark.parametrize("age", [timedelta(0), timedelta(minutes=59)])
async def test_removing_what_is_not_an_hour_old_is_found(trail: Trail, age: timedelta) -> None:
    await aged(trail)
    ninth = (await trail.events())[8]
    removed = Removed(last=ninth.sealed, count=9, before=trail.clock.now() - age)
    (finding,) = (await forge(trail, removed)).findings
    assert (finding.what, finding.version) == ("edited", 11)
    assert finding.detail == "it removed what was not an hour old"


async def test_removing_what_was_younger_than_said_is_found(trail: Trail) -> None:
    await aged(trail)
    events = await trail.events()
    removed = Removed(last=events[8].sealed, count=9, before=events[5].time)
    (finding,) = (await forge(trail, removed)).findings
    assert (finding.version, finding.detail) == (11, "it removed what was younger than it says")
    known = Checkpoint(tenant_id=TENANT, version=8, hash=events[7].hash, time=events[7].time)
    findings = (await trail.verified(checkpoint=known)).findings
    assert [(one.what, one.version) for one in findings] == [("missing", 8), ("edited", 11)]


async def test_another_time_of_what_was_removed_is_found(trail: Trail) -> None:
    """The hash of the last one is in the event after it."""
    await aged(trail)
    ninth = (await trail.events())[8]
    older = msgspec.structs.replace(ninth.sealed, time=ninth.time - 5 * DAY)
    removed = Removed(last=older, count=9, before=ninth.time - 4 * DAY)
    (finding,) = (await forge(trail, removed)).findings
    assert (finding.what, finding.version) == ("edited", 10)
    assert "written after another one" in finding.detail


async def test_another_one_than_is_still_there_is_found(trail: Trail) -> None:
    """Retention removes the oldest first, so a part of what it names may be there still."""
    await aged(trail)
    ninth = (await trail.events())[8]
    other = msgspec.structs.replace(ninth.sealed, time=ninth.time - 5 * DAY)
    removed = Removed(last=other, count=9, before=ninth.time - 4 * DAY)
    (finding,) = (await forge(trail, removed, keep=3)).findings
    assert (finding.what, finding.version) == ("edited", 9)


async def test_an_event_that_says_when_it_is_to_come_is_found(trail: Trail) -> None:
    """Else its own time would make all that is there old."""
    await aged(trail)
    tenth = (await trail.events())[9]
    removed = Removed(last=tenth.sealed, count=10, before=trail.clock.now() + timedelta(seconds=1))
    (finding,) = (await forge(trail, removed, later=400 * DAY, keep=0)).findings
    assert (finding.version, "still to come" in finding.detail) == (11, True)


async def test_removing_what_comes_after_the_event_itself_is_found(trail: Trail) -> None:
    await aged(trail)
    ninth = (await trail.events())[8]
    after = msgspec.structs.replace(ninth.sealed, version=50, time=ninth.time - 5 * DAY)
    removed = Removed(last=after, count=50, before=ninth.time - 4 * DAY)
    (finding,) = (await forge(trail, removed)).findings
    assert (finding.version, "not there to be removed" in finding.detail) == (11, True)


async def test_a_time_at_the_end_of_the_calendar_is_a_finding_too(trail: Trail) -> None:
    await aged(trail)
    tenth = (await trail.events())[9]
    first = datetime.min.replace(tzinfo=UTC)
    removed = Removed(last=msgspec.structs.replace(tenth.sealed, time=first), count=9, before=first)
    back = first - trail.clock.now()
    findings = (await forge(trail, removed, later=back, keep=0)).findings
    assert {one.version for one in findings} == {11}


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
