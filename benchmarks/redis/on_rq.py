"""RQ. What a dead worker had is put back if the job may be tried again, so it is told to: at least
once then. Its SimpleWorker runs jobs without a fork for each, which is more than twice as fast."""

from importlib import import_module
from typing import Any, ClassVar, Final

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE

_AT_ONCE: Final = 1_000


class Contender(contender.Contender):
    """Without results. A worker runs one job at a time."""

    is_blocking = True
    current: ClassVar[Any] = None
    """The one of this process: a job is a function that RQ finds by its name."""

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        self._module: Any = import_module("rq")
        self._connection = import_module("redis").Redis.from_url(url)
        self._queue = self._module.Queue(connection=self._connection)
        self._options = {"retry": self._module.Retry(max=3), "result_ttl": 0}
        Contender.current = self

    async def submit(self) -> None:
        self._queue.enqueue(no_op, INVOICE, **self._options)

    async def submit_many(self, jobs: int) -> None:
        prepare = self._module.Queue.prepare_data
        for some in contender.portions(jobs, _AT_ONCE):
            jobs_data = [prepare(no_op, (INVOICE,), **self._options) for _ in range(some)]
            self._queue.enqueue_many(jobs_data)

    async def submit_moment(self, submitted_ns: int) -> None:
        self._queue.enqueue(timed, submitted_ns, **self._options)

    async def work(self, slots: int) -> None:
        worker = self._module.SimpleWorker([self._queue], connection=self._connection)
        worker.work(logging_level="WARNING")


def no_op(invoice: dict[str, Any]) -> None:
    Contender.current.note_done()


def timed(submitted_ns: int) -> None:
    Contender.current.note_delay(submitted_ns)
