"""Outcomes on their way out: a durable consumer of events that publishes them at a broker."""

from collections.abc import Sequence
from typing import Final

from windlass.bridge.message import outcome_message
from windlass.bridge.port import Broker, Outgoing
from windlass.contract.job_event import JobEvent

DEFAULT_SOURCE: Final = "/windlass"


class OutcomePublisher:
    """Publish every event as a CloudEvent, on the topic `job.completed.<type>`."""

    def __init__(self, broker: Broker, *, name: str, source: str = DEFAULT_SOURCE) -> None:
        self.name = name
        self._broker = broker
        self._source = source

    async def consume(self, events: Sequence[JobEvent]) -> None:
        await self._broker.publish(
            [
                Outgoing(
                    f"{event.type}.{event.job.job_type}",
                    outcome_message(event, source=self._source),
                )
                for event in events
            ]
        )
