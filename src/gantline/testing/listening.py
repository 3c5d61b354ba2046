"""Listening in tests: plays the worker that delivers events to durable consumers."""

from collections.abc import Sequence

import msgspec

from gantline.app.gantline import Gantline
from gantline.bridge.bridge import OutcomePublisher
from gantline.bridge.sending import EnvelopePublisher
from gantline.consumers.event_reader import DeclaredConsumer, EventReader, Turn
from gantline.contract.job_event import EventConsumer, JobEvent


class _Witnessed:
    """A consumer, with what was delivered to it and what it raised."""

    def __init__(self, consumer: EventConsumer) -> None:
        self.name = consumer.name
        self._consumer = consumer
        self.delivered = 0
        self.error: Exception | None = None

    async def consume(self, events: Sequence[JobEvent]) -> None:
        self.delivered += len(events)
        try:
            await self._consumer.consume(events)
        except Exception as error:
            self.error = error
            raise


class Listening:
    """Every consumer of an application, given all events since the test began.

    What a bridge would publish stays here: a test has no broker.
    """

    def __init__(self, app: Gantline, owner: str) -> None:
        self._app = app
        self._owner = owner
        self._readers: dict[str, tuple[EventReader, _Witnessed]] = {}
        self._is_delivering = False

    async def deliver(self) -> bool:
        """Call all consumers; return whether there was an event. Raise what one of them raises.

        A consumer that submits, where jobs run inline, comes here while it is being called: it
        gets the events of that when it has returned.
        """
        if self._is_delivering:
            return False
        self._is_delivering = True
        try:
            return any([await self._deliver(one) for one in self._app.consumers])
        finally:
            self._is_delivering = False

    async def _deliver(self, declared: DeclaredConsumer) -> bool:
        if isinstance(declared.consumer, OutcomePublisher | EnvelopePublisher):
            return False
        reader, witnessed = self._reader(declared)
        before, witnessed.error = witnessed.delivered, None
        while await reader.run_once() is Turn.MORE:
            pass
        if witnessed.error is not None:
            raise witnessed.error
        return witnessed.delivered > before

    def _reader(self, declared: DeclaredConsumer) -> tuple[EventReader, _Witnessed]:
        if declared.name not in self._readers:
            witnessed = _Witnessed(declared.consumer)
            listener = msgspec.structs.replace(declared, consumer=witnessed, from_start=True)
            reader = EventReader(self._app.store, listener, self._owner, clock=self._app.clock)
            self._readers[declared.name] = (reader, witnessed)
        return self._readers[declared.name]
