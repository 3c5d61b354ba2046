"""Rules of the simulation: each is broken by what it is for, and by nothing that may happen."""

from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from gantline.contract.query import LaneRequest
from gantline.contract.status import Event, JobStatus
from gantline.proof.call import Answer, Call, Change, Claim, NamedRun, NamedToken, StartedRun
from gantline.proof.history import merged
from gantline.testing.simulation.application import Handled, Journal
from gantline.testing.simulation.data_rules import check_data
from gantline.testing.simulation.handler_rules import check_handlers
from gantline.testing.simulation.network import Chances
from gantline.testing.simulation.outside import Lease, Life, Outside
from gantline.testing.simulation.script import Script, Trouble
from gantline.testing.simulation.worker_rules import check_workers, given_runs

JOB, TOKEN = UUID(int=1), UUID(int=2)
ONE = "worker-0/1"


def script(**changes: Any) -> Script:
    usual: dict[str, Any] = {"seed": 1, "store": "memory", "workers": 1, "slots": 2, "lease": 5.0}
    return Script(**usual | {"chances": Chances(), "steps": ()} | changes)


def outside(*leases: tuple[float, float], **life: Any) -> Outside:
    world: Any = SimpleNamespace(now=1000.0, jumped_by=timedelta(0))
    seen = Outside(world)
    seen.lives[ONE] = Life(0.0, **life)
    seen.leases[TOKEN] += [Lease(*one) for one in leases]
    return seen


def handled(began: float, ended: float, stopped: float | None = None, fence: int = 1) -> Handled:
    return Handled(ONE, str(JOB), fence, "plain", began, ended, stopped)


# -- handlers -----------------------------------------------------------------------------------


def broken_by(runs: Sequence[Handled], seen: Outside, **changes: Any) -> list[str]:
    return list(check_handlers(script(**changes), seen, runs, {(str(JOB), 1): TOKEN}))


def test_a_handler_ends_before_its_lease() -> None:
    assert not broken_by([handled(10, 14.9)], outside((10, 15)))
    assert not broken_by([handled(10, 19)], outside((10, 15), (12, 17), (16, 21)))


def test_a_handler_that_goes_on_without_its_lease_is_seen() -> None:
    assert broken_by([handled(10, 15.5)], outside((10, 15)))
    assert broken_by([handled(10, 19)], outside((10, 15), (16, 21)))


def test_what_a_handler_does_after_it_was_asked_to_stop_is_its_own_fault() -> None:
    assert not broken_by([handled(10, 30, stopped=14.5)], outside((10, 15)))


def test_a_handler_may_begin_with_a_new_lease() -> None:
    assert not broken_by([handled(20, 24)], outside((10, 15), (20, 25)))


def test_a_process_that_stood_still_could_not_stop_its_handler() -> None:
    seen = outside((1000, 1005))
    freeze = Trouble(at=0.0, what="freeze", seconds=10.0)
    process: Any = SimpleNamespace(label=ONE)
    assert broken_by([handled(1000, 1010)], seen)
    seen.note_trouble(freeze, process)
    assert not broken_by([handled(1000, 1010)], seen)


def test_a_process_that_stood_still_before_it_called_a_handler_stops_it_at_once() -> None:
    """Found by seed 520097: it was frozen between the claim and the call."""
    seen = outside((1000, 1005))
    newer = Handled("worker-1/1", str(JOB), 2, "plain", 1006, 1012, None)
    freeze = Trouble(at=0.0, what="freeze", seconds=10.0)
    process: Any = SimpleNamespace(label=ONE)
    assert broken_by([newer, handled(1010, 1010, stopped=1010)], seen)
    seen.note_trouble(freeze, process)
    assert not broken_by([newer, handled(1010, 1010, stopped=1010)], seen)
    assert broken_by([newer, handled(1010.1, 1011)], seen)


def test_a_handler_that_returned_is_not_called_again_in_its_run() -> None:
    seen = outside((10, 15), (14, 19))
    assert broken_by([handled(10, 12), handled(13, 14)], seen)
    assert not broken_by([handled(10, 12, stopped=12), handled(13, 14)], seen)


def test_two_handlers_of_a_job_are_not_at_once() -> None:
    seen = outside((10, 99))
    assert broken_by([handled(10, 20), handled(15, 18, fence=2)], seen)
    assert not broken_by([handled(10, 20, stopped=14), handled(15, 18, fence=2)], seen)


@pytest.mark.parametrize(("slots", "count"), [({"slots": 2}, 3), ({"slots_in_all": 1}, 2)])
def test_more_handlers_than_slots_are_seen(slots: dict[str, int], count: int) -> None:
    runs = [Handled(ONE, str(UUID(int=n)), 1, "plain", 1.0, 2.0, None) for n in range(count)]
    assert broken_by(runs, outside(), **slots)
    assert not broken_by(runs[1:], outside(), **slots)


# -- data ----------------------------------------------------------------------------------------


def test_a_run_is_taken_from_the_living_only_when_it_is_renewed_no_more() -> None:
    """Found by seed 630005 with 24 streams: a store that takes no ends for 80 seconds."""

    def taken(at: float) -> list[str]:
        calls = merged(Calls().claim(10, started()).end(at, only_expired=True).all)
        journal = Journal(runs=[], heard=[], ends_heard=set(), delivered=[])
        return list(check_data(script(is_gentle=True), outside(), journal, calls))

    assert taken(20)
    assert not taken(90)


# -- workers ------------------------------------------------------------------------------------


def started(token: UUID = TOKEN, crashes: int = 0) -> StartedRun:
    return StartedRun(
        job_id=JOB,
        tenant_id="default",
        job_type="plain",
        queue="one",
        token=token,
        session="s",
        fence=1,
        version=1,
        attempt=1,
        max_attempts=4,
        crashes=crashes,
        snoozes=0,
        priority=2,
    )


class Calls:
    """What a worker called, one after the other."""

    def __init__(self) -> None:
        self.all: list[Call] = []

    def add(self, verb: str, at: float, *, seconds: float = 0.01, **fields: Any) -> "Calls":
        number, ended = len(self.all) + 1, at + seconds
        self.all.append(
            Call(number=number, verb=verb, began=at, ended=ended, process=ONE, **fields)
        )
        return self

    def claim(self, at: float, *runs: StartedRun, limit: int = 1) -> "Calls":
        asked = Claim(UUID(int=len(self.all)), (LaneRequest("one", ("plain",), limit),))
        return self.add("claim", at, asked=(asked,), answers=runs)

    def renew(self, at: float, *, lost: bool = False) -> "Calls":
        answers = (NamedToken(TOKEN, True),) if lost else ()
        return self.add("renew", at, asked=(NamedRun(JOB, TOKEN),), answers=answers)

    def end(
        self, at: float, name: str = "Applied", *, token: UUID = TOKEN, only_expired: bool = False
    ) -> "Calls":
        change = Change(
            job_id=JOB,
            change_id=token,
            event=Event.COMPLETED,
            reason="",
            to=JobStatus.COMPLETED,
            attempt=1,
            crashes=0,
            snoozes=0,
            priority=2,
            by_run=True,
            only_expired=only_expired,
        )
        return self.add("apply", at, asked=(change,), answers=(Answer(name),))

    def broken(self, seen: Outside, **changes: Any) -> list[str]:
        calls = merged(self.all)
        return list(check_workers(script(**changes), seen, calls, given_runs(calls)))


STOPPED = {"asked_to_stop": 20.0, "ended": 22.0, "in_order": True}


def test_a_worker_that_stops_in_order_has_ended_its_runs() -> None:
    assert not Calls().claim(19, started()).end(21).broken(outside(**STOPPED))
    assert Calls().claim(19, started()).broken(outside(**STOPPED))


def test_an_end_that_is_refused_because_of_a_cancel_is_no_end() -> None:
    calls = Calls().claim(19, started()).end(20, "CancelPending")
    assert calls.broken(outside(**STOPPED))
    assert not calls.end(21).broken(outside(**STOPPED))


def test_a_worker_need_not_end_what_is_lost() -> None:
    assert not Calls().claim(19, started()).end(20, "Stale").broken(outside(**STOPPED))
    assert not Calls().claim(19, started()).renew(20, lost=True).broken(outside(**STOPPED))


def test_what_could_not_be_written_in_time_is_left_to_the_leases() -> None:
    late = STOPPED | {"ended": 31.0}
    calls = Calls().claim(19, started()).renew(21).renew(24).renew(27).renew(30)
    assert not calls.broken(outside(**late), drain=10.0)


def test_what_a_worker_gave_up_long_before_it_stops_is_left_to_the_leases() -> None:
    late = {"asked_to_stop": 100.0, "ended": 101.0, "in_order": True}
    calls = Calls().claim(10, started())
    for at in range(12, 75, 3):
        calls.renew(at)
    assert not calls.broken(outside(**late))
    for at in range(75, 100, 3):
        calls.renew(at)
    assert calls.broken(outside(**late))


def test_a_run_is_renewed_until_its_end_is_written() -> None:
    dies = {"ended": 35.0}
    assert Calls().claim(10, started()).renew(12).end(20).broken(outside(**dies))
    assert not Calls().claim(10, started()).renew(12).renew(15).end(18).broken(outside(**dies))


def test_a_worker_holds_no_more_than_its_slots_allow() -> None:
    seen, calls = outside(ended=4.0), Calls()
    for number in range(13):
        calls.claim(1 + number / 10, started(UUID(int=100 + number)), limit=2)
    assert calls.broken(seen, slots_in_all=2)
    assert not calls.broken(seen, slots_in_all=3)


def test_a_free_slot_is_noticed_at_once() -> None:
    def freed(then: float) -> list[str]:
        calls = Calls().claim(10, started()).end(11).claim(then)
        return calls.broken(outside(ended=30.0), slots_in_all=1)

    assert freed(14.0)
    assert not freed(11.5)


def test_an_end_that_is_written_after_a_claim_freed_its_slot_before() -> None:
    calls = Calls().claim(9, started(UUID(int=3))).claim(10, started())
    calls.end(10.1, token=UUID(int=3)).renew(12).renew(14).end(14.5).claim(15)
    assert not calls.broken(outside(ended=30.0), slots_in_all=1)


def test_what_a_reaper_takes_from_another_worker_frees_no_slot() -> None:
    calls = Calls().claim(10, started()).renew(12).renew(14)
    calls.end(11, token=UUID(int=9), only_expired=True).end(14.5).claim(15)
    assert not calls.broken(outside(ended=30.0), slots_in_all=1)


def test_a_worker_that_runs_nothing_looks_for_work() -> None:
    calls = Calls().claim(10, started(), limit=2).end(11)
    assert calls.broken(outside(ended=40.0))
    assert not calls.broken(outside(ended=30.0))
    assert not calls.claim(25).broken(outside(ended=40.0))


def test_a_worker_that_runs_something_need_not_look_for_work() -> None:
    calls = Calls().claim(10, started(), limit=2)
    for at in range(12, 40, 3):
        calls.renew(at)
    assert not calls.end(40).broken(outside(ended=50.0))


def test_a_worker_whose_calls_fail_need_not_look_for_work() -> None:
    calls = Calls().claim(10, started(), limit=2).end(11)
    calls.add("read_records", 20, seconds=20.0, error="StoreUnavailable")
    assert not calls.broken(outside(ended=55.0))
    assert calls.broken(outside(ended=65.0))


def test_a_worker_does_not_look_for_work_where_the_store_is_closed() -> None:
    seen, calls = outside(ended=1040.0), Calls().claim(1000, started(), limit=2).end(1001)
    assert calls.broken(seen)
    with seen.closed():
        pass
    assert not calls.broken(seen)


def test_a_suspect_may_keep_a_worker_from_claiming() -> None:
    calls = Calls().claim(9, started(UUID(int=3), crashes=2)).claim(10, started()).end(11).claim(14)
    assert not calls.broken(outside(ended=12.5), slots_in_all=1)
