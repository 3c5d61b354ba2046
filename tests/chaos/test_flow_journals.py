"""The proof of limits counts what is wrong: too many runs, zombies, windows that are too fast."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from gantline.contract.snapshot import LogEntry
from gantline.contract.status import Event, JobStatus
from tests.chaos.flow_journals import (
    Noted,
    RunId,
    back_after,
    crowds,
    handler_spans,
    leased_spans,
    most_over,
    zombies,
)

NOW = 1_790_000_000.0


def ended(run: RunId, at: float, event: Event = Event.COMPLETED) -> LogEntry:
    return LogEntry(
        job_id=run[0],
        version=3,
        event=event,
        status=JobStatus.COMPLETED,
        reason="",
        at=datetime.fromtimestamp(NOW + at, UTC),
        attempt=1,
        fence=run[1],
    )


def noted(*spans: tuple[str, float, float | None]) -> list[Noted]:
    return [
        Noted((UUID(int=number), 1), key, NOW + began, None if until is None else NOW + until)
        for number, (key, began, until) in enumerate(spans)
    ]


def test_a_third_run_of_a_key_is_a_crowd_of_two_places() -> None:
    runs = noted(("a", 0, 4), ("b", 1, 5), ("a", 1, 5), ("a", 2, 3))
    ends = {one.run: ended(one.run, 6) for one in runs}
    (crowd,) = crowds(leased_spans(runs, ends), 2)
    assert (crowd.key, crowd.at - NOW, len(crowd.spans)) == ("a", 2, 3)


def test_a_run_that_begins_when_another_has_ended_is_no_crowd() -> None:
    runs = noted(("a", 0, 2), ("a", 1, 3), ("a", 2, 4))
    ends = {one.run: ended(one.run, 5) for one in runs}
    assert not list(crowds(leased_spans(runs, ends), 2))


def test_a_handler_whose_run_was_taken_over_is_a_zombie_and_holds_no_place() -> None:
    runs = noted(("a", 0, 9), ("a", 4, 6), ("a", 5, None))
    events = (Event.CRASHED, Event.COMPLETED, Event.CRASHED)
    ends = {
        one.run: ended(one.run, at, event)
        for one, at, event in zip(runs, (3, 6, 8), events, strict=True)
    }
    assert zombies(runs, ends) == runs[:1]
    assert not list(crowds(leased_spans(runs, ends), 2))
    assert len(list(crowds(handler_spans(runs, ends), 2))) == 1


def test_a_killed_handler_holds_its_place_until_its_run_is_taken_over() -> None:
    runs = noted(("a", 0, None), ("a", 1, 2))
    ends = {runs[0].run: ended(runs[0].run, 3, Event.CRASHED), runs[1].run: ended(runs[1].run, 2)}
    assert len(list(crowds(leased_spans(runs, ends), 1))) == 1


def test_a_place_is_back_when_its_run_is_taken_over() -> None:
    runs = [one._replace(process=7) for one in noted(("a", 0, None), ("a", 0, 1))]
    ends = {one.run: ended(one.run, 5, Event.CRASHED) for one in runs}
    assert back_after(runs, ends, {7: NOW + 2}) == pytest.approx([3])


@pytest.mark.parametrize(
    ("starts", "over"),
    [
        ([0.0] * 20, 0),
        ([0.0] * 21, 1),
        ([number / 200 for number in range(1000)], -19),
        ([0.0] * 20 + [0.005], 0),
        ([0.0] * 20 + [0.0025], 0.5),
        # The whole is slow enough, a window in the middle is not.
        ([0.0, *(5 + number / 400 for number in range(60)), 20.0], 10.5),
    ],
)
def test_the_worst_window_of_a_gate_is_found(starts: list[float], over: float) -> None:
    assert most_over(starts, per_second=200, burst=20) == pytest.approx(over)
