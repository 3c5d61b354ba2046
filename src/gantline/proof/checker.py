"""The checker: judges what was recorded of a store, and what it holds at rest.

Only what the calls prove is a violation. A call whose answer is unknown may have had its effect at
any time after it began, or none. Of two calls one was first if it ended before the other began.
All calls of a store must be in the history, from the first that changed one of its jobs.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

import msgspec

from gantline.contract.policy import Policy
from gantline.proof.call import Call, SeenRow
from gantline.proof.facts import Facts, Violation, gather
from gantline.proof.flow import check_flow
from gantline.proof.jobs import (
    Pruned,
    check_duplicates,
    check_keys,
    check_missing,
    check_presence,
    check_refused,
)
from gantline.proof.log import check_log, check_numbers, check_reads, check_rows
from gantline.proof.rest import Rest, check_rest
from gantline.proof.runs import check_claims, check_runs

_DEFAULTS: Final[Mapping[str, Policy]] = MappingProxyType({})


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was judged, and what was found."""

    calls: int
    unknown: int
    """Calls without an answer."""
    jobs: int
    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        judged = f"{self.calls} calls ({self.unknown} without an answer) of {self.jobs} jobs"
        found = f"{len(self.violations)} violations" if self.violations else "no violation"
        return "\n".join([f"{judged}: {found}", *map(str, self.violations)])


def check(
    calls: Iterable[Call],
    *,
    rest: Rest | None = None,
    within: timedelta = timedelta(minutes=1),
    policies: Mapping[str, Policy] = _DEFAULTS,
) -> Report:
    """Judge a history, in the order of its beginnings, and what is stored at its end, if known.

    `within` is how long a due job may have waited at rest; `policies` are those of the types that
    do not have the default one.
    """
    ordered = list(calls)
    facts = gather(ordered)
    if rest is not None:
        _check_jobs_at_rest(facts, rest, within=within, policies=policies)
    pruned = Pruned(facts)
    for job_id, job in facts.jobs.items():
        check_presence(facts, job_id, job, pruned)
        if facts.was_reborn(job):
            continue  # versions and fences began anew
        check_runs(facts, job_id, job, policies)
        check_reads(facts, job_id, job)
    for claims in facts.claims.values():
        check_claims(facts, claims)
    check_flow(facts)
    check_keys(facts)
    check_duplicates(facts)
    check_refused(facts, rest.jobs if rest is not None else ())
    check_numbers(facts, rest)
    facts.judge_suspicions()
    if rest is not None:
        check_missing(facts, set(rest.jobs), pruned)
    return Report(
        calls=len(ordered),
        unknown=facts.unknown,
        jobs=len(facts.jobs),
        violations=tuple(facts.violations),
    )


def _check_jobs_at_rest(
    facts: Facts, rest: Rest, *, within: timedelta, policies: Mapping[str, Policy]
) -> None:
    for job_id, log in rest.logs.items():
        for row in log:
            facts.see_row(SeenRow.of(row), None)
        if job_id not in facts.loaded:
            check_log(facts, rest.jobs[job_id], log, policies)
        job = facts.jobs[job_id]
        if job.born and not facts.was_reborn(job):
            check_rows(facts, job_id, job, log)
    check_rest(facts, rest, within=within)
