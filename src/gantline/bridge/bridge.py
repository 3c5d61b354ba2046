"""The bridge itself: holds the connection to the broker for as long as it runs."""

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Final

from gantline.bridge.intake import Intake
from gantline.bridge.port import Broker, Jobs, Topic

_log = logging.getLogger("gantline.bridge")

_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 10.0


class Bridge:
    """Takes envelopes in, of every type that the application has declared."""

    def __init__(self, jobs: Jobs, broker: Broker, intake: Intake) -> None:
        self._topics = [Topic(one.name, one.handler.job_types) for one in jobs.job_types]
        self._broker = broker
        broker.check(self._topics)
        self._intake = intake
        self._is_told = False
        self._connected = asyncio.Event()

    @property
    def taken(self) -> Mapping[str, int]:
        """How many messages were accepted, duplicate or rejected since the start."""
        return self._intake.taken

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    async def connected(self) -> None:
        """Wait until it takes messages in."""
        await self._connected.wait()

    async def run(self) -> None:
        """Take messages in until cancelled; a connection that is lost is made again.

        What was not acknowledged by then is delivered again, and found to be there.
        """
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            try:
                await self._broker.receive(self._topics, self._intake.take, self._begin)
            except Exception as error:
                _stop_if_cancelled()
                self._end(error)
            # Counted on when it was up only for a moment, or a flapping broker would be hammered.
            failures = 0 if loop.time() - began > _LONGEST_WAIT_SECONDS else failures + 1
            most = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** min(failures, 20))
            await asyncio.sleep(most * random.uniform(0.5, 1.0))  # noqa: S311  # not a secret

    def _begin(self) -> None:
        self._connected.set()
        self._is_told = False
        _log.info("the bridge takes messages in")

    def _end(self, error: Exception) -> None:
        self._connected.clear()
        if not self._is_told:
            self._is_told = True
            cause = next(iter(str(error).splitlines()), "") or type(error).__name__
            _log.warning("the bridge is down, and tries again: %s", cause)


def _stop_if_cancelled() -> None:
    """A driver that is cancelled and meets an error may raise the error alone."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
