"""The bridge: takes job envelopes in from a broker, and publishes outcomes to it."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from gantline.bridge.broker import BridgedApp, Broker, Outgoing, Topic
from gantline.bridge.intake import Intake
from gantline.bridge.message import encode_outcome
from gantline.contract.job_event import JobEvent
from gantline.wakeups.remote import hold_for_ever

_log = logging.getLogger("gantline.bridge")

_SOURCE: Final = "/gantline"
_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 10.0


class Bridge:
    """Takes in the envelopes of every job type that the application has declared."""

    def __init__(self, app: BridgedApp, broker: Broker, intake: Intake) -> None:
        self._topics = [Topic(one.name, one.handler.job_types) for one in app.job_types]
        self._broker = broker
        broker.check(self._topics)
        self._intake = intake
        self._is_outage_logged = False
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
        """Take messages in until cancelled; a lost connection is opened again.

        Messages that were not acknowledged are delivered again, and found to be duplicates.
        """
        await hold_for_ever(
            lambda: self._broker.receive(self._topics, self._intake.take, self._begin),
            self._end,
            first_wait_seconds=_FIRST_WAIT_SECONDS,
            longest_wait_seconds=_LONGEST_WAIT_SECONDS,
        )

    def _begin(self) -> None:
        self._connected.set()
        self._is_outage_logged = False
        _log.info("the bridge takes messages in")

    def _end(self, error: Exception) -> None:
        self._connected.clear()
        if not self._is_outage_logged:
            self._is_outage_logged = True
            cause = next(iter(str(error).splitlines()), "") or type(error).__name__
            _log.warning("the bridge is down, and tries again: %s", cause)


class OutcomePublisher:
    """Publish every event as a CloudEvent, on the topic of its type and that of its job:
    `job.completed.<type>`."""

    def __init__(self, broker: Broker, *, name: str) -> None:
        self.name = name
        self._broker = broker

    async def consume(self, events: Sequence[JobEvent]) -> None:
        await self._broker.publish(
            [
                Outgoing(
                    f"{event.type}.{event.job.job_type}",
                    encode_outcome(event, source=_SOURCE),
                )
                for event in events
            ]
        )
