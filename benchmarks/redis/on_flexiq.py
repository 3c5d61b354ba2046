"""FlexiQ, whose core is Rust. It acknowledges with the result, so at least once.

Its default is to be told of new jobs; of those that are there already it then takes eight each two
seconds. Polls each millisecond with big batches drain fastest, and find a new job as soon.
"""

import os
from importlib import import_module
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE

_BATCH: Final = 256
_AT_ONCE: Final = 1_000


class Contender(contender.Contender):
    """With async handlers and big batches."""

    is_blocking = True

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        os.environ["FLEXIQ_LOG_LEVEL"] = "WARNING"  # else two lines for every job
        self._queue: Any = import_module("flexiq").Queue(
            backend="redis",
            db_url=url,
            workers=4,
            async_concurrency=200,
            scheduler_batch_size=_BATCH,
            scheduler_poll_interval_ms=1,
            push_dispatch=False,
        )

        @self._queue.task(name="no_op")  # type: ignore[untyped-decorator]  # read without its types
        async def no_op(invoice: dict[str, Any]) -> None:
            self.note_done()

        @self._queue.task(name="timed")  # type: ignore[untyped-decorator]  # read without its types
        async def timed(submitted_ns: int) -> None:
            self.note_delay(submitted_ns)

    async def submit(self) -> None:
        self._queue.enqueue("no_op", (INVOICE,))

    async def submit_many(self, jobs: int) -> None:
        for some in contender.portions(jobs, _AT_ONCE):
            self._queue.enqueue_many("no_op", [(INVOICE,)] * some)

    async def submit_moment(self, submitted_ns: int) -> None:
        self._queue.enqueue("timed", (submitted_ns,))

    async def work(self, slots: int) -> None:
        self._queue.run_worker()
