"""The worker that is measured: `python -m benchmarks.steady.child URL MINUTES RETENTION_SECONDS`.

Prints how many jobs are done after every minute. It submits what it runs, in bulk, so that there is
always enough. Without a retention nothing is removed.
"""

import asyncio
import sys
from datetime import timedelta
from typing import Final

from benchmarks.contest import meter
from benchmarks.contest.on_gantline import Contender
from gantline import StorageSettings
from gantline.cli.process import run_tuned
from gantline.contract.retention import Retention
from gantline.manager.observer import Observer
from gantline.worker.settings import WorkerSettings
from gantline.worker.upkeep import maintain_for_ever
from gantline.worker.worker import Worker

_MINUTE_SECONDS: Final = 60.0
_SLOTS: Final = 500
_AT_ONCE: Final = 2_000
_WAITING_JOBS: Final = 10_000
_LEASE: Final = timedelta(seconds=60)
_FOR_EVER: Final = timedelta(days=1000)


def main() -> None:
    url, minutes, retention = sys.argv[1:]
    kept_for = timedelta(seconds=float(retention)) if float(retention) else _FOR_EVER
    meter.wait_for_go()
    run_tuned(_work(url, int(minutes), Retention.split(kept_for, kept_for)))


async def _work(url: str, minutes: int, retention: Retention) -> None:
    contender = Contender(url)
    # Its maintenance runs beside it, for a worker of its own would keep to the store's retention.
    settings = WorkerSettings(queues={"default": _SLOTS}, maintain_every=None, drain=timedelta(0))
    async with contender.app, contender.app.running(settings) as worker:
        upkeep = maintain_for_ever(
            contender.app.store,
            contender.app.switches,
            worker.session_id,
            every=timedelta(seconds=5),
            lease=_LEASE,
            observer=Observer(),
            chores=(),
            runs_ended=lambda: None,
            storage=StorageSettings(retention=retention),
        )
        beside = [asyncio.create_task(_feed(contender, worker)), asyncio.create_task(upkeep)]
        for _ in range(minutes):
            done, _ = await asyncio.wait(
                beside, timeout=_MINUTE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for failed in done:
                failed.result()
            print(worker.counts["completed"], flush=True)
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)


async def _feed(contender: Contender, worker: Worker) -> None:
    """Keep some thousand jobs waiting."""
    submitted = 0
    while True:
        if submitted - worker.counts["completed"] < _WAITING_JOBS:
            await contender.submit_many(_AT_ONCE)
            submitted += _AT_ONCE
        else:
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    main()
