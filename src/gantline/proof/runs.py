"""Rules for runs: who was given what in which order, who may write, and what each end costs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final
from uuid import UUID

from gantline.contract.policy import DEFAULT_POLICY, Policy
from gantline.contract.snapshot import MOST_CRASHES_COUNTED, SUSPECT_AFTER_CRASHES
from gantline.contract.status import Event, Reason
from gantline.proof.call import NEVER, Call, StartedRun
from gantline.proof.facts import ChangeFacts, ClaimFacts, Facts, JobFacts, RunFacts

# Instants that are made from floats differ by less than this, though they are the same.
_SAME_SECONDS: Final = 1e-4
Counters = tuple[int, int, int]


def check_runs(facts: Facts, job_id: UUID, job: JobFacts, policies: Mapping[str, Policy]) -> None:
    """Judge all runs of a job: fences, ends, writes after the end, and counters."""
    runs = [job.runs[fence] for fence in sorted(job.runs)]
    _check_order(facts, job_id, runs)
    next_last, next_call, after = NEVER, None, None
    for run in reversed(runs):
        ends = job.ends_of(run, before_version=after.seen.version if after else NEVER)
        accepted = _certain(run, ends, after)
        _check_ends(facts, job_id, accepted)
        over = min([next_last, *(one.last for one in accepted)])
        proof = next((one.accepted for one in accepted if one.last == over), next_call)
        _check_writes(facts, job_id, run, over, proof)
        for end in accepted:
            if end.item.by_run and end.first > next_last:
                message = f"run {run.seen.fence} {end.item.event} after the next run had begun"
                facts.broke("takeover", message, end.accepted, next_call, job_id=job_id)
            _check_decision(facts, job_id, run, end)
        _check_budgets(facts, job_id, run, policies)
        if after and after.seen.fence == run.seen.fence + 1:
            _check_next(facts, job_id, job, run, after, accepted or ends)
        if run.last < next_last:
            next_last, next_call = run.last, run.call
        after = run
    if runs and runs[0].seen.fence == 1:
        _check_first(facts, job_id, job, runs[0])
    _check_stopped(facts, job_id, job, runs)


def _certain(
    run: RunFacts, ends: Sequence[ChangeFacts], after: RunFacts | None
) -> list[ChangeFacts]:
    """Those of the possible ends that were accepted, and are certainly of this run.

    What took a run away names a version of it. Where the next run is not known, that may be of
    a later one.
    """
    own = [one for one in ends if one.accepted and one.item.by_run]
    is_next = after is not None and after.seen.fence == run.seen.fence + 1
    if run.claim_id is None or (own and not is_next):
        return own
    start = run.seen.version
    return own + [
        one
        for one in ends
        if one.accepted and not one.item.by_run and start <= (one.item.version or 0)
    ]


def _check_order(facts: Facts, job_id: UUID, runs: Sequence[RunFacts]) -> None:
    for one, other in pairwise(runs):
        if other.last < one.first:
            message = f"the fence {other.seen.fence} was handed out before {one.seen.fence}"
            facts.broke("fence", message, other.call, one.call, job_id=job_id)
        if one.claim_id and other.claim_id and other.seen.version <= one.seen.version:
            message = f"version {other.seen.version} of run {other.seen.fence} is not a later one"
            facts.broke("fence", message, one.call, other.call, job_id=job_id)


def _check_ends(facts: Facts, job_id: UUID, accepted: Sequence[ChangeFacts]) -> None:
    for one, other in pairwise(accepted):
        message = f"a run was ended twice, {one.item.event} and {other.item.event}"
        facts.broke("one end", message, one.accepted, other.accepted, job_id=job_id)


def _check_writes(facts: Facts, job_id: UUID, run: RunFacts, over: int, proof: Call | None) -> None:
    if run.written is not None and run.written.first > over:
        message = f"run {run.seen.fence} was over, and its {run.written.verb} was accepted"
        facts.broke("takeover", message, proof, run.written, job_id=job_id)


# -- what follows a run -------------------------------------------------------------------------


def _check_next(
    facts: Facts,
    job_id: UUID,
    job: JobFacts,
    run: RunFacts,
    after: RunFacts,
    ends: Sequence[ChangeFacts],
) -> None:
    """Between two runs the first has ended; the second has the counters that this left."""
    possible = [end for end in ends if end.first < after.last]
    if not possible:
        message = f"run {after.seen.fence} began, and nobody had ended run {run.seen.fence}"
        facts.broke("one run", message, run.call, after.call, job_id=job_id)
        return
    redrives = [one for one in job.redrives if one.first < after.last]
    if all(end.item.to.is_terminal for end in possible) and not any(
        redrive.last > end.first for redrive in redrives for end in possible
    ):
        message = f"it was {possible[0].item.to}, and ran again without a redrive"
        facts.broke("terminal", message, possible[0].call, after.call, job_id=job_id)
        return
    items = [item for end in possible for item in end.items]
    left = [_counters(item) for item in items if not item.to.is_terminal]
    left += [(0, 0, 0)] * bool(redrives)
    seen = after.seen
    if (seen.attempt - 1, seen.crashes, seen.snoozes) not in left:
        message = f"run {seen.fence} has {_said(_counters(seen))}, {_said(left[0])} were left"
        facts.broke("counters", message, possible[0].call, after.call, job_id=job_id)
    elif not redrives and seen.priority not in {end.item.priority for end in possible}:
        message = f"run {seen.fence} has priority {seen.priority}, nobody asked for it"
        facts.broke("counters", message, possible[0].call, after.call, job_id=job_id)


def _check_first(facts: Facts, job_id: UUID, job: JobFacts, run: RunFacts) -> None:
    if not job.births:
        return
    call, item, _, first = job.births[0]
    used = {item.attempts_used + 1, 1} if job.redrives else {item.attempts_used + 1}
    seen = run.seen
    if seen.attempt not in used or (seen.crashes, seen.snoozes) != (0, 0):
        message = f"its first run has {_said(_counters(seen))}"
        facts.broke("counters", message, call, run.call, job_id=job_id)
    if seen.priority != item.priority:
        message = f"it was submitted with priority {item.priority}, and has {seen.priority}"
        facts.broke("counters", message, call, run.call, job_id=job_id)
    if run.last < first:
        message = "it ran before it was submitted"
        facts.broke("counters", message, run.call, call, job_id=job_id)


def _check_stopped(facts: Facts, job_id: UUID, job: JobFacts, runs: Sequence[RunFacts]) -> None:
    """What was stopped while it waited does not run without a redrive."""
    for end in job.terminal:
        if end.item.by_run or not end.accepted or not end.is_exact:
            continue
        later = [run for run in runs if run.claim_id and run.seen.version > end.version]
        if later and not any(
            one.first < later[0].last and one.last > end.first for one in job.redrives
        ):
            message = f"it was {end.item.to}, and ran again without a redrive"
            facts.broke("terminal", message, end.accepted, later[0].call, job_id=job_id)


def _counters(of: object) -> Counters:
    return (of.attempt, of.crashes, of.snoozes)  # type: ignore[attr-defined]  # of a run or a change


def _said(counters: Counters) -> str:
    attempt, crashes, snoozes = counters
    return f"attempt {attempt}, {crashes} crashes, {snoozes} snoozes"


# -- what a run's end costs ---------------------------------------------------------------------


def _check_decision(facts: Facts, job_id: UUID, run: RunFacts, end: ChangeFacts) -> None:
    """Hold an accepted end to the rules of `decide`."""
    item, seen = end.item, run.seen
    before, after = _counters(seen), _counters(item)
    attempt, crashes, snoozes = before
    given_back = (attempt - 1, crashes, snoozes)
    crashed = {given_back, (attempt - 1, crashes + 1, snoozes)}
    match item.event:
        case Event.SNOOZED:
            allowed = {(attempt - 1, crashes, snoozes + 1)}
        case Event.RELEASED:
            allowed = {given_back}
        case Event.CRASHED:
            allowed = crashed
        case Event.CANCELLED:
            allowed = {before} | crashed
        case Event.POISONED if item.reason == Reason.LEASE_EXPIRED:
            allowed = crashed
        case _:
            allowed = {before}
    if after not in allowed:
        message = f"a run of {_said(before)} {item.event} with {_said(after)}"
        facts.broke("counters", message, run.call, end.accepted, job_id=job_id)
    if item.by_run and seen.has_expired and item.event is not Event.CANCELLED:
        message = f"it was claimed after it had expired, and {item.event}"
        facts.broke("expiry", message, run.call, end.accepted, job_id=job_id)
    if item.by_run and item.reason == Reason.EXPIRED and not seen.has_expired:
        message = f"run {seen.fence} began in time, and was ended as Expired"
        facts.broke("expiry", message, run.call, end.accepted, job_id=job_id)
    if item.event is Event.RETRIED and attempt >= seen.max_attempts:
        message = f"it was retried after attempt {attempt} of {seen.max_attempts}"
        facts.broke("budget", message, run.call, end.accepted, job_id=job_id)
    if item.reason == Reason.ATTEMPTS_EXHAUSTED and attempt < seen.max_attempts:
        message = f"it was poisoned after attempt {attempt} of {seen.max_attempts}"
        facts.broke("budget", message, run.call, end.accepted, job_id=job_id)


def _check_budgets(
    facts: Facts, job_id: UUID, run: RunFacts, policies: Mapping[str, Policy]
) -> None:
    seen = run.seen
    most = policies.get(seen.job_type, DEFAULT_POLICY).max_snoozes
    if seen.attempt > seen.max_attempts:
        message = f"attempt {seen.attempt} of {seen.max_attempts} was begun"
        facts.broke("budget", message, run.call, job_id=job_id)
    if seen.snoozes > most:
        message = f"it was snoozed {seen.snoozes} times of {most}"
        facts.broke("budget", message, run.call, job_id=job_id)


# -- claims -------------------------------------------------------------------------------------


def check_claims(facts: Facts, claims: Sequence[ClaimFacts]) -> None:
    """Judge all calls of one claim id."""
    for claim in claims:
        if claim.call.is_certain:
            _check_asked_for(facts, claim)
    if len(claims) == 1:
        _check_claim_order(facts, claims[0])
        return
    for claim in claims:
        if claim.call.is_certain:
            _check_repeat(facts, claim, claims)


def _check_repeat(facts: Facts, claim: ClaimFacts, claims: Sequence[ClaimFacts]) -> None:
    call = claim.call
    others = [one for one in claims if one.call is not call and one.call.first < call.last]
    if any(one.call.last > call.first for one in others):
        return  # one under way beside it, or of unknown effect, may have started runs
    known = {run.token: run for one in others for run in one.runs}
    given = {run.token for run in claim.runs}
    for token, run in known.items():
        job = facts.jobs[run.job_id]
        ends = [end.first for end in job.ends_of(facts.runs[token])]
        if token not in given and min([*ends, facts.cleared_first]) > call.last:
            message = f"the claim was repeated, and run {run.fence}, still current, not given"
            facts.broke("claim", message, others[0].call, call, job_id=run.job_id)
    if given & known.keys() and given - known.keys():
        message = "the claim was repeated, and started runs beside its own"
        facts.broke("claim", message, others[0].call, call)


def _check_asked_for(facts: Facts, claim: ClaimFacts) -> None:
    limit = sum(max(0, request.limit) for request in claim.claim.requests)
    lanes = {(one.queue, kind) for one in claim.claim.requests for kind in one.job_types}
    if len(claim.runs) > limit:
        message = f"{len(claim.runs)} runs were given, where {limit} were asked for"
        facts.broke("claim", message, claim.call)
    for run in claim.runs:
        if (run.queue, run.job_type) not in lanes:
            message = f"a job of {run.queue}/{run.job_type} was given, which was not asked for"
            facts.broke("claim", message, claim.call, job_id=run.job_id)
        if run.waited_seconds is not None and run.waited_seconds < -_SAME_SECONDS:
            message = f"it was claimed {-run.waited_seconds:.3f} s before it was due"
            facts.broke("claim", message, claim.call, job_id=run.job_id)


def _check_claim_order(facts: Facts, claim: ClaimFacts) -> None:
    """Within a queue that one request names: priority, time due, id; and what the request said.

    Where groups take turns there, time due and id within a group and type, whichever came first.
    """
    queues = [request.queue for request in claim.claim.requests]
    for request in claim.claim.requests:
        if queues.count(request.queue) > 1:
            continue
        runs = [run for run in claim.runs if run.queue == request.queue]
        takes_turns = request.queue in facts.queues_in_turns and not request.suspects
        if not _are_in_order(runs, takes_turns=takes_turns):
            message = f"the runs of {request.queue} are not in the order of priority, time due, id"
            facts.broke("order", message, claim.call)
        for kind, most in request.at_most:
            if (given := sum(run.job_type == kind for run in runs)) > max(0, most):
                message = f"{given} runs of {kind} were given, where {most} were asked for"
                facts.broke("claim", message, claim.call)
        _check_suspects(facts, claim.call, runs, only=bool(request.suspects))


def _are_in_order(runs: Sequence[StartedRun], *, takes_turns: bool) -> bool:
    if not takes_turns:
        return not any(map(_is_after, runs, runs[1:]))
    lines: dict[tuple[str, ...], list[StartedRun]] = defaultdict(list)
    for run in runs:
        lines[run.tenant_id, run.group, run.job_type].append(run)
    return not any(map(_is_less_urgent, runs, runs[1:])) and all(
        _are_in_order(line, takes_turns=False) for line in lines.values()
    )


def _is_less_urgent(one: StartedRun, other: StartedRun) -> bool:
    return None not in (one.due_at, other.due_at) and one.priority > other.priority


def _is_after(one: StartedRun, other: StartedRun) -> bool:
    if one.due_at is None or other.due_at is None:
        return False  # read again, in any order
    if one.priority != other.priority:
        return one.priority > other.priority
    if one.due_at != other.due_at:
        return one.due_at > other.due_at + _SAME_SECONDS
    return one.job_id > other.job_id


def _check_suspects(facts: Facts, call: Call, runs: Iterable[StartedRun], *, only: bool) -> None:
    crashes = {min(run.crashes, MOST_CRASHES_COUNTED) for run in runs}
    if any((count >= SUSPECT_AFTER_CRASHES) is not only for count in crashes):
        facts.broke("claim", "suspects and others were not kept apart", call)
    elif only and len(crashes) > 1:
        facts.broke("claim", "suspects of different numbers of crashes were mixed", call)
