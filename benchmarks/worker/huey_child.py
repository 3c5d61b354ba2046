"""huey on SQLite: `python -m benchmarks.worker.huey_child PATH (fill N | drain THREADS) SYNC`."""

import sys
from importlib import import_module
from typing import Any

from benchmarks.contest import meter


def main() -> None:
    path, what, number, sync = sys.argv[1:]
    module: Any = import_module("huey")  # not among our own dependencies
    # In WAL mode, huey's default. Unsynced means `synchronous = off`: a power cut loses jobs.
    huey = module.SqliteHuey("bench", filename=path, results=False, fsync=sync == "synced")
    started: list[None] = []

    @huey.task(name="no_op")  # type: ignore[untyped-decorator]  # huey has no types
    def no_op(invoice: dict[str, Any]) -> None:
        started.append(None)

    if what == "fill":
        for _ in range(int(number)):
            no_op(meter.INVOICE)
        return
    consumer = huey.create_consumer(
        workers=int(number), periodic=False, initial_delay=0.001, check_worker_health=False
    )
    meter.wait_for_go()
    meter.watch(lambda: len(started))
    consumer.run()


if __name__ == "__main__":
    main()
