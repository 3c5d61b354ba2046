"""Rules for the log: each change has its row, each row its change, each event one number."""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast
from uuid import UUID

from gantline.contract.policy import DEFAULT_POLICY, Policy
from gantline.contract.snapshot import JobSnapshot, LogEntry
from gantline.contract.status import ON_REQUEST, TRANSITIONS, Event, JobStatus, Reason
from gantline.proof.call import Call, PageAfter, SeenRow, digest_of
from gantline.proof.facts import Facts, JobFacts, RunFacts
from gantline.proof.rest import Rest

# What a run may not do once a cancel was requested; who takes it away is an operator.
_LOSES_TO_CANCEL: Final = frozenset({Event.RETRIED, Event.SNOOZED, Event.RELEASED, Event.CRASHED})


def goes_back(points: Iterable[tuple[Call, int]]) -> tuple[Call, Call] | None:
    """Find two calls of which the first ended before the second began, and read a higher number."""
    by_first = sorted(points, key=lambda point: point[0].first)
    by_last = sorted(by_first, key=lambda point: point[0].last)
    best: tuple[Call, int] | None = None
    index = 0
    for call, number in by_first:
        while by_last[index][0].last < call.first:
            if best is None or by_last[index][1] > best[1]:
                best = by_last[index]
            index += 1
        if best is not None and number < best[1]:
            return best[0], call
    return None


def check_reads(facts: Facts, job_id: UUID, job: JobFacts) -> None:
    """What is read of a job never goes back."""
    if found := goes_back((call, version) for call, version, _ in job.seen):
        facts.broke("read", "its version went back", *found, job_id=job_id)
    if found := goes_back((call, fence) for call, _, fence in job.seen):
        facts.broke("read", "its fence went back", *found, job_id=job_id)


# -- numbers ------------------------------------------------------------------------------------


def check_numbers(facts: Facts, rest: Rest | None) -> None:
    """Each row has one number; none appears where a reader has been already."""
    if facts.clears or facts.loaded:
        return  # numbers began anew, or go on after those of another store
    lasts = [(call, cast("int", call.answers[0])) for call in facts.readings if _is_last(call)]
    if found := goes_back(lasts):
        facts.broke("event", "the last number went back", *found)
    pages = [call for call in facts.readings if not _is_last(call)]
    numbers = _Numbers(facts)
    by_last = sorted(pages, key=lambda call: call.last)
    index = 0
    for call in pages:
        while by_last[index].last < call.first:
            numbers.pass_by(by_last[index])
            index += 1
        numbers.read(call)
    if rest is not None:
        rows = [SeenRow.of(event.entry, event.sequence) for event in rest.events]
        for call in by_last[index:]:
            numbers.pass_by(call)
        numbers.read_rows(0, rows, None)
        numbers.check_rest(rest)
    numbers.check_order()


def _is_last(call: Call) -> bool:
    return call.verb == "last_event"


class _Numbers:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._rows: dict[int, SeenRow] = {}
        self._passed: list[tuple[int, int]] = []
        """Spans of numbers that a reader has seen all of, in order and apart from each other."""

    def pass_by(self, call: Call) -> None:
        """Add what was read by a call, which has ended."""
        if not call.answers:
            return
        low = cast("PageAfter", call.asked[0]).after
        high = cast("SeenRow", call.answers[-1]).sequence
        start = bisect_right(self._passed, low, key=lambda span: span[1])
        start -= start > 0 and self._passed[start - 1][1] >= low
        stop = start
        while stop < len(self._passed) and self._passed[stop][0] <= high:
            low, high = min(low, self._passed[stop][0]), max(high, self._passed[stop][1])
            stop += 1
        del self._passed[start:stop]
        insort(self._passed, (low, high))

    def read(self, call: Call) -> None:
        after = cast("PageAfter", call.asked[0]).after
        self.read_rows(after, cast("tuple[SeenRow, ...]", call.answers), call)

    def read_rows(self, after: int, rows: Sequence[SeenRow], call: Call | None) -> None:
        for row in rows:
            number = row.sequence
            if number <= after:
                message = f"the number {number} was read after {after}"
                self._facts.broke("event", message, call, job_id=row.job_id)
            after = number
            known = self._rows.setdefault(number, row)
            if (known.job_id, known.version) != (row.job_id, row.version):
                message = f"the number {number} belongs to version {row.version} of this job, and "
                message += f"to version {known.version} of job {known.job_id}"
                self._facts.broke("event", message, call, job_id=row.job_id)
            if known is row and self._is_passed(number):
                message = f"the number {number} appeared after a reader had passed it"
                self._facts.broke("event", message, call, job_id=row.job_id)

    def _is_passed(self, number: int) -> bool:
        index = bisect_right(self._passed, number, key=lambda span: span[0])
        # A span is open below: it begins after its first number.
        while index > 0 and self._passed[index - 1][0] >= number:
            index -= 1
        return index > 0 and self._passed[index - 1][1] >= number

    def check_order(self) -> None:
        versions: dict[UUID, int] = {}
        for number in sorted(self._rows):
            row = self._rows[number]
            before = versions.get(row.job_id, 0)
            if row.version <= before and not self._facts.was_reborn(self._facts.jobs[row.job_id]):
                message = f"version {row.version} has the number {number}, after version {before}"
                self._facts.broke("event", message, job_id=row.job_id)
            versions[row.job_id] = row.version

    def check_rest(self, rest: Rest) -> None:
        """At rest every row of the log is an event, and no number is missing between them."""
        events = Counter((event.entry.job_id, event.entry.version) for event in rest.events)
        rows = Counter((job_id, row.version) for job_id, log in rest.logs.items() for row in log)
        for job_id, version in rows - events:
            message = f"version {version} is in its log and not among the events"
            self._facts.broke("event", message, job_id=job_id)
        for job_id, version in events - rows:
            message = f"version {version} is among the events and not in its log"
            self._facts.broke("event", message, job_id=job_id)
        facts = self._facts
        if facts.prunes or any(job.removals for job in facts.jobs.values()):
            return  # a number that is missing was a removed job's
        for one, other in zip(rest.events, rest.events[1:], strict=False):
            ours = [facts.jobs[event.entry.job_id].born for event in (one, other)]
            if all(ours) and other.sequence > one.sequence + 1:
                message = f"no event has a number between {one.sequence} and {other.sequence}"
                facts.broke("event", message, job_id=other.entry.job_id)


# -- the log of a job ---------------------------------------------------------------------------


def check_log(
    facts: Facts, snapshot: JobSnapshot, log: Sequence[LogEntry], policies: Mapping[str, Policy]
) -> None:
    """Follow the log of a job from its beginning to where it stands."""
    job_id = snapshot.job.job_id
    status, fence, version, alone = JobStatus.QUEUED, 0, 0, 0
    cancelled_fence: int | None = None
    is_new = True
    for row in log:
        if row.version <= version:
            message = f"version {row.version} is logged after {version}"
            facts.broke("event", message, job_id=job_id)
        version = row.version
        if row.event in ON_REQUEST:
            continue
        if status is JobStatus.QUEUED and row.fence == fence + 1:
            status, fence = JobStatus.RUNNING, row.fence
        if row.fence != fence:
            message = f"version {version} is of run {row.fence}, after {status} of run {fence}"
            facts.broke("event", message, job_id=job_id)
            fence = row.fence
        elif (status, row.event, row.status) not in TRANSITIONS:
            message = f"version {version} was {row.event} when it was {status}"
            facts.broke("terminal" if status.is_terminal else "event", message, job_id=job_id)
        if fence == cancelled_fence and _loses_to_cancel(row):
            message = f"run {fence} {row.event}, though a cancel was requested before"
            facts.broke("cancel", message, job_id=job_id)
        if row.reason == Reason.EXPIRED and not (is_new and fence <= 1):
            message = f"version {version} expired, though the job had begun before"
            facts.broke("expiry", message, job_id=job_id)
        if row.event is Event.CANCEL_REQUESTED:
            cancelled_fence = fence
        else:
            is_new = False
        alone = 0 if row.event is Event.REDRIVEN else alone + (row.reason == Reason.CRASHED_ALONE)
        status = row.status
    if snapshot.status is JobStatus.RUNNING and status is JobStatus.QUEUED:
        status, fence = JobStatus.RUNNING, fence + 1
    if (snapshot.status, snapshot.fence) != (status, fence):
        message = (
            f"it is {snapshot.status} with fence {snapshot.fence}, by its log {status} {fence}"
        )
        facts.broke("event", message, job_id=job_id)
    if alone >= policies.get(snapshot.job.job_type, DEFAULT_POLICY).max_crashes:
        facts.broke("budget", f"it crashed alone {alone} times, and goes on", job_id=job_id)


def _loses_to_cancel(row: LogEntry) -> bool:
    if row.event is Event.POISONED:
        return row.reason != Reason.INVALID_FORMAT
    return row.event in _LOSES_TO_CANCEL and row.reason != Reason.TAKEN_AWAY


def check_rows(facts: Facts, job_id: UUID, job: JobFacts, log: Sequence[LogEntry]) -> None:
    """Compare the log of a job with the calls; all of them are known since it was submitted."""
    changes = [*job.changes_of()]
    accepted = Counter(one.item.event for one in changes if one.accepted)
    possible = Counter(one.item.event for one in changes)
    logged = Counter(row.event for row in log)
    for event in sorted(set(logged) | set(accepted) - ON_REQUEST):
        if event in ON_REQUEST:
            continue
        if logged[event] < accepted[event]:
            message = f"{accepted[event]} times {event} was accepted, {logged[event]} are logged"
            calls = [one.accepted for one in changes if one.item.event is event]
            facts.broke("event", message, *calls[:3], job_id=job_id)
        elif logged[event] > possible[event]:
            message = f"{event} is logged {logged[event]} times, and asked for {possible[event]}"
            facts.broke("event", message, job_id=job_id)
    by_run = {(row.event, row.fence): row for row in log}
    for run in job.runs.values():
        for one in job.changes.get(run.seen.token, ()):
            row = by_run.get((one.item.event, run.seen.fence))
            if row and digest_of(row.emitted) not in {item.emitted for item in one.items}:
                message = f"run {run.seen.fence} did not emit what is logged of it"
                facts.broke("event", message, one.call, job_id=job_id)
            if one.accepted and (one.item.event, run.seen.fence) not in by_run:
                message = f"run {run.seen.fence} {one.item.event}, which is not in the log"
                facts.broke("event", message, one.accepted, job_id=job_id)
        _check_on_request(facts, job_id, run, by_run, log)
    versions = {(row.event, row.version) for row in log}
    for one in changes:
        version = one.item.version
        if one.accepted and version is not None and (one.item.event, version + 1) not in versions:
            message = f"{one.item.event} was decided for version {version}, and made another"
            facts.broke("guard", message, one.accepted, job_id=job_id)
    submitted = {birth.item.logged for birth in job.births}
    if submitted != {True, False} and ((Event.SUBMITTED, 0) in by_run) not in submitted:
        message = f"its submission is {'not ' * (True in submitted)}logged"
        facts.broke("event", message, job.births[0].call, job_id=job_id)


def _check_on_request(
    facts: Facts,
    job_id: UUID,
    run: RunFacts,
    by_run: Mapping[tuple[Event, int], LogEntry],
    log: Sequence[LogEntry],
) -> None:
    fence = run.seen.fence
    is_logged = (Event.STARTED, fence) in by_run
    asked = {
        run.seen.job_type in request.logged
        for claim in (facts.claims[run.claim_id] if run.claim_id else ())
        for request in claim.claim.requests
        if request.queue == run.seen.queue and run.seen.job_type in request.job_types
    }
    if len(asked) == 1 and is_logged not in asked:
        message = f"the start of run {fence} is {'' if is_logged else 'not '}logged"
        facts.broke("event", message, run.call, job_id=job_id)
    if (Event.PROGRESSED, fence) in by_run and run.claim_id:
        rows = sum(row.event is Event.PROGRESSED and row.fence == fence for row in log)
        if rows > run.logged_progress:
            message = f"run {fence} progressed {run.logged_progress} times, {rows} are logged"
            facts.broke("event", message, run.call, job_id=job_id)
