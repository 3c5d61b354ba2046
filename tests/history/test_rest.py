"""Each rule for what is stored at rest: as a sound store left it, and with one thing changed."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from gantline.contract.outcome import Released, Snoozed, Success
from gantline.contract.snapshot import CurrentRun, JobSnapshot, LogEntry, Progress
from gantline.contract.status import Event, JobStatus, Reason
from gantline.proof.call import Call
from gantline.proof.checker import check
from gantline.proof.rest import Rest, read_rest
from gantline.testing.conformance.bench import PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.emitting import emitted
from tests.harness import MemoryHarness
from tests.history.test_sound_stores import RecordedHarness

replace = msgspec.structs.replace
SERVED = frozenset({("default", "test")})


class Lived:
    """A history with a job for each way to end, and what it left."""

    def __init__(self, calls: list[Call], rest: Rest, ids: dict[str, UUID]) -> None:
        self.calls = calls
        self.rest = rest
        self.ids = ids

    def job(self, name: str) -> JobSnapshot:
        return self.rest.jobs[self.ids[name]]

    def with_job(self, name: str, **changes: Any) -> Rest:
        job_id = self.ids[name]
        jobs = {**self.rest.jobs, job_id: replace(self.rest.jobs[job_id], **changes)}
        return replace(self.rest, jobs=jobs)

    def with_log(self, name: str, log: tuple[LogEntry, ...]) -> Rest:
        """Change a log, and its events with it."""
        job_id = self.ids[name]
        others = [event for event in self.rest.events if event.entry.job_id != job_id]
        mine = [event for event in self.rest.events if event.entry.job_id == job_id]
        events = [replace(event, entry=row) for event, row in zip(mine, log, strict=False)]
        merged = sorted([*others, *events], key=lambda event: event.sequence)
        logs = {**self.rest.logs, job_id: log}
        return replace(self.rest, logs=logs, events=tuple(merged))

    def broken(self, rest: Rest) -> set[str]:
        return {one.rule for one in check(self.calls, rest=rest).violations}


@pytest.fixture
async def lived() -> Lived:
    harness = RecordedHarness(MemoryHarness())
    bench = await Bench.on(harness)
    ids = {"done": await bench.submit(1, idempotency_key="k", logged=True)}
    (run,) = await bench.claim()
    await bench.store.progress([Progress(run.ref, 50, "half", True)])
    await bench.finish(run, Snoozed(timedelta(0)))
    await bench.finish((await bench.claim())[0], Success(emitted=emitted("done")))
    for name, outcome in (("failed", PERMANENT), ("retried", RETRYABLE), ("released", Released())):
        run = await bench.start(name)
        ids[name] = run.job.job_id
        await bench.finish(run, outcome)
        if name == "released":
            await bench.cancel(run.job.job_id)
    asked = await bench.start("asked")
    ids["asked"] = asked.job.job_id
    await bench.cancel(asked.job.job_id)
    ids["live"] = await bench.submit("live", idempotency_key="other", delay=timedelta(hours=1))
    rest = await read_rest(bench.store)
    return Lived(harness.history.calls, rest, ids)


def test_a_sound_store_is_clean_at_rest(lived: Lived) -> None:
    assert lived.broken(lived.rest) == set()


def test_an_accepted_job_that_is_gone_is_lost(lived: Lived) -> None:
    gone = lived.ids["live"]
    jobs = {job_id: job for job_id, job in lived.rest.jobs.items() if job_id != gone}
    logs = {job_id: log for job_id, log in lived.rest.logs.items() if job_id != gone}
    assert "lost" in lived.broken(replace(lived.rest, jobs=jobs, logs=logs))


def test_counts_equal_the_jobs(lived: Lived) -> None:
    (lane,) = lived.rest.counts
    for name in ("queued", "scheduled", "running", "completed", "failed", "cancelled"):
        counted = replace(lane, **{name: getattr(lane, name) + 1})
        assert lived.broken(replace(lived.rest, counts=(counted,))) == {"counts"}
    assert lived.broken(replace(lived.rest, counts=())) == {"counts"}


def test_two_live_jobs_at_rest_never_have_one_key(lived: Lived) -> None:
    job = replace(lived.job("retried").job, idempotency_key="other")
    assert lived.broken(lived.with_job("retried", job=job)) == {"key"}


def test_two_jobs_of_a_tenant_at_rest_never_have_one_external_id(lived: Lived) -> None:
    """Whatever their status is."""
    given = UUID(int=7)
    for name, tenant, broken in (("failed", "default", {"key"}), ("failed", "other", set())):
        first = replace(lived.job("done").job, external_id=given)
        second = replace(lived.job(name).job, external_id=given, tenant_id=tenant)
        rest = lived.with_job("done", job=first)
        jobs = {**rest.jobs, second.job_id: replace(lived.job(name), job=second)}
        assert lived.broken(replace(rest, jobs=jobs)) - {"counts"} == broken


def test_what_is_due_does_not_wait_without_a_reason(lived: Lived) -> None:
    later = lived.rest.now + timedelta(hours=2)
    job = lived.job("asked")
    assert job.run is not None
    held = replace(job.run, lease_until=later)
    rest = replace(lived.with_job("asked", run=held), now=later, served=SERVED)
    (lane,) = rest.counts
    rest = replace(rest, counts=(replace(lane, scheduled=0),))
    assert lived.broken(rest) == {"waiting"}
    reasons: tuple[dict[str, Any], ...] = (
        {"served": frozenset({("default", "other")})},
        {"served": frozenset()},
        {"stopped_queues": frozenset({"default"})},
        {"stopped_types": frozenset({"test"})},
        {"is_closed": True},
    )
    for reason in reasons:
        assert lived.broken(replace(rest, **reason)) == set()


def test_a_lease_that_ran_out_does_not_wait_for_ever(lived: Lived) -> None:
    run = lived.job("asked").run
    assert run is not None
    old: datetime = lived.rest.now - timedelta(hours=1)
    late: CurrentRun = replace(run, lease_until=old)
    rest = replace(lived.with_job("asked", run=late), served=frozenset({("default", "other")}))
    assert lived.broken(rest) == {"waiting"}


def test_every_accepted_change_has_a_row_and_an_event(lived: Lived) -> None:
    for name in ("done", "failed", "retried", "released"):
        log = lived.rest.logs[lived.ids[name]]
        assert "event" in lived.broken(lived.with_log(name, log[:-1])), name
    assert "event" in lived.broken(replace(lived.rest, events=lived.rest.events[:-1]))
    assert "event" in lived.broken(
        replace(lived.rest, events=(*lived.rest.events, lived.rest.events[-1]))
    )


def test_a_row_has_what_its_run_emitted(lived: Lived) -> None:
    for name, other in (("done", None), ("done", emitted("other")), ("failed", emitted("done"))):
        log = lived.rest.logs[lived.ids[name]]
        changed = replace(log[-1], emitted=other)
        assert "event" in lived.broken(lived.with_log(name, (*log[:-1], changed))), other


def test_no_row_is_there_that_nobody_asked_for(lived: Lived) -> None:
    log = lived.rest.logs[lived.ids["failed"]]
    again = replace(log[-1], version=log[-1].version + 1)
    assert {"terminal", "event"} <= lived.broken(lived.with_log("failed", (*log, again)))


def test_rows_are_in_the_order_of_their_versions(lived: Lived) -> None:
    log = lived.rest.logs[lived.ids["done"]]
    assert len(log) > 2
    assert "event" in lived.broken(lived.with_log("done", (log[1], log[0], *log[2:])))


def test_submissions_and_progress_are_logged_as_asked_for(lived: Lived) -> None:
    log = lived.rest.logs[lived.ids["done"]]
    assert [row.event for row in log[:2]] == [Event.SUBMITTED, Event.PROGRESSED]
    assert "event" in lived.broken(lived.with_log("done", log[1:]))
    more = replace(log[1], version=log[1].version)
    assert "event" in lived.broken(lived.with_log("done", (*log[:2], more, *log[2:])))


def test_a_job_stands_where_its_log_and_its_last_run_left_it(lived: Lived) -> None:
    assert "event" in lived.broken(lived.with_job("failed", status=JobStatus.QUEUED))
    assert "counters" in lived.broken(lived.with_job("failed", attempt=2))
    assert "fence" in lived.broken(lived.with_job("failed", fence=0))


def test_a_cancel_that_was_requested_is_not_forgotten(lived: Lived) -> None:
    log = lived.rest.logs[lived.ids["asked"]]
    retried = replace(
        log[-1],
        version=log[-1].version + 1,
        event=Event.RETRIED,
        status=JobStatus.QUEUED,
        reason=Reason.RETRYABLE_ERROR,
    )
    assert "cancel" in lived.broken(lived.with_log("asked", (*log, retried)))


def test_an_operator_changes_the_version_that_he_read(lived: Lived) -> None:
    calls = lived.calls
    index = next(
        index
        for index, call in enumerate(calls)
        if call.verb == "apply" and getattr(call.asked[0], "event", None) is Event.CANCELLED
    )
    asked = replace(calls[index].asked[0], version=1)
    old = replace(calls[index], asked=(asked,))
    report = check([*calls[:index], old, *calls[index + 1 :]], rest=lived.rest)
    assert "guard" in {one.rule for one in report.violations}


def test_only_what_has_not_begun_expires(lived: Lived) -> None:
    log = lived.rest.logs[lived.ids["retried"]]
    last = replace(log[-1], event=Event.CANCELLED, status=JobStatus.CANCELLED)
    expired = replace(last, reason=Reason.EXPIRED, fence=1, version=3)
    assert "expiry" not in lived.broken(lived.with_log("retried", (expired,)))
    again = replace(expired, fence=2, version=9)
    assert "expiry" in lived.broken(lived.with_log("retried", (*log, again)))


def test_a_job_that_crashes_alone_does_so_within_its_budget(lived: Lived) -> None:
    log = lived.rest.logs[lived.ids["retried"]]
    crash = replace(log[-1], event=Event.CRASHED, reason=Reason.CRASHED_ALONE)
    many = tuple(replace(crash, version=crash.version + 2 * n, fence=n + 1) for n in range(3))
    assert "budget" not in lived.broken(lived.with_log("retried", many[:2]))
    assert "budget" in lived.broken(lived.with_log("retried", many))
