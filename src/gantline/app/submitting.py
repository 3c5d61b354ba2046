"""How prepared jobs get into the store: past switches and caps, many callers in one write."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from gantline.contract.errors import GantlineError, SubmitRefused
from gantline.contract.results import Applied, InsertResult
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.contract.wakeup import Wakeup
from gantline.manager.admission import Admissible, Admission, Counted
from gantline.manager.observer import Observer, tell
from gantline.manager.switches import Switches
from gantline.worker.batcher import Batcher

if TYPE_CHECKING:
    from gantline.app.outbox import Outbox

_BATCH: Final = 500


class Submitting:
    """The one way in. What is not stored does not count against the cap of its queue."""

    def __init__(
        self,
        store: JobStore,
        *,
        admission: Admission,
        switches: Switches,
        observer: Observer,
        wakeup: Wakeup,
    ) -> None:
        self._store = store
        self._admission = admission
        self._switches = switches
        self._observer = observer
        self._wakeup = wakeup
        self._batchers: dict[asyncio.AbstractEventLoop, Batcher[NewJob, InsertResult]] = {}

    async def one(self, job_type: Admissible, new: NewJob) -> InsertResult:
        """Store one together with those of other callers who come at the same time."""
        counted = await self._check(job_type, new)
        answer = await self._batcher().add(new)
        _take_back(counted, answer)
        return answer

    async def one_in(
        self, connection: Any, job_type: Admissible, new: NewJob, *, outbox: "Outbox | None"
    ) -> InsertResult:
        """Store one in the caller's transaction."""
        counted = await self._check(job_type, new)
        if outbox is not None:
            answer = await outbox.put(connection, new)
        else:
            (answer,) = await self._store.insert_in(connection, [new])
            tell(self._observer.submitted, [new], [answer])
        _take_back(counted, answer)
        return answer

    async def many(self, job_type: Admissible, jobs: list[NewJob]) -> list[InsertResult]:
        """Store many of one type; where one queue is full, nothing."""
        counted = {
            queue: await self._admission.check(
                job_type.name, queue=queue, jobs=number, max_depth=job_type.max_depth
            )
            for queue, number in Counter(new.job.queue for new in jobs).items()
        }
        answers = await self.past_the_switches(jobs)
        for new, answer in zip(jobs, answers, strict=True):
            _take_back(counted[new.job.queue], answer)
        return answers

    async def each(
        self, jobs: Sequence[tuple[Admissible, NewJob]]
    ) -> list[InsertResult | GantlineError]:
        """Store many, each on its own: what is refused does not harm the others."""
        refused: dict[int, GantlineError] = {}
        admitted: list[NewJob] = []
        counted: list[Counted | None] = []
        for index, (job_type, new) in enumerate(jobs):
            try:
                counted.append(await self._check(job_type, new))
                admitted.append(new)
            except SubmitRefused as error:
                refused[index] = error
        stored = await self.past_the_switches(admitted)
        for one, answer in zip(counted, stored, strict=True):
            _take_back(one, answer)
        answers = iter(stored)
        return [refused.get(index) or next(answers) for index in range(len(jobs))]

    async def past_the_switches(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Two batches at a time: while one is being committed, the next is being sent."""
        turn = asyncio.Semaphore(2)

        async def insert(batch: Sequence[NewJob]) -> Sequence[InsertResult]:
            async with turn:
                return await self._insert(batch)

        batches = [jobs[start : start + _BATCH] for start in range(0, len(jobs), _BATCH)]
        answered = await asyncio.gather(*map(insert, batches))
        return [answer for answers in answered for answer in answers]

    async def moved(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Jobs that leave the outbox, where they can stay while the store is closed."""
        await self._switches.refuse_if_closed()
        return await self._insert(jobs)

    async def drained(self) -> None:
        """Wait until all that callers handed in is written."""
        for batcher in list(self._batchers.values()):
            await batcher.drained()

    async def _check(self, job_type: Admissible, new: NewJob) -> Counted | None:
        """Raise what `check` raises, but not for a job that was accepted before."""
        try:
            return await self._admission.check(
                job_type.name, queue=new.job.queue, jobs=1, max_depth=job_type.max_depth
            )
        except SubmitRefused:
            (known,) = await self._store.get([new.job.job_id], tenant_id=new.job.tenant_id)
            if known is None and not any(await self._store.held(new.keys)):
                raise
            return None

    def _batcher(self) -> Batcher[NewJob, InsertResult]:
        loop = asyncio.get_running_loop()
        if loop not in self._batchers:
            self._batchers[loop] = Batcher(self._insert)
        return self._batchers[loop]

    async def _insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        answers = await self._store.insert(jobs)
        tell(self._observer.submitted, jobs, answers)
        self._wakeup.notify(job_id=jobs[0].job.job_id)
        return answers


def _take_back(counted: Counted | None, answer: InsertResult) -> None:
    if counted is not None and not isinstance(answer, Applied):
        counted.take_back(1)
