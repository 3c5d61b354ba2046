"""The six statuses: what they are called, and which moves between them exist."""

import itertools
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantline.contract.errors import Code, InvalidInput
from gantline.contract.status import (
    REDRIVABLE,
    STATUS_AFTER,
    TERMINAL,
    TRANSITIONS,
    Event,
    JobStatus,
    Reason,
)
from gantline.contract.transition import Guard, RunGuard, StateGuard, Transition
from gantline.testing.factories import number

# Other work on the machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# -- names --------------------------------------------------------------------------------------


def test_there_are_exactly_six_statuses() -> None:
    assert [status.value for status in JobStatus] == [
        "Queued", "Running", "Completed", "Failed", "Poisoned", "Cancelled",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "status"),
    [
        # The battery passport worker's.
        ("QUEUED", JobStatus.QUEUED),
        ("RUNNING", JobStatus.RUNNING),
        ("SUCCEEDED", JobStatus.COMPLETED),
        ("FAILED", JobStatus.FAILED),
        ("DEAD_LETTER", JobStatus.POISONED),
        ("CANCELLED", JobStatus.CANCELLED),
        # AsyncEndpoints'.
        ("Scheduled", JobStatus.QUEUED),
        ("InProgress", JobStatus.RUNNING),
        ("Canceled", JobStatus.CANCELLED),
        # Others'.
        ("pending", JobStatus.QUEUED),
        ("Retrying", JobStatus.QUEUED),
        ("dead-letter", JobStatus.POISONED),
        ("Dead Letter", JobStatus.POISONED),
        ("deadlettered", JobStatus.POISONED),
        ("in_progress", JobStatus.RUNNING),
        ("in-progress", JobStatus.RUNNING),
        ("processing", JobStatus.RUNNING),
        ("success", JobStatus.COMPLETED),
        ("  completed\n", JobStatus.COMPLETED),
        ("failure", JobStatus.FAILED),
        ("aborted", JobStatus.CANCELLED),
    ],
)
def test_a_status_is_known_by_the_names_of_other_systems(name: str, status: JobStatus) -> None:
    assert JobStatus.parse(name) is status
    assert JobStatus.parse(name.lower()) is status
    assert JobStatus.parse(name.upper()) is status


@pytest.mark.parametrize("status", JobStatus)
def test_a_status_is_known_by_its_own_name(status: JobStatus) -> None:
    assert JobStatus.parse(status.value) is status
    assert JobStatus.parse(status.name) is status


@pytest.mark.parametrize("name", ["", " ", "Complete", "Queued2", "運行", "x" * 10_000])
def test_an_unknown_status_is_refused_and_the_choices_are_named(name: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        JobStatus.parse(name)
    assert raised.value.code == Code.VALIDATION_ERROR
    assert all(status.value in str(raised.value) for status in JobStatus)
    assert len(str(raised.value)) < 500


@unhurried
@given(st.text())
def test_parsing_a_status_raises_nothing_but_invalid_input(name: str) -> None:
    try:
        status = JobStatus.parse(name)
    except InvalidInput:
        return
    assert status in JobStatus


# -- moves --------------------------------------------------------------------------------------


def moves_from(status: JobStatus) -> set[tuple[Event, JobStatus]]:
    return {(event, to) for source, event, to in TRANSITIONS if source is status}


def test_the_terminal_statuses_are_the_four_that_end_a_job() -> None:
    assert set(JobStatus) - TERMINAL == {JobStatus.QUEUED, JobStatus.RUNNING}
    assert all(status.is_terminal == (status in TERMINAL) for status in JobStatus)


@pytest.mark.parametrize("status", sorted(set(JobStatus) - TERMINAL))
def test_every_live_status_has_a_way_out(status: JobStatus) -> None:
    assert any(to is not status for _, to in moves_from(status))


def test_completed_is_final() -> None:
    assert moves_from(JobStatus.COMPLETED) == set()


@pytest.mark.parametrize("status", sorted(TERMINAL - {JobStatus.COMPLETED}))
def test_other_ended_jobs_are_left_only_by_a_redrive(status: JobStatus) -> None:
    assert moves_from(status) == {(Event.REDRIVEN, JobStatus.QUEUED)}
    assert status in REDRIVABLE


def test_every_status_is_reachable_from_queued() -> None:
    reached = {JobStatus.QUEUED}
    while new := {to for source, _, to in TRANSITIONS if source in reached} - reached:
        reached |= new
    assert reached == set(JobStatus)


def test_every_event_is_a_move_but_the_first_and_those_that_change_nothing() -> None:
    moves = {event for _, event, _ in TRANSITIONS}
    assert moves == set(Event) - {Event.SUBMITTED, Event.PROGRESSED}


def test_an_event_leads_to_one_status_wherever_it_comes_from() -> None:
    assert {(event, to) for _, event, to in TRANSITIONS} == set(STATUS_AFTER.items())


def test_only_a_claim_leads_into_running() -> None:
    into = {(source, event) for source, event, to in TRANSITIONS if to is JobStatus.RUNNING}
    assert into - {(JobStatus.RUNNING, Event.CANCEL_REQUESTED)} == {
        (JobStatus.QUEUED, Event.STARTED)
    }


def guards() -> list[Guard]:
    return [RunGuard(number(1)), *(StateGuard(status, "default", 1) for status in JobStatus)]


def make(guard: Guard, event: Event, to: JobStatus, **fields: Any) -> Transition:
    return Transition(
        job_id=number(1),
        guard=guard,
        event=event,
        to=to,
        reason=Reason.SUCCEEDED,
        attempt=1,
        crashes=0,
        snoozes=0,
        priority=2,
        **fields,
    )


@pytest.mark.parametrize("guard", guards(), ids=["own run", *JobStatus])
def test_a_transition_can_be_made_exactly_if_it_is_a_move(guard: Guard) -> None:
    source = JobStatus.RUNNING if isinstance(guard, RunGuard) else guard.status
    for event, to in itertools.product(Event, JobStatus):
        if (source, event, to) in TRANSITIONS:
            assert make(guard, event, to).from_status is source
        else:
            with pytest.raises(ValueError, match="no such move"):
                make(guard, event, to)


def test_a_change_is_recognised_by_the_run_token_or_by_an_id_of_its_own() -> None:
    by_run = make(RunGuard(number(7)), Event.COMPLETED, JobStatus.COMPLETED)
    assert by_run.change_id == number(7)
    one, other = (
        make(StateGuard(JobStatus.QUEUED, "default"), Event.CANCELLED, JobStatus.CANCELLED)
        for _ in range(2)
    )
    assert one.change_id != other.change_id


def test_the_actor_is_made_storable() -> None:
    guard = StateGuard(JobStatus.QUEUED, "default")
    made = make(guard, Event.CANCELLED, JobStatus.CANCELLED, actor="\ud800\0" + "x" * 1000)
    assert len(made.actor) <= 256
    assert made.actor.startswith("\N{REPLACEMENT CHARACTER}" * 2)


def test_a_transition_waits_for_nothing_unless_told() -> None:
    assert make(RunGuard(number(1)), Event.RELEASED, JobStatus.QUEUED).delay == timedelta(0)
