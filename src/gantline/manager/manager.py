"""JobManager: the one owner of the lifecycle, over any store. Every operation takes many."""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from gantline.contract.errors import (
    Code,
    GantlineError,
    IllegalTransition,
    JobNotFound,
    KeyTaken,
    StoreUnavailable,
    SubmitConflict,
    VersionMismatch,
)
from gantline.contract.outcome import ErrorInfo, Failure, Outcome, Snoozed, Success
from gantline.contract.payload import DEFAULT_PAYLOAD_LIMIT, PayloadCheck
from gantline.contract.policy import DEFAULT_POLICY, Policy
from gantline.contract.query import LaneRequest
from gantline.contract.results import (
    Applied,
    ApplyResult,
    CancelPending,
    Conflict,
    DeleteResult,
    Duplicate,
    InsertResult,
    NotFound,
    ProgressResult,
    Renewal,
    Stale,
)
from gantline.contract.snapshot import JobSnapshot, Progress, Run, RunRef
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.submission import KeyKind, NewJob, external_key
from gantline.contract.text import LABEL_LIMIT, storable
from gantline.contract.transition import StateGuard, Transition
from gantline.manager.admission import CapsOf, no_caps
from gantline.manager.decide import decide, decide_cancel, decide_expiry, decide_redrive
from gantline.manager.observer import Observer, notify
from gantline.manager.submitter import Submission, Submitter
from gantline.manager.switches import Switches
from gantline.runtime import random

_log = logging.getLogger("gantline.manager")

# An operator's write is decided on what was read; when the job moved meanwhile it is decided
# again. A job would have to move this often between two calls for the operator to lose.
_DECISION_ROUNDS: Final = 10


class Submitted(msgspec.Struct, frozen=True):
    """A job that is durably stored; `duplicate` when it was there before."""

    job_id: UUID
    duplicate: bool = False


class Ending(msgspec.Struct, frozen=True):
    """A run and how it ended; `seconds` is how long its handler took, where that is known."""

    run: Run
    outcome: Outcome
    seconds: float | None = None


class Settled(msgspec.Struct, frozen=True):
    """What was decided about a run, and what the store said to it."""

    transition: Transition
    result: ApplyResult

    @property
    def accepted(self) -> bool:
        return isinstance(self.result, Applied)


class Acted(msgspec.Struct, frozen=True):
    """Where an operator's action left the job; `changed` is False when it was there already."""

    job_id: UUID
    status: JobStatus
    version: int
    changed: bool


class JobManager:
    """Submit, claim, settle, cancel, redrive and read jobs. Decides; never names a database."""

    def __init__(
        self,
        store: JobStore,
        *,
        policy_for: Callable[[str], Policy] = lambda job_type: DEFAULT_POLICY,
        caps_of: CapsOf = no_caps,
        payload_limit: int = DEFAULT_PAYLOAD_LIMIT,
        payload_check: PayloadCheck | None = None,
        jitter: Callable[[], float] = random,
        observer: Observer | None = None,
        switches: Switches | None = None,
        stored: Callable[[UUID], None] = lambda job_id: None,
        changed: Callable[[Iterable[UUID]], None] = lambda job_ids: None,
        gate_to_close: Callable[[str, str], str] = lambda job_type, named: "",
    ) -> None:
        """`changed` is given the ids of jobs that were written.

        `gate_to_close`: of a throttled run, given its type and the gate that it names, if any.
        """
        self._store = store
        self.switches = switches or Switches(store)
        self._observer = observer or Observer()
        self._policy_for = policy_for
        self._jitter = jitter
        self._changed = changed
        self._gate_to_close = gate_to_close
        self.submitter = Submitter(
            store,
            switches=self.switches,
            policy_for=policy_for,
            observer=self._observer,
            caps_of=caps_of,
            payload_limit=payload_limit,
            payload_check=payload_check,
            stored=stored,
        )

    # -- submitting -------------------------------------------------------------------------------

    async def submit(self, submissions: Sequence[Submission]) -> list[Submitted | GantlineError]:
        """Store jobs durably. One that is refused is answered with its error and harms no other.

        Here and below: raise StoreClosed while nothing may change.
        """
        await self.switches.refuse_if_closed()
        prepared = [self.submitter.prepare_or_error(submission) for submission in submissions]
        ready = [new for new in prepared if isinstance(new, NewJob)]
        answers = iter(await self.submitter.submit_each(ready))
        return [
            _submit_answer(new.job.job_id, next(answers)) if isinstance(new, NewJob) else new
            for new in prepared
        ]

    # -- running ----------------------------------------------------------------------------------

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        """Start runs of due jobs for a session; see `JobStore.claim`."""
        runs = await self._store.claim(
            storable(session, LABEL_LIMIT), claim_id, requests, lease=lease
        )
        self._changed(run.job.job_id for run in runs)
        notify(self._observer.claimed, runs)
        return runs

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        return await self._store.renew(storable(session, LABEL_LIMIT), runs, lease=lease)

    async def progress(self, updates: Sequence[Progress]) -> list[ProgressResult]:
        results = await self._store.progress([shown(update) for update in updates])
        self._changed(update.run.job_id for update in updates)
        return results

    async def settle(self, endings: Sequence[Ending]) -> list[Settled]:
        """Decide and write what follows from ended runs.

        A run that is no longer current is answered Stale, and nothing of it is written.
        """
        settled = await self._settle_once(endings)
        again = [
            (index, changed)
            for index, (ending, answer) in enumerate(zip(endings, settled, strict=True))
            if not isinstance(answer.result, Applied)  # as nearly all are
            and (changed := _reconsidered(ending, answer.result)) is not None
        ]
        if again:
            second = await self._settle_once([ending for _, ending in again])
            for (index, _), answer in zip(again, second, strict=True):
                settled[index] = answer
        notify(self._observer.settled, endings, settled)
        return settled

    def decide(self, ending: Ending) -> Transition:
        """Say what follows from an ended run, by the policy of its type."""
        run = ending.run
        try:
            policy = self._policy_for(run.job.job_type)
            # Nothing waits after a success, and most runs end so.
            # Nothing waits after a success, and most runs end so.
            if isinstance(ending.outcome, Success):
                return decide(run, ending.outcome, policy, jitter=0.0)
            outcome = self._throttled(run.job.job_type, ending.outcome)
            return decide(run, outcome, policy, jitter=self._jitter())
        except BaseException:
            # A strategy of the user's own broke: no reason to lose what this run has done.
            _log.exception("the policy of %s failed; using the default", run.job.job_type)
            return decide(run, ending.outcome, DEFAULT_POLICY, jitter=self._jitter())

    def _throttled(self, job_type: str, outcome: Outcome) -> Outcome:
        """With the gate that a throttled run closes; a 429 is one, where the type has a gate."""
        match outcome:
            case Snoozed(closes=str(named)):
                gate = self._gate_to_close(job_type, named)
                return Snoozed(outcome.delay, gate)
            case Failure(too_many=True, retry_after=timedelta() as delay):
                gate = self._gate_to_close(job_type, "")
                return Snoozed(delay, gate) if gate else outcome
            case _:
                return outcome

    async def _settle_once(self, endings: Sequence[Ending]) -> list[Settled]:
        """Settle together; where the store cannot take one of them, one by one.

        What a run wants to write may be beyond a store: then the run has failed, and no other.
        """
        try:
            return await self._apply([self.decide(ending) for ending in endings])
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(endings) > 1:
                return [one for ending in endings for one in await self._settle_once([ending])]
            run = endings[0].run
            _log.exception("the store cannot take what job %s wants to write", run.job.job_id)
            message = "The store cannot take what the job wants to write."
            failure = Failure(
                ErrorInfo(Code.VALIDATION_ERROR, message, repr(error)), retryable=False
            )
            return await self._apply([self.decide(Ending(run, failure))])

    async def _apply(self, transitions: list[Transition]) -> list[Settled]:
        results = await self._store.apply(transitions) if transitions else []
        self._changed(one.job_id for one in transitions)
        return [Settled(one, result) for one, result in zip(transitions, results, strict=True)]

    # -- reading and operating --------------------------------------------------------------------

    async def get(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None
    ) -> list[JobSnapshot | None]:
        """Read jobs of a tenant by their ids or external ids. Here and below, ids are either.

        Across tenants (None) an external id finds nothing: several may have the same.
        """
        found = await self._store.get(job_ids, tenant_id=tenant_id)
        if tenant_id is None or None not in found:
            return found
        missing = [index for index, job in enumerate(found) if job is None]
        keys = [external_key(tenant_id, job_ids[index]) for index in missing]
        holders = zip(missing, await self._store.held(keys), strict=True)
        named = {index: job_id for index, job_id in holders if job_id is not None}
        jobs = await self._store.get([*named.values()], tenant_id=tenant_id) if named else ()
        for index, job in zip(named, jobs, strict=True):
            found[index] = job
        return found

    async def cancel(
        self,
        job_ids: Sequence[UUID],
        *,
        tenant_id: str | None,
        actor: str,
        version: int | None = None,
    ) -> list[Acted | GantlineError]:
        """Cancel jobs: at once where Queued, by asking the run where Running."""
        decision = partial(decide_cancel, actor=actor, version=version)
        return await self._act(job_ids, decision, tenant_id=tenant_id, version=version)

    async def redrive(
        self,
        job_ids: Sequence[UUID],
        *,
        tenant_id: str | None,
        actor: str,
        version: int | None = None,
    ) -> list[Acted | GantlineError]:
        """Queue ended jobs again, same id and history; KeyTaken where another has a job's key."""
        decision = partial(decide_redrive, actor=actor)
        answers = await self._act(job_ids, decision, tenant_id=tenant_id, version=version)
        taken = [one for one in zip(job_ids, answers, strict=True) if isinstance(one[1], KeyTaken)]
        for job_id, answer in taken:
            answers[answers.index(answer)] = KeyTaken(await self._find_holder(job_id))
        return answers

    async def _find_holder(self, job_id: UUID) -> UUID | None:
        (job,) = await self.get([job_id], tenant_id=None)
        key = job and NewJob(job.job, b"").job_key
        return (await self._store.held([key]))[0] if key else None

    async def expire(self, *, limit: int) -> int:
        """Cancel jobs whose `expires_at` is over before they were started; return how many."""
        job_ids = await self._store.past_expiry(limit=limit)
        if not job_ids:
            return 0
        acted = await self._act(job_ids, decide_expiry, tenant_id=None, version=None)
        return sum(isinstance(one, Acted) and one.changed for one in acted)

    async def delete(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None, version: int | None = None
    ) -> list[Applied | GantlineError]:
        """Remove ended jobs and all that is known of them; where given, only in this version."""
        await self.switches.refuse_if_closed()
        jobs = await self.get(job_ids, tenant_id=tenant_id)
        ended = {job.job.job_id: job for job in jobs if job and job.status.is_terminal}.values()
        guards = [
            (job.job.job_id, StateGuard(job.status, job.job.tenant_id, version or job.version))
            for job in ended
        ]
        deleted = await self._store.delete(guards) if guards else []
        self._changed(job_id for job_id, _ in guards)
        answers = dict(zip((job_id for job_id, _ in guards), deleted, strict=True))
        return [
            _delete_answer(job_id, job, answers.get(job.job.job_id) if job else None)
            for job_id, job in zip(job_ids, jobs, strict=True)
        ]

    async def _act(
        self,
        job_ids: Sequence[UUID],
        decision: Callable[[JobSnapshot], Transition | None],
        *,
        tenant_id: str | None,
        version: int | None,
    ) -> list[Acted | GantlineError]:
        await self.switches.refuse_if_closed()
        answers: dict[UUID, Acted | GantlineError] = {}
        open_ids = list(dict.fromkeys(job_ids))
        for _ in range(_DECISION_ROUNDS):
            jobs = await self.get(open_ids, tenant_id=tenant_id)
            transitions, changing, named = [], [], []
            for job_id, job in zip(open_ids, jobs, strict=True):
                decided = _decided(job_id, job, decision, version)
                if isinstance(decided, Transition) and job is not None:
                    transitions.append(decided)
                    changing.append(job)
                    named.append(job_id)
                elif not isinstance(decided, Transition):
                    answers[job_id] = decided
            acted = await self._apply(transitions)
            notify(self._observer.acted, changing, acted)
            for job_id, settled in zip(named, acted, strict=True):
                answer = _action_answer(settled)
                if answer is not None:
                    answers[job_id] = answer
            open_ids = [job_id for job_id in open_ids if job_id not in answers]
            if not open_ids:
                break
        return [answers.get(job_id, _moving_target()) for job_id in job_ids]


def _submit_answer(job_id: UUID, result: InsertResult | GantlineError) -> Submitted | GantlineError:
    match result:
        case GantlineError():
            return result
        case Applied():
            return Submitted(job_id)
        case Duplicate():
            return Submitted(result.existing, duplicate=True)
        case Conflict():
            return SubmitConflict.of(result.by)


def shown(update: Progress) -> Progress:
    """Make it what a status can show."""
    percent = min(100.0, max(0.0, update.percent))  # NaN becomes 0
    return Progress(update.run, percent, storable(update.phase, LABEL_LIMIT), update.logged)


def _reconsidered(ending: Ending, result: ApplyResult) -> Ending | None:
    """The same ending with what the store's refusal taught us, if that changes the decision."""
    match result:
        case CancelPending():
            run = msgspec.structs.replace(ending.run, cancel_requested=True)
            return Ending(run, ending.outcome, ending.seconds)
        case Conflict():
            what = "follow-up job" if isinstance(result.by, KeyKind | None) else "record"
            message = f"A {what} of this job clashes with something that exists."
            error = ErrorInfo(Code.FOLLOW_UP_CONFLICT, message, f"conflict by {result.by}")
            return Ending(ending.run, Failure(error, retryable=False), ending.seconds)
        case _:
            return None


def _decided(
    job_id: UUID,
    job: JobSnapshot | None,
    decision: Callable[[JobSnapshot], Transition | None],
    version: int | None,
) -> Transition | Acted | GantlineError:
    if job is None:
        return JobNotFound(job_id)
    if version is not None and job.version != version:
        return VersionMismatch(
            f"The job is at version {job.version}, not {version}.", next_step="Read it again."
        )
    try:
        transition = decision(job)
    except IllegalTransition as error:
        return error
    return transition or Acted(job_id, job.status, job.version, changed=False)


def _action_answer(settled: Settled) -> Acted | GantlineError | None:
    """None means the job moved meanwhile: decide again."""
    transition = settled.transition
    match settled.result:
        case Applied(version):
            return Acted(transition.job_id, transition.to, version, changed=True)
        case NotFound():
            return JobNotFound(transition.job_id)
        case Conflict():
            return KeyTaken(None)
        case Stale() | CancelPending():
            return None


def _moving_target() -> GantlineError:
    return VersionMismatch("The job kept changing.", next_step="Try again.")


def _delete_answer(
    job_id: UUID, job: JobSnapshot | None, result: DeleteResult | None
) -> Applied | GantlineError:
    match result:
        case Applied():
            return result
        case None if job is not None:
            return IllegalTransition(
                f"A job that is {job.status} cannot be deleted.", next_step="Cancel it first."
            )
        case Stale():
            return _moving_target()
        case _:
            return JobNotFound(job_id)
