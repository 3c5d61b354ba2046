"""Each rule of the checker: a history that keeps it, and one that breaks it."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from gantline.contract.flow import Gate, TypeFlow
from gantline.contract.query import LaneRequest
from gantline.contract.status import Event, JobStatus, Reason
from gantline.proof.call import NEVER, Answer, StartedRun
from gantline.proof.checker import check
from tests.history.large import large, timed
from tests.history.story import (
    NOT_FOUND,
    STALE,
    Story,
    acted,
    applied,
    ended,
    key,
    named,
    row,
    run,
    submitted,
)

Step = Callable[[Story], object]


def rules_broken(story: Story) -> list[str]:
    return [violation.rule for violation in check(story.calls).violations]


def a_life(story: Story, event: Event = Event.COMPLETED) -> None:
    story.insert("a")
    story.claim(run("a"))
    story.apply(ended("a", event), applied(3))


def claiming(*runs: StartedRun) -> Step:
    return lambda s: s.claim(*runs)


def keeps(*steps: Step) -> None:
    story = Story()
    for step in steps:
        step(story)
    assert rules_broken(story) == []


def breaks(rule: str, *steps: Step) -> None:
    story = Story()
    for step in steps:
        step(story)
    report = check(story.calls)
    assert rule in {one.rule for one in report.violations}, str(report)
    assert all("p#" in call.replace(" ", "") for one in report.violations for call in one.calls)


# -- jobs ---------------------------------------------------------------------------------------


def test_an_accepted_job_is_found_until_it_is_removed() -> None:
    keeps(lambda s: s.get("a"), a_life, lambda s: s.get("a", 3, 1))
    keeps(a_life, lambda s: s.delete("a"), lambda s: s.get("a"))
    keeps(a_life, lambda s: s.delete("a", lost=True), lambda s: s.get("a"))
    keeps(a_life, lambda s: s.prune(JobStatus.COMPLETED), lambda s: s.get("a"))
    breaks("lost", a_life, lambda s: s.get("a"))
    breaks("lost", a_life, lambda s: s.get("a"), lambda s: s.prune(JobStatus.COMPLETED))
    breaks("lost", a_life, lambda s: s.prune(JobStatus.FAILED), lambda s: s.get("a"))
    breaks("lost", a_life, lambda s: s.apply(ended("a", Event.FAILED), NOT_FOUND))


@pytest.mark.parametrize("lost", [False, True])
def test_a_job_that_was_pruned_may_be_inserted_again(lost: bool) -> None:
    """Found by seed 400178: a fan-out whose first answer was lost repeats what has run already."""
    token = named("a", "again")
    prune: Step = lambda s: s.prune(JobStatus.COMPLETED)  # noqa: E731  # like the other steps

    def first(story: Story) -> None:
        story.insert("a", lost=lost)
        story.claim(run("a"))
        story.apply(ended("a", Event.COMPLETED))

    def again(story: Story) -> None:
        story.insert("a")
        story.claim(run("a", token=token))
        story.apply(ended("a", Event.COMPLETED, change_id=token))

    keeps(first, prune, again)
    breaks("fence", first, again)
    breaks("fence", prune, first, again)


def test_a_job_whose_acceptance_is_unknown_may_be_missing() -> None:
    keeps(lambda s: s.insert("a", lost=True), lambda s: s.get("a"))


def test_an_insert_that_is_found_to_be_a_repeat_was_accepted() -> None:
    repeated = Answer("Duplicate", existing=named("a"))
    story = Story()
    story.insert("a", lost=True)
    story.insert("a", repeated)
    born = check(story.calls)
    assert born.violations == ()
    story.prune(JobStatus.FAILED)
    story.claim(run("a"))
    keeps(lambda s: s.calls.extend(story.calls))


def test_what_a_consumer_has_still_to_read_is_not_pruned() -> None:
    read = [a_life, lambda s: s.events(0, row("a", 7))]
    keeps(*read, lambda s: s.prune(JobStatus.COMPLETED, keep=7), lambda s: s.get("a"))
    breaks("lost", *read, lambda s: s.prune(JobStatus.COMPLETED, keep=6), lambda s: s.get("a"))


def test_a_follow_up_of_an_accepted_end_is_accepted_too() -> None:
    def follow(story: Story, answer: Answer | None = None) -> None:
        story.insert("a")
        story.claim(run("a"))
        change = ended("a", Event.COMPLETED, follow_ups=(submitted("b"),))
        story.apply(change, answer)

    keeps(follow, lambda s: s.claim(run("b")))
    breaks("lost", follow, lambda s: s.get("b"))
    keeps(lambda s: follow(s, STALE), lambda s: s.get("b"))
    breaks("refused", lambda s: follow(s, STALE), lambda s: s.claim(run("b")))


def test_two_live_jobs_never_have_one_key() -> None:
    def insert(job: str, *, lost: bool = False) -> Step:
        return lambda s: s.insert(job, keys=(key("k"),), lost=lost)

    breaks("key", insert("a"), insert("b"))
    keeps(insert("a", lost=True), insert("b"))
    keeps(insert("a"), lambda s: s.claim(run("a")), failed, insert("b"))
    keeps(insert("a"), lambda s: s.claim(run("a")), perhaps_failed, insert("b"))
    redriven = [insert("a"), lambda s: s.claim(run("a")), failed, insert("b"), redrive]
    breaks("key", *redriven)


def failed(story: Story) -> None:
    story.apply(ended("a", Event.FAILED), applied(3))


def perhaps_failed(story: Story) -> None:
    story.apply(ended("a", Event.FAILED), lost=True)


def redrive(story: Story) -> None:
    story.apply(acted("a", Event.REDRIVEN, 3), applied(4))


def test_a_duplicate_has_the_same_key_and_fingerprint_and_still_holds_it() -> None:
    def duplicate(fingerprint: str) -> Step:
        answer = Answer("Duplicate", existing=named("a"), by="job")
        return lambda s: s.insert("b", answer, keys=(key("k", fingerprint),))

    first: Step = lambda s: s.insert("a", keys=(key("k", "1"),))  # noqa: E731  # as the others
    keeps(first, duplicate("1"))
    breaks("key", first, duplicate("2"))
    breaks("key", first, lambda s: s.claim(run("a")), failed, duplicate("1"))
    keeps(first, lambda s: s.claim(run("a")), failed, redrive, duplicate("1"))


# -- runs ---------------------------------------------------------------------------------------


def test_a_token_is_handed_out_once() -> None:
    keeps(a_life, lambda s: s.insert("b"), lambda s: s.claim(run("b")))
    again = run("b", token=named("a", 1))
    breaks("token", a_life, lambda s: s.insert("b"), lambda s: s.claim(again))


def test_fences_only_grow() -> None:
    retried: Step = lambda s: a_life(s, Event.RETRIED)  # noqa: E731  # as the others
    keeps(retried, lambda s: s.claim(run("a", 2)))
    same = run("a", 1, token=named("other"), version=4, attempt=2)
    breaks("fence", retried, lambda s: s.claim(same))
    breaks("fence", lambda s: s.claim(run("a", 2, version=2)), lambda s: s.claim(run("a", 1)))


def test_a_run_ends_once() -> None:
    keeps(a_life, lambda s: s.apply(ended("a", Event.COMPLETED), applied(3)))
    keeps(a_life, lambda s: s.apply(ended("a", Event.FAILED), STALE))
    breaks("one end", a_life, failed)
    keeps(lambda s: s.insert("a"), lambda s: s.claim(run("a")), perhaps_failed, completed)


def completed(story: Story) -> None:
    story.apply(ended("a", Event.COMPLETED), applied(3))


def test_no_run_begins_before_the_one_before_it_has_ended() -> None:
    begun: list[Step] = [lambda s: s.insert("a"), lambda s: s.claim(run("a"))]
    second: Step = lambda s: s.claim(run("a", 2))  # noqa: E731  # as the others
    breaks("one run", *begun, second)
    keeps(*begun, lambda s: s.apply(ended("a", Event.RETRIED), lost=True), second)
    breaks("one run", *begun, second, lambda s: s.apply(ended("a", Event.RETRIED), applied(3)))


def test_what_is_under_way_at_once_may_have_happened_in_either_order() -> None:
    story = Story()
    story.insert("a")
    story.claim(run("a"))
    claim = story.claim(run("a", 2))
    end = story.apply(ended("a", Event.RETRIED), applied(3))
    assert "one run" in rules_broken(story)
    story.beside(claim, end)
    assert rules_broken(story) == []


def taken_over(story: Story) -> None:
    story.insert("a")
    story.claim(run("a"))
    story.apply(ended("a", Event.CRASHED), applied(3))
    story.claim(run("a", 2, session="v", attempt=1, crashes=1))


def test_a_run_that_was_taken_over_can_write_nothing() -> None:
    keeps(
        taken_over, lambda s: s.renew("a", 1, is_lost=True), lambda s: s.renew("a", 2, session="v")
    )
    breaks("takeover", taken_over, lambda s: s.renew("a", 1))
    keeps(taken_over, lambda s: s.apply(ended("a", Event.COMPLETED), STALE))
    breaks("takeover", taken_over, completed)
    breaks("takeover", taken_over, lambda s: s.renew("a", 2, session="w"))


def test_what_has_ended_runs_again_only_after_a_redrive() -> None:
    again = run("a", 2, attempt=1)
    ended_so: Step = lambda s: a_life(s, Event.FAILED)  # noqa: E731  # as the others
    keeps(ended_so, redrive, lambda s: s.claim(again))
    keeps(
        ended_so,
        lambda s: s.apply(acted("a", Event.REDRIVEN, 3), lost=True),
        lambda s: s.claim(again),
    )
    breaks("terminal", ended_so, lambda s: s.claim(again))
    breaks("terminal", ended_so, lambda s: s.claim(again), redrive)
    cancelled: Step = lambda s: s.apply(acted("a", Event.CANCELLED), applied(2))  # noqa: E731
    breaks("terminal", lambda s: s.insert("a"), cancelled, lambda s: s.claim(run("a", version=3)))


@pytest.mark.parametrize("event", [Event.RETRIED, Event.SNOOZED, Event.RELEASED, Event.CRASHED])
def test_the_next_run_has_the_counters_that_the_last_one_left(event: Event) -> None:
    left = ended("a", event)
    after = run("a", 2, attempt=left.attempt + 1, crashes=left.crashes, snoozes=left.snoozes)
    keeps(lambda s: a_life(s, event), lambda s: s.claim(after))
    for wrong in ({"attempt": 3}, {"crashes": 2}, {"snoozes": 2}, {"priority": 0}):
        fields = {"attempt": after.attempt, "crashes": after.crashes, "snoozes": after.snoozes}
        other = run("a", 2, **fields | wrong)
        breaks("counters", lambda s: a_life(s, event), claiming(other))


def test_of_two_ends_that_are_unknown_either_may_have_left_the_counters() -> None:
    both: list[Step] = [
        lambda s: s.insert("a"),
        lambda s: s.claim(run("a")),
        lambda s: s.apply(ended("a", Event.RETRIED), lost=True),
        lambda s: s.apply(ended("a", Event.SNOOZED), lost=True),
    ]
    keeps(*both, lambda s: s.claim(run("a", 2, attempt=2)))
    keeps(*both, lambda s: s.claim(run("a", 2, attempt=1, snoozes=1)))
    breaks("counters", *both, lambda s: s.claim(run("a", 2, attempt=2, snoozes=1)))


def test_of_two_reapers_that_count_a_crash_differently_either_may_have_written() -> None:
    """Found by the simulation: seed 16. The second of them is answered as a repeat."""
    both: list[Step] = [
        lambda s: s.insert("a"),
        lambda s: s.claim(run("a")),
        lambda s: s.apply(ended("a", Event.CRASHED, crashes=1)),
        lambda s: s.apply(ended("a", Event.CRASHED, crashes=0)),
    ]
    keeps(*both, lambda s: s.claim(run("a", 2, attempt=1, crashes=0)))
    keeps(*both, lambda s: s.claim(run("a", 2, attempt=1, crashes=1)))
    breaks("counters", *both, lambda s: s.claim(run("a", 2, attempt=1, crashes=2)))


def test_an_end_costs_what_the_rules_say() -> None:
    begun: list[Step] = [lambda s: s.insert("a"), lambda s: s.claim(run("a"))]
    keeps(*begun, lambda s: s.apply(ended("a", Event.SNOOZED)))
    breaks("counters", *begun, lambda s: s.apply(ended("a", Event.SNOOZED, attempt=1)))
    breaks("counters", *begun, lambda s: s.apply(ended("a", Event.RETRIED, attempt=0)))
    poisoned = ended("a", Event.POISONED, reason=Reason.ATTEMPTS_EXHAUSTED)
    breaks("budget", *begun, lambda s: s.apply(poisoned))


def test_what_was_claimed_too_late_is_ended_and_nothing_else_is() -> None:
    expired = ended("a", Event.CANCELLED, reason=Reason.EXPIRED, attempt=0)
    late: list[Step] = [lambda s: s.insert("a"), lambda s: s.claim(run("a", has_expired=True))]
    in_time: list[Step] = [lambda s: s.insert("a"), lambda s: s.claim(run("a"))]
    keeps(*late, lambda s: s.apply(expired))
    keeps(*late, lambda s: s.apply(ended("a", Event.CANCELLED, reason=Reason.CANCEL_REQUESTED)))
    breaks("expiry", *late, lambda s: s.apply(ended("a", Event.COMPLETED)))
    breaks("expiry", *late, lambda s: s.apply(ended("a", Event.RELEASED)))
    breaks("expiry", *in_time, lambda s: s.apply(expired))


def test_budgets_are_kept() -> None:
    last = run("a", attempt=3)
    first = [lambda s: s.insert("a", attempts_used=2), lambda s: s.claim(last)]
    keeps(*first, lambda s: s.apply(ended("a", Event.FAILED, attempt=3)))
    breaks("budget", *first, lambda s: s.apply(ended("a", Event.RETRIED, attempt=3)))
    breaks("budget", lambda s: s.claim(run("a", attempt=4)))
    breaks("budget", lambda s: s.claim(run("a", snoozes=1001)))


def test_a_first_run_is_as_it_was_submitted() -> None:
    keeps(lambda s: s.insert("a", priority=0), lambda s: s.claim(run("a", priority=0)))
    breaks("counters", lambda s: s.insert("a", priority=0), lambda s: s.claim(run("a")))
    breaks("counters", lambda s: s.claim(run("a")), lambda s: s.insert("a"))


# -- claims -------------------------------------------------------------------------------------


def test_a_repeated_claim_gives_its_own_runs() -> None:
    jobs: list[Step] = [lambda s: s.insert("a"), lambda s: s.insert("b")]
    one: Step = lambda s: s.claim(run("a"), claim="c")  # noqa: E731  # as the others
    keeps(*jobs, one, one)
    breaks("claim", *jobs, one, lambda s: s.claim(run("a"), run("b"), claim="c"))
    breaks("claim", *jobs, one, lambda s: s.claim(run("b"), claim="c"))
    breaks("claim", *jobs, one, lambda s: s.claim(claim="c"))
    breaks("claim", *jobs, one, lambda s: s.claim(run("a"), claim="d"))
    keeps(*jobs, one, completed, lambda s: s.claim(run("b"), claim="c"))
    keeps(*jobs, lambda s: s.claim(claim="c", lost=True), one)


def test_the_order_within_a_claim_is_priority_then_time_due_then_id() -> None:
    jobs = sorted("abc", key=named)
    runs = [
        run(jobs[2], priority=0, due_at=9.0),
        run(jobs[0], due_at=5.0),
        run(jobs[1], due_at=5.0),
    ]
    keeps(lambda s: s.claim(*runs))
    for wrong in ([1, 0, 2], [0, 2, 1]):
        breaks("order", claiming(*(runs[index] for index in wrong)))
    late = [run(jobs[0], due_at=6.0), run(jobs[1], due_at=5.0)]
    breaks("order", lambda s: s.claim(*late))


def test_a_claim_gives_only_what_was_asked_for() -> None:
    request = LaneRequest("default", ("test", "other"), 2, at_most=(("test", 1),))
    keeps(lambda s: s.claim(run("a"), run("b", job_type="other"), request=request))
    breaks("claim", lambda s: s.claim(run("a"), run("b"), request=request))
    breaks("claim", lambda s: s.claim(run("a", queue="other"), request=request))
    others = [run(name, job_type="other") for name in "abc"]
    breaks("claim", lambda s: s.claim(*others, request=request))
    breaks("claim", lambda s: s.claim(run("a", crashes=2, attempt=1)))
    breaks("claim", lambda s: s.claim(run("a", waited_seconds=-5.0)))


# -- flow ---------------------------------------------------------------------------------------

LIMITED = LaneRequest(
    "default", ("test",), 10, flow=(TypeFlow(job_type="test", running=1, running_in_all=2),)
)


def claiming_under(request: LaneRequest, *runs: StartedRun) -> Step:
    return lambda s: s.claim(*runs, request=request)


def test_where_groups_take_turns_the_order_holds_within_a_group_and_over_priorities() -> None:
    jobs = sorted("abcd", key=named)
    of_a = [run(jobs[index], group="a", due_at=5.0) for index in range(2)]
    of_b = run(jobs[2], group="b", due_at=1.0)
    keeps(claiming(of_a[0], of_b, of_a[1]))
    breaks("order", claiming(of_a[1], of_b, of_a[0]))
    breaks("order", claiming(of_a[0], run(jobs[2], group="b", priority=0, due_at=1.0)))
    keeps(claiming(of_a[0], run(jobs[1], tenant_id="other", group="a", due_at=4.0)))
    both = LaneRequest("default", ("test", "other"), 10)
    keeps(claiming_under(both, of_a[0], run(jobs[1], group="a", job_type="other", due_at=4.0)))
    # Plain jobs, of which each type may have its own turns beside groups.
    plain = [run(jobs[0], due_at=5.0), run(jobs[1], job_type="other", due_at=4.0)]
    breaks("order", claiming_under(both, *plain))
    keeps(lambda s: s.insert("g", group="g"), claiming_under(both, *plain))
    # Suspects take no turns.
    suspects = [run(job, group=job, crashes=2, due_at=due) for job, due in (("a", 5.0), ("b", 4.0))]
    alone = LaneRequest("default", ("test",), 10, suspects=(10,))
    breaks("order", claiming_under(alone, *suspects))


def test_of_a_group_and_of_a_type_no_more_run_than_the_claim_allows() -> None:
    a, also_a, b, c = (run(job, group=job[0]) for job in ("a1", "a2", "b", "c"))
    keeps(claiming_under(LIMITED, a, b))
    breaks("limit", claiming_under(LIMITED, a, also_a))
    breaks("limit", claiming_under(LIMITED, a, b, c))
    breaks("limit", claiming_under(LIMITED, a), claiming_under(LIMITED, also_a))
    breaks("limit", claiming_under(LIMITED, a, b), claiming_under(LIMITED, c))
    done: Step = lambda s: s.apply(ended("a1", Event.COMPLETED))  # noqa: E731
    keeps(claiming_under(LIMITED, a, b), done, claiming_under(LIMITED, also_a))
    keeps(claiming_under(LIMITED, a), claiming(also_a))
    keeps(claiming(a), claiming_under(LIMITED, also_a))


def test_a_run_counts_only_while_it_certainly_runs() -> None:
    a, also_a = run("a1", group="a"), run("a2", group="a")
    may_have_ended: Step = lambda s: s.apply(ended("a1", Event.COMPLETED), lost=True)  # noqa: E731
    keeps(claiming_under(LIMITED, a), may_have_ended, claiming_under(LIMITED, also_a))
    refused: Step = lambda s: s.apply(ended("a1", Event.COMPLETED), STALE)  # noqa: E731
    breaks("limit", claiming_under(LIMITED, a), refused, claiming_under(LIMITED, also_a))

    def at_once(story: Story) -> None:
        story.beside(story.claim(a, request=LIMITED), story.apply(ended("a1", Event.COMPLETED)))
        story.claim(also_a, request=LIMITED)

    keeps(at_once)


def test_a_gate_lets_through_its_rate_and_its_burst() -> None:
    flow = (TypeFlow(job_type="test", gate=Gate("mail", per_second=1.0, burst=2)),)
    gated = LaneRequest("default", ("test",), 10, flow=flow)

    def starting(*seconds: float, first: int = 0) -> list[Step]:
        return [
            claiming_under(gated, run(number, due_at=1000.0, waited_seconds=at))
            for number, at in enumerate(seconds, first)
        ]

    keeps(*starting(0.0, 0.0, 1.0, 2.0, 9.0, 9.0, 10.0))
    breaks("gate", *starting(0.0, 0.0, 0.5))
    breaks("gate", *starting(0.0, 0.0, 1.0, 1.9))
    breaks("gate", *starting(0.0, 9.0, 9.0, 9.9))
    keeps(*starting(0.0, 0.0), lambda s: s.call("clear", [], []), *starting(0.0, 0.0, first=5))


# -- events -------------------------------------------------------------------------------------


def test_numbers_grow_and_belong_to_one_row() -> None:
    keeps(lambda s: s.events(0, row("a", 1), row("b", 2)), lambda s: s.events(1, row("b", 2)))
    breaks("event", lambda s: s.events(0, row("a", 2), row("b", 1)))
    breaks("event", lambda s: s.events(1, row("a", 1)))
    breaks("event", lambda s: s.events(0, row("a", 1)), lambda s: s.events(0, row("b", 1)))
    breaks("event", lambda s: s.events(0, row("a", 1, 5), row("a", 2, 3)))
    breaks("event", lambda s: s.events(0, row("a", 1), row("a", 2)))


def test_no_number_appears_where_a_reader_has_been() -> None:
    first: Step = lambda s: s.events(0, row("a", 1), row("c", 3))  # noqa: E731  # as the others
    keeps(first, lambda s: s.events(3, row("d", 4)))
    breaks("event", first, lambda s: s.events(0, row("a", 1), row("b", 2)))
    keeps(first, lambda s: s.events(3, row("d", 5)), lambda s: s.events(4, row("d", 5)))
    breaks("event", first, lambda s: s.events(3, row("d", 5)), lambda s: s.events(3, row("e", 4)))


def test_the_last_number_and_what_is_read_of_a_job_never_go_back() -> None:
    def last(number: int) -> Step:
        return lambda s: s.call("last_event", [], [number])

    keeps(last(3), last(3), last(4))
    breaks("event", last(3), last(2))
    keeps(lambda s: s.get("a", 3, 1), lambda s: s.get("a", 4, 1))
    breaks("read", lambda s: s.get("a", 4, 1), lambda s: s.get("a", 3, 1))
    breaks("read", lambda s: s.get("a", 3, 2), lambda s: s.get("a", 4, 1))


def test_what_a_process_was_asking_when_it_died_may_have_happened() -> None:
    story = Story()
    story.insert("a")
    story.claim(run("a"))
    dying = story.apply(ended("a", Event.RETRIED))
    dying.ended, dying.last, dying.answers = None, NEVER, ()
    story.claim(run("a", 2))
    assert rules_broken(story) == []


# -- how long it takes --------------------------------------------------------------------------


@pytest.mark.wide
def test_the_time_grows_with_the_number_of_calls_and_no_faster() -> None:
    small, big = large(8_000), large(32_000)
    _, once = min((timed(small) for _ in range(3)), key=lambda one: one[1])
    report, four_times = min((timed(big) for _ in range(3)), key=lambda one: one[1])
    assert report.violations == ()
    assert four_times < 10 * once
    assert four_times / report.calls < timedelta(minutes=1).total_seconds() / 1_000_000
