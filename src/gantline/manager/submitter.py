"""The submitter: the one way in. Checks a job, asks the switches and the caps, and stores it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from gantline.contract.clock import later
from gantline.contract.errors import (
    GantlineError,
    InvalidEnvelope,
    InvalidInput,
    Problem,
    StoreError,
    SubmitRefused,
)
from gantline.contract.job import Job, check_job, with_aware_instants
from gantline.contract.payload import DEFAULT_PAYLOAD_LIMIT, PayloadCheck, fingerprint
from gantline.contract.policy import Placement, Policy
from gantline.contract.results import Applied, InsertResult
from gantline.contract.status import Event
from gantline.contract.store import JobStore
from gantline.contract.submission import DedupeKey, NewJob
from gantline.contract.trace import sound_trace_context
from gantline.manager.admission import Admission, CapsOf, Lane, TakeBack, no_caps
from gantline.manager.batcher import Batcher
from gantline.manager.decide import bounded, placement_of
from gantline.manager.observer import Observer, notify
from gantline.manager.switches import Switches

_log = logging.getLogger("gantline.manager")

_BATCH: Final = 500
NO_DELAY: Final = timedelta(0)

Put = Callable[[Any, NewJob], Awaitable[InsertResult]]


class Submission(msgspec.Struct, frozen=True):
    """A job to be submitted, and what does not belong into its envelope."""

    job: Job
    delay: timedelta = NO_DELAY
    request_key: DedupeKey | None = None
    data: Any = msgspec.UNSET
    """The payload's plain data, where the payload was made of it here: it is not read again."""


class Submitter:
    """Every new job is stored here, whichever way it comes. One a process.

    A submit may be refused: StoreClosed, JobTypeDisabled, QueueFull. What follows from an
    accepted job is not refused: its follow-ups, its way out of the outbox, its deliveries.
    """

    def __init__(
        self,
        store: JobStore,
        *,
        switches: Switches,
        policy_for: Callable[[str], Policy],
        observer: Observer,
        caps_of: CapsOf = no_caps,
        payload_limit: int = DEFAULT_PAYLOAD_LIMIT,
        payload_check: PayloadCheck | None = None,
        stored: Callable[[UUID], None] = lambda job_id: None,
    ) -> None:
        """`stored` is called with one of the jobs when there are new ones, to wake workers."""
        self._store = store
        self._switches = switches
        self._policy_for = policy_for
        self._observer = observer
        self._admission = Admission(store, switches, caps_of=caps_of)
        self._payload_limit = payload_limit
        self._payload_check = payload_check
        self._stored = stored
        self._batchers: dict[
            asyncio.AbstractEventLoop, Batcher[NewJob, InsertResult | GantlineError]
        ] = {}

    # -- checking ---------------------------------------------------------------------------------

    def prepare(self, submission: Submission) -> NewJob:
        """Check a job, and set its delay and priority; raise InvalidInput. For follow-ups too."""
        job = with_aware_instants(submission.job)
        if job.trace_context is not None:
            trace = sound_trace_context(job.trace_context)
            job = msgspec.structs.replace(job, trace_context=trace)
        data = check_job(job, payload_limit=self._payload_limit, data=submission.data)
        if self._payload_check and (reason := self._payload_check(job.job_type, job.data())):
            raise InvalidInput(f"The payload was refused: {reason}.")
        asked = Placement(_delay_asked(job, submission.delay), job.priority)
        policy = self._policy_for(job.job_type)
        placed = placement_of(policy, job, asked)
        if placed != asked:
            # The strategy has the last word, also over an instant that the submitter named.
            at = job.scheduled_at if placed.delay == asked.delay else None
            job = msgspec.structs.replace(job, scheduled_at=at, priority=placed.priority)
        if job.expires_at is not None:
            _check_expiry(job.expires_at, later(job.created_at, placed.delay))
        key = fingerprint(data, job.payload_version)
        is_logged = Event.SUBMITTED in policy.events
        return NewJob(job, key, placed.delay, submission.request_key, is_logged)

    def prepare_or_error(self, submission: Submission) -> NewJob | GantlineError:
        """The same for one of many, where the others shall not be harmed."""
        try:
            return self.prepare(submission)
        except GantlineError as error:
            return error
        except Exception as error:
            # A check or a strategy of the user's own broke: refuse this job, and this one only.
            _log.exception("job %s could not be checked", submission.job.job_id)
            return InvalidInput(f"The job could not be checked ({type(error).__name__}).")

    # -- storing ----------------------------------------------------------------------------------

    async def submit(
        self, new: NewJob, *, connection: Any = None, put: Put | None = None
    ) -> InsertResult:
        """Store one together with those of other callers who come at the same time.

        With `connection` it is stored in the caller's transaction; by `put`, where the store has no
        part in that.
        """
        try:
            take_back = await self._admission.check(Lane.of(new))
        except SubmitRefused:
            if not any(await self._were_accepted([new])):
                raise
            take_back = None
        answer: InsertResult | GantlineError
        if connection is None:
            answer = await self._batcher().add(new)
        elif put is not None:
            answer = await put(connection, new)
        else:
            (answer,) = await self._store.insert_in(connection, [new])
            notify(self._observer.submitted, [new], [answer])
        _uncount(take_back, answer)
        if isinstance(answer, GantlineError):
            raise answer
        return answer

    async def submit_all(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Store many; where one type or queue has no room for its share, none of them."""
        lanes = Counter(map(Lane.of, jobs))
        take_back = {
            lane: await self._admission.check(lane, jobs=number) for lane, number in lanes.items()
        }
        answers = await self._insert_many(jobs)
        if any(take_back.values()):
            for new, answer in zip(jobs, answers, strict=True):
                _uncount(take_back[Lane.of(new)], answer)
        return _results(answers)

    async def submit_each(self, jobs: Sequence[NewJob]) -> list[InsertResult | GantlineError]:
        """Store many, each on its own: what is refused does not harm the others."""
        admitted = await self._admit_each(jobs)
        passed = [
            (new, take_back)
            for new, take_back in zip(jobs, admitted, strict=True)
            if not isinstance(take_back, SubmitRefused)
        ]
        answers = await self._insert_many([new for new, _ in passed])
        for (_, take_back), answer in zip(passed, answers, strict=True):
            _uncount(take_back, answer)
        stored = iter(answers)
        return [one if isinstance(one, SubmitRefused) else next(stored) for one in admitted]

    async def insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Store what may not be refused, for it follows from what was accepted."""
        return _results(await self._insert_many(jobs))

    async def insert_moved(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Store what leaves an outbox, where it can stay while the store is closed."""
        await self._switches.refuse_if_closed()
        return await self.insert(jobs)

    async def drained(self) -> None:
        """Wait until all that callers handed in is written."""
        for batcher in list(self._batchers.values()):
            await batcher.drained()

    async def _admit_each(self, jobs: Sequence[NewJob]) -> list[TakeBack | SubmitRefused | None]:
        admitted: list[TakeBack | SubmitRefused | None] = []
        refused: list[int] = []
        for index, new in enumerate(jobs):
            try:
                admitted.append(await self._admission.check(Lane.of(new)))
            except SubmitRefused as error:
                admitted.append(error)
                refused.append(index)
        known = await self._were_accepted([jobs[index] for index in refused])
        for index, was_accepted in zip(refused, known, strict=True):
            if was_accepted:
                admitted[index] = None
        return admitted

    async def _were_accepted(self, jobs: Sequence[NewJob]) -> list[bool]:
        """Whether each one, or another with a key of its, is in the store already."""
        if not jobs:
            return []
        named = [new.job.external_id or new.job.job_id for new in jobs]
        known = await self._store.get(named, tenant_id=None)
        keys = list(dict.fromkeys(key for new in jobs for key in new.keys))
        holders = dict(zip(keys, await self._store.held(keys), strict=True))
        return [
            any(holders[key] is not None for key in new.keys)
            or (job is not None and job.job.tenant_id == new.job.tenant_id)
            for new, job in zip(jobs, known, strict=True)
        ]

    def _batcher(self) -> Batcher[NewJob, InsertResult | GantlineError]:
        loop = asyncio.get_running_loop()
        if (batcher := self._batchers.get(loop)) is None:
            batcher = self._batchers[loop] = Batcher(self._insert)
        return batcher

    async def _insert_many(self, jobs: Sequence[NewJob]) -> list[InsertResult | GantlineError]:
        """Two batches at a time: while one is being committed, the next is being sent."""
        turn = asyncio.Semaphore(2)

        async def insert(batch: Sequence[NewJob]) -> list[InsertResult | GantlineError]:
            async with turn:
                return await self._insert(batch)

        batches = [jobs[start : start + _BATCH] for start in range(0, len(jobs), _BATCH)]
        answered = await asyncio.gather(*map(insert, batches))
        return [answer for answers in answered for answer in answers]

    async def _insert(self, jobs: Sequence[NewJob]) -> list[InsertResult | GantlineError]:
        """Insert together; where the store cannot take one of them, one by one."""
        try:
            answers = await self._store.insert(jobs)
        except StoreError:
            raise
        except Exception as error:
            if len(jobs) > 1:
                return [answer for new in jobs for answer in await self._insert([new])]
            _log.exception("the store cannot take job %s", jobs[0].job.job_id)
            return [InvalidInput(f"The store cannot take this job ({type(error).__name__}).")]
        notify(self._observer.submitted, jobs, answers)
        self._stored(jobs[0].job.job_id)
        return list(answers)


def _delay_asked(job: Job, delay: timedelta) -> timedelta:
    at = job.scheduled_at
    return bounded(delay if at is None else at - job.created_at)


def _check_expiry(expires_at: datetime, due_at: datetime) -> None:
    if expires_at <= due_at:
        detail = (
            f"is {expires_at.isoformat()}, and the job is first due at {due_at.isoformat()}, so it "
            "would never start; let it expire later, or be due sooner"
        )
        raise InvalidEnvelope([Problem("#/expiresAt", detail)])


def _results(answers: Sequence[InsertResult | GantlineError]) -> list[InsertResult]:
    """What the store said to each; raise what it said to one that it cannot take."""
    results = [answer for answer in answers if not isinstance(answer, GantlineError)]
    if len(results) < len(answers):
        raise next(answer for answer in answers if isinstance(answer, GantlineError))
    return results


def _uncount(take_back: TakeBack | None, answer: InsertResult | GantlineError) -> None:
    """What is not stored does not count against a cap."""
    if take_back is not None and not isinstance(answer, Applied):
        take_back()
