"""Denials leave a trace each, but a flood of them is no flood of writes."""

import asyncio
import logging
from typing import Any
from uuid import uuid4

import pytest

from gantline.audit.chain import AuditEvent
from gantline.audit.denials import Denials
from gantline.audit.sinks import StoreAudit
from gantline.contract.audit import AuditEntry
from gantline.contract.errors import StoreUnavailable
from gantline.testing.clock import FakeClock
from gantline.testing.faults import Call, intercepted
from tests.audit.conftest import Trail, slow

NEVER = 3600.0


def denial(**fields: Any) -> AuditEntry:
    known: dict[str, Any] = {
        "at": FakeClock().now(),
        "actor": "user:eve",
        "actor_tenant": "evil",
        "action": "jobs:cancel",
        "operation": "cancelJob",
        "outcome": "hidden",
        "tenant_id": "acme",
        "job_id": uuid4(),
        "job_type": "secret-type",
        "subject_id": "secret-subject",
        "client": "192.0.2.1",
    }
    return AuditEntry(**known | fields)


class Written:
    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []
        self.error: Exception | None = None
        self.twice = asyncio.Event()

    async def __call__(self, entry: AuditEntry) -> None:
        if self.error:
            raise self.error
        self.entries.append(entry)
        if len(self.entries) == 2:
            self.twice.set()


@pytest.fixture
def written() -> Written:
    return Written()


async def test_the_first_is_written_at_once_and_the_rest_as_a_number(written: Written) -> None:
    denials = Denials(written, window_seconds=NEVER)
    first, *others = [denial() for _ in range(1000)]
    await denials.add(first)
    assert written.entries == [first]
    for one in others:
        await denials.add(one)
    assert written.entries == [first]
    await denials.flush()
    (_, rest) = written.entries
    assert (rest.actor, rest.outcome, rest.operation) == ("user:eve", "hidden", "cancelJob")
    assert rest.details["count"] == 999
    assert rest.details["since"] == others[0].at
    assert rest.details["asked"] == [str(one.job_id) for one in others[:10]]


async def test_a_window_ends_by_itself(written: Written) -> None:
    denials = Denials(written, window_seconds=0.0)
    await denials.add(denial())
    await denials.add(denial())
    await written.twice.wait()
    await denials.add(denial())
    assert [entry.details.get("count") for entry in written.entries] == [None, 1, None]
    await denials.flush()


@pytest.mark.parametrize(
    "other",
    [
        {"actor": "user:mallory"},
        {"actor_tenant": "other"},
        {"operation": "redriveJob"},
        {"outcome": "forbidden"},
        {"client": "192.0.2.2"},
    ],
    ids=str,
)
async def test_what_is_not_alike_is_written_on_its_own(
    written: Written, other: dict[str, Any]
) -> None:
    denials = Denials(written, window_seconds=NEVER)
    entries = [denial(), denial(**other)]
    for entry in entries:
        await denials.add(entry)
    assert written.entries == entries
    await denials.flush()
    assert written.entries == entries


async def test_too_many_kinds_of_one_actor_are_one(written: Written) -> None:
    """Somebody who comes from a new address each time must not have a write for each."""
    denials = Denials(written, window_seconds=NEVER, most_kinds=10)
    entries = [denial(client=f"2001:db8::{number:x}") for number in range(1000)]
    for entry in entries:
        await denials.add(entry)
    assert written.entries == entries[:11]  # the first beyond the budget too
    await denials.flush()
    *_, rest = written.entries
    assert len(written.entries) == 12
    assert (rest.action, rest.details["count"]) == ("many", 989)
    assert (rest.actor, rest.actor_tenant, rest.outcome) == ("user:eve", "evil", "hidden")
    assert (rest.operation, rest.client, rest.tenant_id) == ("", "", "")
    assert rest.details["asked"] == [str(entry.job_id) for entry in entries[11:21]]


FLOODS = {
    "of nobody": {"actor": "", "actor_tenant": "", "outcome": "unauthenticated", "tenant_id": ""},
    "of another tenant": {"actor": "user:mallory", "actor_tenant": "other"},
    "of a colleague": {"actor": "user:mallory"},
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_hides_no_denial_of_somebody_else(written: Written, flood: str) -> None:
    """Whoever invents kinds uses up a budget of his own, and of his own tenant at most."""
    denials = Denials(written, window_seconds=NEVER, most_kinds=10)
    for number in range(100):
        await denials.add(denial(client=f"2001:db8::{number:x}", **FLOODS[flood]))
    first, second = denial(), denial()
    for one in (first, second):
        await denials.add(one)
    assert written.entries[-1] == first
    await denials.flush()
    (summary,) = [one for one in written.entries if one.actor == "user:eve" and one.details]
    assert (summary.actor_tenant, summary.details["count"]) == ("evil", 1)
    assert summary.details["asked"] == [str(second.job_id)]


async def test_another_tenant_s_flood_leaves_the_kinds_of_a_tenant_apart(written: Written) -> None:
    denials = Denials(written, window_seconds=NEVER, most_kinds=3)
    for number in range(100):
        await denials.add(denial(actor_tenant="other", client=f"2001:db8::{number:x}"))
    kinds = [denial(operation=name) for name in ("getJob", "cancelJob", "deleteJob")]
    for one in kinds * 2:
        await denials.add(one)
    await denials.flush()
    counted = {one.operation for one in written.entries if one.details and one.operation}
    assert counted == {"getJob", "cancelJob", "deleteJob"}


async def test_a_budget_is_free_again_when_its_windows_have_ended(written: Written) -> None:
    denials = Denials(written, window_seconds=NEVER, most_kinds=2)
    for _ in range(3):
        entries = [denial(client=f"192.0.2.{number}") for number in range(2)]
        before = len(written.entries)
        for entry in entries * 2:
            await denials.add(entry)
        await denials.flush()
        summaries = written.entries[before + 2 :]
        assert [one.client for one in summaries] == ["192.0.2.0", "192.0.2.1"]


async def test_one_that_cannot_be_written_is_told_and_tried_anew(written: Written) -> None:
    denials = Denials(written, window_seconds=NEVER)
    written.error = StoreUnavailable("gone")
    with pytest.raises(StoreUnavailable):
        await denials.add(denial())
    written.error = None
    await denials.add(denial())
    assert len(written.entries) == 1


async def test_a_number_that_cannot_be_written_is_logged(
    written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    denials = Denials(written, window_seconds=NEVER)
    for _ in range(8):
        await denials.add(denial())
    written.error = StoreUnavailable("gone")
    with caplog.at_level(logging.ERROR, "gantline.audit"):
        await denials.flush()
    assert "7 more denials of cancelJob to 'user:eve' could not be audited" in caplog.text


async def test_those_that_came_while_the_first_could_not_be_written_are_counted() -> None:
    """They have been answered by then."""
    entries: list[AuditEntry] = []
    is_writing, goes_on = asyncio.Event(), asyncio.Event()

    async def write(entry: AuditEntry) -> None:
        if not is_writing.is_set():
            is_writing.set()
            await goes_on.wait()
            raise StoreUnavailable("gone")
        entries.append(entry)

    denials = Denials(write, window_seconds=NEVER)
    first = asyncio.create_task(denials.add(denial()))
    await is_writing.wait()
    for _ in range(3):
        await denials.add(denial())
    goes_on.set()
    with pytest.raises(StoreUnavailable):
        await first
    await denials.flush()
    assert [one.details["count"] for one in entries] == [3]


# -- in the chains ------------------------------------------------------------------------------


async def _audited(trail: Trail, *entries: AuditEntry) -> None:
    audit = StoreAudit(trail.store, window_seconds=NEVER)
    for entry in entries:
        await audit.record(entry)
    await audit.close()


async def test_who_tried_another_tenant_leaves_a_trace_in_his_own(trail: Trail) -> None:
    """And nothing of what he was not to know, be it there or not."""
    missing = {"tenant_id": "", "job_type": "", "subject_id": "", "operation": "redriveJob"}
    await _audited(trail, denial(), denial(), denial(**missing))
    assert await trail.chains.tenants() == ["evil"]
    events = await trail.events("evil")
    assert [event.type for event in events] == ["cancelJob", "redriveJob", "cancelJob"]
    assert {event.aggregate for event in events} == {"access"}
    assert [set(event.payload) for event in events[:2]] == [
        {"id", "action", "actorTenant", "client", "jobId", "operation", "outcome"}
    ] * 2
    text = str(events)
    assert "acme" not in text
    assert "secret" not in text


async def test_who_names_another_tenant_is_remembered_for_it(trail: Trail) -> None:
    await _audited(trail, denial(job_id=None, tenant_id="acme", job_type="", subject_id=""))
    (event,) = await trail.events("evil")
    assert event.payload["tenantId"] == "acme"


async def test_who_could_not_be_told_is_in_the_installations_chain(trail: Trail) -> None:
    nobody = AuditEntry(
        at=trail.clock.now(), actor="", action="listJobs", outcome="unauthenticated", what="X"
    )
    await _audited(trail, nobody)
    (event,) = await trail.events("")
    assert (event.aggregate, event.actor, event.type) == ("access", "", "listJobs")


async def test_what_is_done_by_the_system_is_in_the_chain_of_whom_it_is_done_to(
    trail: Trail,
) -> None:
    entry = denial(outcome="allowed", actor="user:system", actor_tenant="default")
    await _audited(trail, entry)
    (event,) = await trail.events("acme")
    assert event.aggregate == f"job:{entry.job_id}"
    assert event.payload["actorTenant"] == "default"
    assert event.payload["jobType"] == "secret-type"


async def test_what_was_allowed_is_never_summed_up(trail: Trail) -> None:
    entry = denial(outcome="allowed")
    await _audited(trail, *[entry] * 20)
    assert len(await trail.events("acme")) == 20


async def test_the_same_done_by_two_processes_at_once_is_two(trail: Trail) -> None:
    """A store takes a write that equals what is there for the repeat of a lost answer."""
    entry = denial(outcome="allowed")
    sinks = [StoreAudit(slow(trail.store)) for _ in range(5)]
    await asyncio.gather(*(sink.record(entry) for sink in sinks))
    assert len(await trail.events("acme")) == 5


async def test_what_cannot_be_kept_is_not_done(trail: Trail) -> None:
    async def around(verb: str, call: Call) -> Any:
        if verb == "write_records":
            raise StoreUnavailable("gone")
        return await call()

    audit = StoreAudit(intercepted(trail.store, around))
    with pytest.raises(StoreUnavailable):
        await audit.record(denial(outcome="allowed"))


def _texts(event: AuditEvent) -> str:
    return f"{event.actor} {event.aggregate} {event.type} {event.payload}"


async def test_what_callers_choose_is_cut_and_made_storable(trail: Trail) -> None:
    long, odd = "x" * 5000, "a\x00b\ud800c"
    await _audited(
        trail,
        AuditEntry(
            at=trail.clock.now(),
            actor=long,
            actor_tenant="acme",
            action="queues:manage",
            operation="pauseQueue",
            outcome="allowed",
            what=f"queue:{long}",
            details={"all": long},
        ),
    )
    (event,) = await trail.events("acme")
    assert len(_texts(event)) < 3000
    assert event.payload["details"] == {"omitted": "5010 bytes"}
    audit = StoreAudit(trail.store)
    audit._log = _Silent()  # type: ignore[assignment]  # a log line cannot say this at all
    await audit.record(denial(actor=odd, actor_tenant="evil", outcome="allowed", tenant_id="odd"))
    (event,) = await trail.events("odd")
    assert event.actor == "a\ufffdb\ufffdc"


class _Silent:
    async def record(self, entry: AuditEntry) -> None:
        """Keep nothing."""
