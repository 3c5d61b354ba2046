"""Listening in tests: plays the worker that tells durable consumers of events."""

from collections.abc import Sequence

import msgspec

from gantline.app.gantline import Gantline
from gantline.bridge.bridge import OutcomePublisher
from gantline.contract.job_event import EventConsumer, JobEvent
from gantline.manager.event_reader import DeclaredConsumer, EventReader, Turn


class _Witnessed:
    """A consumer, and what became of telling it."""

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
    """Every consumer of an application, told of all that has happened since the test began.

    What a bridge would publish stays here: a test has no broker.
    """

    def __init__(self, app: Gantline, owner: str) -> None:
        self._app = app
        self._owner = owner
        self._readers: dict[str, tuple[EventReader, _Witnessed]] = {}
        self._is_telling = False

    async def deliver(self) -> bool:
        """Tell all consumers; whether there was anything to tell. Raise what one of them raises.

        A consumer that submits, where jobs run inline, comes here while it is being told: what
        follows from that, it is told when it has returned.
        """
        if self._is_telling:
            return False
        self._is_telling = True
        try:
            return any([await self._deliver(one) for one in self._app.consumers])
        finally:
            self._is_telling = False

    async def _deliver(self, declared: DeclaredConsumer) -> bool:
        if isinstance(declared.consumer, OutcomePublisher):
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
