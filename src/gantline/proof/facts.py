"""The facts of a history: what is known of each job, run, change and claim, from all processes.

A call took effect at some instant between its first and its last position. One whose answer is
unknown may have taken effect at any time after its first, or never.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import msgspec

from gantline.contract.job import DEFAULT_TENANT
from gantline.contract.status import Event
from gantline.proof.call import (
    NEVER,
    Answer,
    Call,
    Change,
    Claim,
    NamedJob,
    NamedRun,
    NamedToken,
    SeenJob,
    SeenRow,
    StartedRun,
    Submitted,
)

BEFORE_ALL: Final = -1


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that was broken, and the calls that prove it."""

    rule: str
    message: str
    job_id: UUID | None = None
    calls: tuple[str, ...] = ()

    def __str__(self) -> str:
        of = f" of job {self.job_id}" if self.job_id else ""
        by = f" ({', '.join(self.calls)})" if self.calls else ""
        return f"{self.rule}{of}: {self.message}{by}"


class Birth(NamedTuple):
    """How a job may have come into the store; certain where it is acknowledged."""

    call: Call
    item: Submitted
    is_certain: bool
    first: int
    """It was not before this position."""


class ChangeFacts:
    """A change with all calls that asked for it, since one whose answer is lost is repeated."""

    __slots__ = ("accepted", "call", "first", "is_exact", "item", "items", "last", "version")

    def __init__(self, call: Call, item: Change) -> None:
        self.call = call
        self.item = item
        self.items = [item]
        """All that was asked under its id: two reapers may count a crash differently, the first of
        them writes, and the other is taken for a repeat."""
        self.first = call.first
        self.last = NEVER
        self.accepted: Call | None = None
        self.version = 0
        """The job's after this change, where it is exact."""
        self.is_exact = True

    def add(self, call: Call, answer: Answer | None) -> None:
        """`answer` None: it is not known whether the call had an effect."""
        self.first = min(self.first, call.first)
        if answer is None:
            self.is_exact = False
        elif self.accepted is None:
            self.accepted, self.call, self.version = call, call, answer.version
            self.last = call.last
        else:
            self.is_exact = False
            self.last = min(self.last, call.last)


class RunFacts:
    """A run that was handed out, and the writes that it was allowed."""

    __slots__ = ("call", "claim_id", "first", "last", "logged_progress", "seen", "written")

    def __init__(self, seen: StartedRun, call: Call) -> None:
        self.seen = seen
        self.call = call
        self.claim_id: UUID | None = None
        self.first = BEFORE_ALL
        """Its start was not before this position."""
        self.last = call.last
        self.written: Call | None = None
        """The latest renewal or progress that was allowed."""
        self.logged_progress = 0

    def write(self, call: Call) -> None:
        if self.written is None or call.first > self.written.first:
            self.written = call


class JobFacts:
    """All that is known of one job id."""

    __slots__ = (
        "absent",
        "births",
        "changes",
        "redrives",
        "removals",
        "rows",
        "runs",
        "seen",
        "sequence",
        "taken",
        "terminal",
    )

    def __init__(self) -> None:
        self.births: list[Birth] = []
        self.runs: dict[int, RunFacts] = {}
        """By fence."""
        self.changes: dict[UUID, list[ChangeFacts]] = {}
        """By token or id; those that were refused are left out."""
        self.terminal: list[ChangeFacts] = []
        self.redrives: list[ChangeFacts] = []
        self.taken: list[ChangeFacts] = []
        """Those that take a run away from its worker."""
        self.removals: list[Call] = []
        """Deletions that were accepted, or may have been."""
        self.absent: Call | None = None
        """The first call that did not find it."""
        self.seen: list[tuple[Call, int, int]] = []
        """Its versions and fences as they were read."""
        self.rows: dict[int, SeenRow] = {}
        """By version."""
        self.sequence = 0
        """The highest number of its events that was read."""

    @property
    def born(self) -> Birth | None:
        """The first birth that is certain."""
        return next((birth for birth in self.births if birth.is_certain), None)

    def changes_of(self) -> Iterator[ChangeFacts]:
        return chain.from_iterable(self.changes.values())

    def change(self, call: Call, item: Change) -> ChangeFacts:
        """The facts of a change that was asked for; new ones at first."""
        known = self.changes.setdefault(item.change_id, [])
        for one in known:
            if one.item.event is item.event:
                if item not in one.items:
                    one.items.append(item)
                return one
        known.append(made := ChangeFacts(call, item))
        if item.to.is_terminal:
            self.terminal.append(made)
        elif item.event is Event.REDRIVEN:
            self.redrives.append(made)
        elif item.event is Event.RELEASED and not item.by_run:
            self.taken.append(made)
        return made

    def ends_of(self, run: RunFacts, *, before_version: int = NEVER) -> list[ChangeFacts]:
        """The changes that may have ended a run. Who takes it away names a version, not the run."""
        taken = [one for one in self.taken if (one.item.version or 0) < before_version]
        return [*self.changes.get(run.seen.token, ()), *taken]


class ClaimFacts(NamedTuple):
    call: Call
    claim: Claim
    runs: tuple[StartedRun, ...]


class Facts:
    """The whole history, by what it is about."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.jobs: dict[UUID, JobFacts] = defaultdict(JobFacts)
        self.runs: dict[UUID, RunFacts] = {}
        """By token."""
        self.claims: dict[UUID, list[ClaimFacts]] = defaultdict(list)
        self.prunes: list[Call] = []
        self.clears: list[Call] = []
        self.loaded: set[UUID] = set()
        """Jobs that came from another store, with a past that is not known here."""
        self.readings: list[Call] = []
        """Of events and of their last number."""
        self.duplicates: list[tuple[Call, Submitted, Answer]] = []
        self.refused: list[tuple[Call, Change, Submitted]] = []
        """Follow-ups of changes that were refused."""
        self.queues_in_turns: set[str] = set()
        """Those of jobs that take turns with others: of a group, or of a tenant of its own."""
        self.unknown = 0
        self._suspicions: list[tuple[JobFacts, Callable[[], None]]] = []

    def broke(
        self, rule: str, message: str, *calls: Call | None, job_id: UUID | None = None
    ) -> None:
        names = tuple(dict.fromkeys(str(call) for call in calls if call is not None))
        self.violations.append(Violation(rule=rule, message=message, job_id=job_id, calls=names))

    def broke_unless_reborn(self, job: JobFacts, *args: Any, **kwargs: Any) -> None:
        """The same of what may be otherwise once all calls are known."""
        self._suspicions.append((job, lambda: self.broke(*args, **kwargs)))

    @property
    def cleared_first(self) -> int:
        return min((call.first for call in self.clears), default=NEVER)

    def was_reborn(self, job: JobFacts) -> bool:
        """Whether its id may have been used anew: then versions and fences began anew too.

        That it was stored twice proves nothing: an insert whose answer was lost on the way to the
        store's own retry is answered like the first.
        """
        if self.clears or len(job.births) < 2:
            return bool(self.clears)
        return bool(job.removals) or any(
            end.first < prune.last and prune.first < birth.call.last
            for end in job.terminal
            for prune in self.prunes
            for birth in job.births
        )

    def judge_suspicions(self) -> None:
        for job, broke in self._suspicions:
            if not self.was_reborn(job):
                broke()

    # -- gathering --------------------------------------------------------------------------------

    def add(self, call: Call) -> None:
        if not call.may_have_effect:
            return
        self.unknown += not call.is_answered
        match call.verb:
            case "insert" | "insert_in":
                self._add_insert(call)
            case "claim":
                self._add_claim(call)
            case "apply":
                self._add_changes(call)
            case "renew" if call.is_certain:
                lost = {
                    one.token for one in call.answers if isinstance(one, NamedToken) and one.lost
                }
                self._add_writes(call, [one.token not in lost for one in _runs_of(call)])
            case "progress" if call.is_certain:
                self._add_writes(call, [one.is_applied for one in _results_of(call)])
            case "progress":  # what may have left a row
                for run in _runs_of(call):
                    if found := self.runs.get(run.token):
                        found.logged_progress += run.logged
            case "expired" if call.is_certain:
                for seen in cast("tuple[StartedRun, ...]", call.answers):
                    self._see_run(call, seen)
            case "delete":
                self._add_deletion(call)
            case "prune":
                self.prunes.append(call)
            case "clear":
                self.clears.append(call)
            case "load":
                self.loaded |= {one.job_id for one in cast("tuple[NamedJob, ...]", call.asked)}
            case "events" | "last_event" if call.is_certain:
                self.readings.append(call)
                self._add_rows(call)
            case "history" if call.is_certain:
                self._add_rows(call)
            case "get" | "find" if call.is_certain:
                self._add_reads(call)
            case _:
                pass  # it says nothing about jobs

    def _add_insert(self, call: Call) -> None:
        asked = cast("tuple[Submitted, ...]", call.asked)
        for item, answer in zip(asked, _answers_of(call), strict=True):
            job = self.jobs[item.job_id]
            self._see_group(item)
            if answer is None or answer.is_applied:
                job.births.append(Birth(call, item, answer is not None, call.first))
            elif answer.existing is not None:
                self.duplicates.append((call, item, answer))

    def _see_group(self, of: Submitted | StartedRun) -> None:
        if of.group or of.tenant_id != DEFAULT_TENANT:
            self.queues_in_turns.add(of.queue)

    def _add_changes(self, call: Call) -> None:
        asked = cast("tuple[Change, ...]", call.asked)
        for item, answer in zip(asked, _answers_of(call), strict=True):
            if answer is not None and not answer.is_applied:
                if answer.name == "NotFound":
                    self._add_absence(call, item.job_id, item.tenant_id or None)
                else:
                    self.refused += [(call, item, new) for new in item.follow_ups]
                continue
            change = self.jobs[item.job_id].change(call, item)
            if change.accepted is None and item.follow_ups:
                self._add_follow_ups(call, item, change, is_accepted=answer is not None)
            change.add(call, answer)

    def _add_follow_ups(
        self, call: Call, item: Change, change: ChangeFacts, *, is_accepted: bool
    ) -> None:
        for new in item.follow_ups:
            self._see_group(new)
            births = self.jobs[new.job_id].births
            births[:] = [one for one in births if one.call is not change.call]
            # One with a key may have been found to be another job's duplicate.
            births.append(Birth(call, new, is_accepted and not new.keys, change.first))
        change.call = call

    def _add_claim(self, call: Call) -> None:
        (claim,) = cast("tuple[Claim]", call.asked)
        runs = cast("tuple[StartedRun, ...]", call.answers)
        self.claims[claim.claim_id].append(ClaimFacts(call, claim, runs))
        first = self.claims[claim.claim_id][0].call.first
        for seen in runs:
            run = self._see_run(call, seen)
            if run.claim_id is None:
                run.claim_id, run.first = claim.claim_id, first
            elif run.claim_id != claim.claim_id:
                message = f"the run {seen.fence} was given to two claims"
                self.broke("claim", message, run.call, call, job_id=seen.job_id)
            if seen.session != call.session:
                message = f"the run {seen.fence} of {seen.session} was given to {call.session}"
                self.broke("claim", message, run.call, call, job_id=seen.job_id)

    def _see_run(self, call: Call, seen: StartedRun) -> RunFacts:
        run = self.runs.get(seen.token)
        runs = self.jobs[seen.job_id].runs
        self._see_group(seen)
        if run is None:
            run = self.runs[seen.token] = RunFacts(seen, call)
            if (other := runs.setdefault(seen.fence, run)) is not run:
                self._see_fence_again(other, run)
        elif (run.seen.job_id, run.seen.fence) != (seen.job_id, seen.fence):
            message = f"the token of run {run.seen.fence} was handed out again as {seen.fence}"
            self.broke("token", message, run.call, call, job_id=seen.job_id)
        elif seen.version < run.seen.version:
            run.seen = seen
        if call.last < run.last:
            run.last, run.call = call.last, call
        return run

    def _see_fence_again(self, other: RunFacts, run: RunFacts) -> None:
        job_id, calls = run.seen.job_id, (other.call, run.call)
        message = f"the fence {run.seen.fence} was handed out twice"
        self.broke_unless_reborn(self.jobs[job_id], "fence", message, *calls, job_id=job_id)

    def _add_writes(self, call: Call, allowed: Iterable[bool]) -> None:
        for named, is_allowed in zip(_runs_of(call), allowed, strict=True):
            run = self.runs.get(named.token)
            if not is_allowed or run is None:
                continue
            run.write(call)
            run.logged_progress += named.logged
            if call.session and call.session != run.seen.session:
                message = f"{call.session} renewed a run of {run.seen.session}"
                self.broke("takeover", message, run.call, call, job_id=named.job_id)

    def _add_deletion(self, call: Call) -> None:
        asked = cast("tuple[NamedJob, ...]", call.asked)
        for item, answer in zip(asked, _answers_of(call), strict=True):
            # Where it is not found, it may have been removed by the very call: a store tries again.
            if answer is None or answer.name != "Stale":
                self.jobs[item.job_id].removals.append(call)

    def _add_reads(self, call: Call) -> None:
        for index, seen in enumerate(call.answers):
            if isinstance(seen, SeenJob):
                self.jobs[seen.job_id].seen.append((call, seen.version, seen.fence))
            elif seen is None:
                named = cast("NamedJob", call.asked[index])
                self._add_absence(call, named.job_id, named.tenant_id)

    def _add_absence(self, call: Call, job_id: UUID, tenant_id: str | None) -> None:
        job = self.jobs[job_id]
        # Before its birth it is absent by right, and so is what other tenants have.
        born = job.born
        if born is None or born.call.last > call.first or job.absent is not None:
            return
        if tenant_id in (None, born.item.tenant_id):
            job.absent = call

    def _add_rows(self, call: Call) -> None:
        if call.verb != "last_event":
            for row in cast("tuple[SeenRow, ...]", call.answers):
                self.see_row(row, call)

    def see_row(self, row: SeenRow, call: Call | None) -> None:
        job = self.jobs[row.job_id]
        known = job.rows.setdefault(row.version, row)
        job.sequence = max(job.sequence, row.sequence)
        is_same = (known.event, known.status, known.fence) == (row.event, row.status, row.fence)
        if not is_same or known.emitted != row.emitted:
            message = f"version {row.version} was {known.event}, and then {row.event}"
            message += "" if known.emitted == row.emitted else ", with something else emitted"
            self.broke_unless_reborn(job, "event", message, call, job_id=row.job_id)


def gather(calls: Iterable[Call]) -> Facts:
    """Gather the facts of all calls, in the order of their beginning."""
    facts = Facts()
    for call in calls:
        facts.add(call)
    for call, item, answer in facts.duplicates:
        job = facts.jobs[item.job_id]
        if answer.existing == item.job_id and job.born is None:  # its first answer was lost
            first = job.births[0].first if job.births else BEFORE_ALL
            job.births.insert(0, Birth(call, item, True, first))
    return facts


def _answers_of(call: Call) -> Sequence[Answer | None]:
    """Item by item; None where the effect is not known."""
    return _results_of(call) if call.is_certain else (None,) * len(call.asked)


def _results_of(call: Call) -> tuple[Answer, ...]:
    return cast("tuple[Answer, ...]", call.answers)


def _runs_of(call: Call) -> tuple[NamedRun, ...]:
    return cast("tuple[NamedRun, ...]", call.asked)
