"""Which limits hold: what code declares, what an operator sets, and what a process knows of it."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from gantline import Gantline, Limit
from gantline.contract.clock import SystemClock
from gantline.contract.errors import InvalidInput, StoreMisconfigured
from gantline.contract.flow import Gate, GateState, TypeFlow
from gantline.contract.query import LaneRequest
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, Conflict
from gantline.flow.limits import Limits
from gantline.flow.rules import LIMITS, Override, in_words
from gantline.runtime import monotonic
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from tests.flow.stores import LimitedStore

ONE = TypeFlow(job_type="mail", running=1)
TWO = TypeFlow(job_type="mail", running=2)


def gated(job_type: str, per_second: float, burst: int = 1) -> TypeFlow:
    return TypeFlow(job_type=job_type, gate=Gate("api", per_second, burst))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> LimitedStore:
    return LimitedStore(clock=clock)


async def holding(store: MemoryStore, job_type: str = "mail") -> TypeFlow | None:
    limits = Limits(store)
    await limits.refresh()
    return limits.holding(job_type)


# -- what holds -----------------------------------------------------------------------------------


async def test_the_declaration_that_was_first_seen_last_holds(
    store: LimitedStore, clock: FakeClock
) -> None:
    limits = Limits(store)
    await limits.declare([ONE])
    clock.advance(timedelta(seconds=1))
    await limits.declare([TWO])
    assert await holding(store) == TWO
    clock.advance(timedelta(seconds=1))
    await limits.declare([ONE])  # a worker of the older version starts again
    assert await holding(store) == TWO


async def test_of_two_seen_at_one_instant_the_later_holds_also_after_the_clock_went_back(
    store: LimitedStore, clock: FakeClock
) -> None:
    limits = Limits(store)
    flows = [TypeFlow(job_type="mail", running=number) for number in range(1, 6)]
    for flow in flows:
        await limits.declare([flow])
        assert await holding(store) == flow


async def test_an_empty_declaration_takes_limits_away(store: LimitedStore) -> None:
    limits = Limits(store)
    await limits.declare([ONE])
    await limits.declare([TypeFlow(job_type="mail")])
    assert await holding(store) is None


async def test_a_worker_that_declares_nothing_holds_to_what_is_stored(store: LimitedStore) -> None:
    await Limits(store).declare([ONE])
    other = Limits(store)
    await other.declare([])
    await other.refresh()
    request = LaneRequest("default", ("call", "mail"), 5)
    assert other.applied_to([request])[0].flow == (ONE,)


async def test_an_override_holds_over_all_until_it_is_cleared(store: LimitedStore) -> None:
    limits = Limits(store)
    await limits.declare([TypeFlow(job_type="mail", running=1, running_in_all=9)])
    await limits.set("mail", Override(running=7), by="ann")
    assert await holding(store) == TypeFlow(job_type="mail", running=7, running_in_all=9)
    await limits.set("mail", Override(running_in_all=None), by="bob")
    assert await holding(store) == TypeFlow(job_type="mail", running=7)
    await limits.declare([TypeFlow(job_type="mail", running=3, running_in_all=4)])
    assert await holding(store) == TypeFlow(job_type="mail", running=7)
    assert limits.rules["mail"].by == "bob"
    await limits.clear("mail", by="ann")
    assert await holding(store) == TypeFlow(job_type="mail", running=3, running_in_all=4)


async def test_a_type_that_declares_nothing_can_be_limited(store: LimitedStore) -> None:
    limits = Limits(store)
    await limits.set("mail", Override(gate=Gate("mail", 0.5, 1)), by="ann")
    assert await holding(store) == TypeFlow(job_type="mail", gate=Gate("mail", 0.5, 1))
    await limits.clear("mail", by="ann")
    assert await holding(store) is None


async def test_what_was_declared_can_be_forgotten(store: LimitedStore) -> None:
    limits = Limits(store)
    await limits.declare([ONE])
    await limits.clear("mail", by="ann", declared=True)
    assert await holding(store) is None
    assert await store.read_records(LIMITS) == []


async def test_of_a_gate_with_two_rates_the_slower_holds(store: LimitedStore) -> None:
    limits = Limits(store)
    await limits.declare([gated("mail", 5, burst=9), gated("call", 2, burst=3)])
    for name in ("mail", "call"):
        flow = await holding(store, name)
        assert flow is not None
        assert flow.gate == Gate("api", 2, 3)


async def test_the_rate_that_an_operator_sets_goes_before_those_declared(
    store: LimitedStore,
) -> None:
    limits = Limits(store)
    await limits.declare([gated("mail", 5), gated("call", 2)])
    await limits.set("mail", Override(gate=Gate("api", 50, 4)), by="ann")
    assert await holding(store, "call") == gated("call", 50, burst=4)


async def test_declarations_are_not_kept_for_ever(store: LimitedStore) -> None:
    limits = Limits(store)
    for number in range(1, 40):
        await limits.declare([TypeFlow(job_type="mail", running=number)])
    assert len(limits.rules["mail"].declared) == 20
    assert await holding(store) == TypeFlow(job_type="mail", running=39)


async def test_of_two_that_declare_at_once_both_are_stored(store: LimitedStore) -> None:
    class Raced(LimitedStore):
        """Another declares its own between the reading and the writing."""

        async def write_records(self, writes: Sequence[RecordWrite]) -> list[Applied | Conflict]:
            if not raced:
                raced.append(True)
                await Limits(self).declare([TWO])
            return await super().write_records(writes)

    raced: list[bool] = []
    raced_store = Raced(clock=SystemClock())
    limits = Limits(raced_store)
    await limits.declare([ONE])
    assert {one.flow.running for one in limits.rules["mail"].declared} == {1, 2}


# -- what is said ---------------------------------------------------------------------------------


async def test_a_worker_says_which_limits_hold_where_it_declares_others(
    store: LimitedStore, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(store)
    with caplog.at_level(logging.WARNING):
        await limits.declare([ONE])
        await limits.declare([TWO])
        assert caplog.messages == []
        await limits.declare([ONE])
        await limits.set("mail", Override(running=9), by="ann")
        await limits.declare([TWO])
    assert caplog.messages == [
        "the limits of mail are 2 running per group, for a newer version of the code declares "
        "them; this worker declares 1 running per group",
        "the limits of mail are 9 running per group, for ann has set them; this worker declares "
        "2 running per group",
    ]


def test_limits_are_shown_in_words() -> None:
    flow = TypeFlow(job_type="mail", running=2, running_in_all=9, gate=Gate("api", 100, 20))
    assert in_words(flow) == "2 running per group; 9 running in all; 100/s by gate api, burst 20"
    assert in_words(TypeFlow(job_type="mail")) == "no limits"


async def test_where_no_type_has_the_named_gate_its_own_is_closed_and_a_warning_says_so(
    store: LimitedStore, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(store)
    await limits.declare([gated("mail", 5)])
    assert limits.gate_to_close("mail", "") == "api"
    assert limits.gate_to_close("call", "") == ""
    assert limits.gate_to_close("call", "api") == "api"
    assert caplog.messages == []
    assert limits.gate_to_close("mail", "apu") == "api"
    assert limits.gate_to_close("call", "apu") == ""
    assert caplog.messages == [
        "a run of mail closes the gate 'apu', which no type has; closed is 'api'",
        "a run of call closes the gate 'apu', which no type has; closed is none",
    ]


async def test_a_store_that_cannot_hold_to_limits_refuses_those_declared() -> None:
    class Without(LimitedStore):
        capabilities = LimitedStore.without_limits

    jobs = Gantline(Without(clock=SystemClock()))

    @jobs.job("mail", limits=[Limit(running=1)])
    async def mail() -> None: ...

    with pytest.raises(StoreMisconfigured, match=r"limits.* mail.*Use another store, or leave"):
        async with jobs.working() as worker:
            await worker.run()


# -- what a claim is given ------------------------------------------------------------------------


async def test_a_claim_is_given_the_limits_of_its_own_types(store: LimitedStore) -> None:
    limits = Limits(store)
    await limits.declare([ONE, gated("call", 5)])
    requests = [
        LaneRequest("a", ("mail", "note"), 5),
        LaneRequest("b", ("note",), 5),
        LaneRequest("c", ("call", "mail"), 5),
    ]
    flows = [request.flow for request in limits.applied_to(requests)]
    assert flows == [(ONE,), (), (gated("call", 5), ONE)]


async def test_where_nothing_is_limited_a_request_stays_the_same_object(
    store: LimitedStore,
) -> None:
    limits = Limits(store)
    requests = [LaneRequest("a", ("mail",), 5)]
    assert limits.applied_to(requests) is requests


async def test_limits_are_read_again_after_five_seconds_or_when_they_are_doubted(
    store: LimitedStore, clock: FakeClock
) -> None:
    known = Limits(store)
    await known.refresh()
    await Limits(store).declare([ONE])
    await known.refresh()
    assert known.holding("mail") is None
    known.invalidate()
    await known.refresh()
    assert known.holding("mail") == ONE


async def test_a_change_is_hinted(store: LimitedStore) -> None:
    hints: list[bool] = []
    limits = Limits(store, changed=lambda: hints.append(True))
    await limits.declare([ONE])
    assert len(hints) == 1
    await limits.declare([ONE])
    assert len(hints) == 1
    await limits.set("mail", Override(running=2), by="ann")
    await limits.clear("mail", by="ann")
    assert len(hints) == 3


# -- how long to wait -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("burst", "ahead", "closed", "wait"),
    [
        (1, None, None, 2.0),
        (1, 0.5, None, 0.5),
        (1, 0.0, None, 0.001),  # it has got room since the claim
        (1, -0.005, None, 0.001),  # perhaps so, if the clocks differ
        (1, -0.5, None, 2.0),
        (1, 5.0, None, 2.0),
        (1, 0.0001, None, 0.001),
        (20, 0.5, None, 0.4),  # room for ten of them, at 100 a second
        (20, 0.5, 0.7, 0.7),
        (20, 0.05, None, 2.0),
        (1, None, 0.3, 0.3),
    ],
)
async def test_a_worker_looks_again_when_a_gate_has_room(
    burst: int,
    ahead: float | None,
    closed: float | None,
    wait: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    monkeypatch.setattr("gantline.flow.limits.now", clock.now)
    store = LimitedStore(clock=clock)
    limits = Limits(store)
    await limits.declare([gated("mail", 100, burst=burst)])
    now = clock.now()

    def at(seconds: float | None) -> Any:
        return None if seconds is None else now + timedelta(seconds=seconds)

    store.gate = GateState("api", at(closed), at(ahead))
    shortened = await limits.shortened(2.0, ["mail"], asked_at=monotonic())
    assert wait <= shortened <= wait * 1.02 or shortened == pytest.approx(wait)
    assert await limits.shortened(2.0, ["call"], asked_at=monotonic()) == 2.0


async def test_a_gate_that_opened_while_a_claim_was_under_way_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    monkeypatch.setattr("gantline.flow.limits.now", clock.now)
    store = LimitedStore(clock=clock)
    limits = Limits(store)
    await limits.declare([gated("mail", 2)])
    store.gate = GateState("api", None, clock.now() - timedelta(milliseconds=500))
    asked_at = monotonic()
    assert await limits.shortened(2.0, ["mail"], asked_at=asked_at) == 2.0
    assert await limits.shortened(2.0, ["mail"], asked_at=asked_at - 0.6) == 0.001


async def test_a_store_that_does_not_answer_leaves_the_wait_as_it_is(store: LimitedStore) -> None:
    limits = Limits(store)
    await limits.declare([gated("mail", 100)])
    store.gate = None
    assert await limits.shortened(2.0, ["mail"], asked_at=monotonic()) == 2.0


# -- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        Override(running=0),
        Override(running=-1),
        Override(running_in_all=2**31),
        Override(running=1.5),  # type: ignore[arg-type]  # nobody checks types at run time
        Override(gate=Gate("api", float("nan"))),
        Override(gate=Gate("api", 0.0)),
        Override(gate=Gate("api", -1.0)),
        Override(gate=Gate("api", float("inf"))),
        Override(gate=Gate("api", 1e-9)),
        Override(gate=Gate("api", 1e-5, 1_000_000)),
        Override(gate=Gate("api", 1.0, 0)),
        Override(gate=Gate("", 1.0)),
        Override(gate=Gate("x" * 300, 1.0)),
    ],
)
async def test_what_no_limit_can_be_is_not_stored(store: LimitedStore, changes: Override) -> None:
    limits = Limits(store)
    with pytest.raises(InvalidInput):
        await limits.set("mail", changes, by="ann")
    assert await store.read_records(LIMITS) == []


async def test_limits_that_cannot_be_read_leave_those_of_other_types_as_they_are(
    store: LimitedStore, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(store)
    await limits.declare([ONE, TypeFlow(job_type="call", running=3)])
    bad = b'{"declared":[],"override":{"gate":["api",null,1]}}'
    await store.write_records([RecordWrite(LIMITS, "mail", bad)])
    await limits.refresh(max_age_seconds=0)
    assert limits.holding("mail") == ONE  # what was known
    assert "the limits of mail cannot be read" in caplog.messages[0]
    assert await holding(store, "mail") is None
    assert await holding(store, "call") == TypeFlow(job_type="call", running=3)
    await limits.set("mail", Override(running=5), by="ann")
    assert await holding(store, "mail") == TypeFlow(job_type="mail", running=5)


async def test_to_clear_what_was_never_set_changes_nothing(store: LimitedStore) -> None:
    limits = Limits(store)
    await limits.clear("mial", by="ann")
    assert await store.read_records(LIMITS) == []
    await limits.declare([ONE])
    (before,) = await store.read_records(LIMITS)
    await limits.clear("mail", by="ann")
    assert await store.read_records(LIMITS) == [before]
