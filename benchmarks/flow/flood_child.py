"""A process of the flood: `python -m benchmarks.flow.flood_child URL WHAT [OPTION …]`."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from benchmarks.contest import meter
from benchmarks.contest.contender import portions
from gantline import Gantline
from gantline.cli.process import fastest_loop, relax_collector
from gantline.worker.settings import WorkerSettings

_AT_ONCE: Final = 5_000
_LOOK_SECONDS: Final = 0.02
# What a job carries: the moment of its submit, or one of these.
_WAITS: Final = 0
_FIRST: Final = -1


class Flooded:
    """An application with one type of job; one that carries a moment notes its delay."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.app = Gantline(options.url)
        self.delays_ns: list[int] = []
        self.firsts = 0

        async def flow(submitted_ns: int) -> None:
            if submitted_ns == _FIRST:
                self.firsts += 1
            elif submitted_ns:
                self.delays_ns.append(time.time_ns() - submitted_ns)
            await asyncio.sleep(options.hold_ms / 1000)

        self.flow = self.app.job("flow")(flow)

    async def fill(self) -> None:
        """So many jobs of each of so many tenants, in turns; past all caps of what may wait."""
        options = self.options
        async with self.app:
            first = 0
            for some in portions(options.tenants * options.each, _AT_ONCE):
                jobs = [
                    self.flow.prepare(
                        _FIRST if number < options.tenants else _WAITS,
                        tenant=f"{options.name}-{number % options.tenants}",
                    )
                    for number in range(first, first + some)
                ]
                await self.app.store.insert(jobs)
                first += some

    async def greet(self) -> None:
        """Work until each of so many tenants has had its first turn."""
        async with self.app:
            relax_collector()
            settings = WorkerSettings(queues={"default": self.options.slots})
            async with self.app.working(settings) as worker:
                working = asyncio.create_task(worker.run())
                while self.firsts < self.options.tenants:
                    assert not working.done(), "the worker has ended by itself"
                    await asyncio.sleep(_LOOK_SECONDS)
                worker.stop()
                await working

    async def serve(self) -> None:
        """Work until the parent closes our input; tell the delays."""
        async with self.app:
            await asyncio.to_thread(meter.wait_for_go)
            relax_collector()
            settings = WorkerSettings(queues={"default": self.options.slots})
            async with self.app.working(settings) as worker:
                working = asyncio.create_task(worker.run())
                await asyncio.to_thread(sys.stdin.read)
                assert not working.done(), "the worker has ended by itself"
                print(json.dumps(self.delays_ns), flush=True)
                os._exit(0)  # what still waits is never drained

    async def probe(self) -> None:
        """One job each of tenants that had none before."""
        options = self.options
        async with self.app:
            for number in range(options.each):
                await self.flow.submit(time.time_ns(), tenant=f"{options.name}-{number}")
                await asyncio.sleep(options.apart_ms / 1000)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("what", choices=("fill", "greet", "serve", "probe"))
    parser.add_argument("--name", default="tenant")
    for name in ("tenants", "each", "slots"):
        parser.add_argument(f"--{name}", type=int, default=1)
    for name in ("hold_ms", "apart_ms"):
        parser.add_argument(f"--{name}", type=float, default=0)
    options = parser.parse_args()
    flooded = Flooded(options)
    roles: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "fill": flooded.fill,
        "greet": flooded.greet,
        "serve": flooded.serve,
        "probe": flooded.probe,
    }
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(roles[options.what]())


if __name__ == "__main__":
    main()
