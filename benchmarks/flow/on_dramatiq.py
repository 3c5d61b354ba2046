"""dramatiq: a limiter in the actor. What it refuses is sent again, some time later."""

import asyncio
from importlib import import_module
from typing import Any, Final

from benchmarks.flow.player import Player, Shape

_AGAIN_MS: Final = 10


class FlowPlayer(Player):
    """In threads, as its worker processes run jobs."""

    def __init__(self, url: str, shape: Shape) -> None:
        super().__init__(url, shape)
        self._module: Any = import_module("dramatiq")
        limits: Any = import_module("dramatiq.rate_limits")
        backend: Any = import_module("dramatiq.rate_limits.backends").RedisBackend(url=url)
        self._broker = import_module("dramatiq.brokers.redis").RedisBroker(url=url)
        limit = shape.running or shape.running_in_all

        # What is refused should not wait for seconds, as by its defaults, nor be given up.
        again = {"max_retries": None, "min_backoff": _AGAIN_MS, "max_backoff": 10 * _AGAIN_MS}

        @self._module.actor(broker=self._broker, actor_name="flow", **again)  # type: ignore[untyped-decorator]  # read without its types
        def flow(key: str) -> None:
            limiter = limits.ConcurrentRateLimiter(backend, f"limit-{key}", limit=limit)
            with limiter.acquire():
                self.handle_blocking(key)

        self._flow: Any = flow

    async def open(self) -> None:
        """It connects when it is first used."""

    async def fill(self, jobs: int) -> None:
        for key in self.shape.keys_of(jobs):
            self._flow.send(key)

    async def work(self, slots: int) -> None:
        self._module.Worker(self._broker, worker_threads=slots).start()
        await asyncio.Event().wait()
