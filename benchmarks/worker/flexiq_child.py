"""FlexiQ on SQLite: `python -m benchmarks.worker.flexiq_child PATH (fill N | drain 0)`.

Its defaults claim one job per 50 ms poll. A poll of 1 ms with big batches and async handlers
drained fastest; event-driven dispatch did not start on jobs that were there before the worker.
"""

import os
import sys
from importlib import import_module
from typing import Any

from benchmarks.contest import meter


def main() -> None:
    path, what, number = sys.argv[1:]
    os.environ["FLEXIQ_LOG_LEVEL"] = "WARNING"  # else two lines for every job
    module: Any = import_module("flexiq")  # not among our own dependencies
    queue = module.Queue(
        path,
        workers=4,
        async_concurrency=200,
        scheduler_batch_size=256,
        scheduler_poll_interval_ms=1,
    )
    started: list[None] = []

    @queue.task(name="no_op")  # type: ignore[untyped-decorator]  # read without its types
    async def no_op(invoice: dict[str, Any]) -> None:
        started.append(None)

    if what == "fill":
        queue.enqueue_many("no_op", [(meter.INVOICE,)] * int(number))
        return
    meter.wait_for_go()
    meter.watch(lambda: len(started))
    queue.run_worker()


if __name__ == "__main__":
    main()
