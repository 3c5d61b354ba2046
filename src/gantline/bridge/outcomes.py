"""Outcomes on their way out: a durable consumer of events that publishes them at a broker."""

from collections.abc import Sequence
from typing import Final

from gantline.bridge.message import outcome_message
from gantline.bridge.port import Broker, Outgoing
from gantline.contract.job_event import JobEvent

DEFAULT_SOURCE: Final = "/gantline"


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
