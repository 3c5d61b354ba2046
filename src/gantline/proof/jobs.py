"""Rules for jobs: none is lost, none is stored twice, and a key is held by one."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final, NamedTuple, cast
from uuid import UUID

from gantline.contract.status import JobStatus
from gantline.contract.submission import KeyKind
from gantline.proof.call import NEVER, Call, Prune
from gantline.proof.facts import BEFORE_ALL, ChangeFacts, Facts, JobFacts

_LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)


class Pruned:
    """What prunes may have removed, by status. Each limit is the widest of several prunes: so a
    removal is called unjustified only where no prune could have made it."""

    def __init__(self, facts: Facts) -> None:
        prunes: dict[JobStatus, list[tuple[Call, Prune, datetime]]] = defaultdict(list)
        for call in facts.prunes:
            (asked,) = cast("tuple[Prune]", call.asked)
            # Whatever it said: of what a store does twice it counts the second time.
            for rule in asked.rules if asked.limit > 0 else ():
                prunes[rule.status].append((call, asked, rule.ended_before))
        self._by_status = {status: _widest(some) for status, some in prunes.items()}

    def may_have_removed(self, job: JobFacts, before: int) -> bool:
        """Whether a prune before this position was entitled to remove a job."""
        # Not the latest instant: the clock may have been set back before the end.
        newest = job.rows[max(job.rows)] if job.rows else None
        ended_at = newest.at if newest and newest.status.is_terminal else _LONG_AGO
        for end in job.terminal:
            widest = self._by_status.get(end.item.to, ())
            index = bisect_left(widest, end.first, key=lambda one: one.last)
            if index == len(widest):
                continue
            limits = widest[index]
            if limits.first < before and limits.keep >= job.sequence and limits.until > ended_at:
                return True
        return False


class _Widest(NamedTuple):
    """What this prune and all later ones could remove."""

    last: int
    first: int
    keep: int
    until: datetime


def _widest(prunes: list[tuple[Call, Prune, datetime]]) -> list[_Widest]:
    found: list[_Widest] = []
    first, keep, until = NEVER, 0, _LONG_AGO
    for call, asked, ended_before in sorted(prunes, key=lambda one: -one[0].last):
        kept = NEVER if asked.keep_events_after is None else asked.keep_events_after
        first, keep, until = min(first, call.first), max(keep, kept), max(until, ended_before)
        found.append(_Widest(call.last, first, keep, until))
    return found[::-1]


def check_presence(facts: Facts, job_id: UUID, job: JobFacts, pruned: Pruned) -> None:
    """A job that was acknowledged is found, until somebody was entitled to remove it."""
    born = job.born
    if job.absent is not None and not _may_be_gone(facts, job, pruned, job.absent.last):
        message = "it was accepted, and then not found, though nobody had removed it"
        facts.broke("lost", message, born.call if born else None, job.absent, job_id=job_id)


def check_missing(facts: Facts, present: set[UUID], pruned: Pruned) -> None:
    """The same at rest."""
    for job_id, job in facts.jobs.items():
        born = job.born
        if born is None or job_id in present:
            continue
        if any(call.last > born.first for call in [*job.removals, *facts.clears]):
            continue
        if pruned.may_have_removed(job, NEVER):
            continue
        message = "it was accepted, and is gone at rest, though nobody had removed it"
        facts.broke("lost", message, born.call, job_id=job_id)


def _may_be_gone(facts: Facts, job: JobFacts, pruned: Pruned, before: int) -> bool:
    if any(call.first < before for call in [*job.removals, *facts.clears]):
        return True
    return pruned.may_have_removed(job, before)


# -- keys ---------------------------------------------------------------------------------------


class _Held(NamedTuple):
    """While a job certainly was live, and so had its key."""

    start: int
    end: int
    job_id: UUID
    call: Call


def check_keys(facts: Facts) -> None:
    """Two live jobs never have one key."""
    held: dict[str, list[_Held]] = defaultdict(list)
    for job_id, job in facts.jobs.items():
        key = next((one.item.job_key for one in job.births if one.item.job_key), None)
        if key is not None and not facts.was_reborn(job):
            held[key.digest] += _certainly_live(facts, job_id, job)
    for spans in held.values():
        longest: _Held | None = None
        for span in sorted(spans, key=lambda one: (one.start, one.end)):
            if longest and span.start < longest.end and span.job_id != longest.job_id:
                message = f"it has the key of job {longest.job_id}, which was still live"
                facts.broke("key", message, longest.call, span.call, job_id=span.job_id)
            if longest is None or span.end > longest.end:
                longest = span


def _certainly_live(facts: Facts, job_id: UUID, job: JobFacts) -> list[_Held]:
    found: list[_Held] = []
    starts = [(one.call, one.call.last, BEFORE_ALL) for one in job.births if one.is_certain]
    if not starts and job.runs:  # it runs, so it was stored
        run = job.runs[min(job.runs)]
        starts = [(run.call, run.last, BEFORE_ALL)]
    starts += [(one.call, one.last, one.first) for one in job.redrives if one.accepted]
    for call, start, after in starts:
        ends = [one.first for one in job.terminal if one.last >= after]
        end = min([*ends, facts.cleared_first])
        if start < end:
            found.append(_Held(start, end, job_id, call))
    return found


def check_duplicates(facts: Facts) -> None:
    """Who submits again is given the very job that has the same key and the same fingerprint."""
    for call, item, answer in facts.duplicates:
        existing = answer.existing
        if existing in (item.job_id, item.external_id) or existing not in facts.jobs:
            continue
        job = facts.jobs[existing]
        keys = {key for one in job.births for key in one.item.keys}
        if job.births and not keys & set(item.keys):
            message = f"job {existing}, which was answered as its duplicate, is another job"
            facts.broke("key", message, job.births[0].call, call, job_id=item.job_id)
        elif answer.by == KeyKind.JOB and (end := _end_that_freed_the_key(job, call)):
            message = f"job {existing}, which was answered as its duplicate, was {end.item.to}"
            facts.broke("key", message, end.accepted, call, job_id=item.job_id)


def _end_that_freed_the_key(job: JobFacts, call: Call) -> ChangeFacts | None:
    if any(redrive.first < call.last for redrive in job.redrives):
        return None
    freed = (one for one in job.terminal if one.item.to is not JobStatus.COMPLETED)
    return next((one for one in freed if one.last < call.first), None)


def check_refused(facts: Facts, present: Collection[UUID]) -> None:
    """A change that was refused has stored no follow-up."""
    for call, change, new in facts.refused:
        job = facts.jobs[new.job_id]
        was_made = any(
            one.item.event is change.event
            for one in facts.jobs[change.job_id].changes.get(change.change_id, ())
        )
        if not (was_made or job.births or new.job_id in facts.loaded) and (
            job.runs or new.job_id in present
        ):
            message = f"it is stored, though the {change.event} that it follows was refused"
            facts.broke("refused", message, call, job_id=new.job_id)
