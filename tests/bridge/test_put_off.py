"""What a broker refuses is put off: nothing of it is lost, whoever else reads meanwhile."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from gantline import Gantline
from gantline.bridge.broker import Outgoing, Topic
from gantline.bridge.sending import EnvelopePublisher
from gantline.consumers.event_reader import EventReader, Turn
from gantline.manager.cursors import read_parts
from gantline.manager.sequencer import number_events
from gantline.testing.clock import FakeClock

NAME = "sending"
Meanwhile = Callable[[], Awaitable[Any]]


class Refusing:
    """A broker with queues for some types only."""

    def __init__(self) -> None:
        self.receives: set[str] = set()
        self.next: list[bool] = []
        """Whether it takes the next ones, whatever queues it has."""
        self.sent: list[bytes] = []
        self.tries = 0
        self.meanwhile: Meanwhile | None = None
        """What happens elsewhere while a page is under way, once."""

    async def send(self, outgoing: Sequence[Outgoing]) -> list[str]:
        self.tries += 1
        taken = [self.next.pop(0) if self.next else one.topic in self.receives for one in outgoing]
        self.sent += [
            one.message.body for one, is_taken in zip(outgoing, taken, strict=True) if is_taken
        ]
        if meanwhile := self.meanwhile:
            self.meanwhile = None
            await meanwhile()
        return ["" if is_taken else "nobody receives it" for is_taken in taken]

    async def publish(self, outgoing: Sequence[Outgoing]) -> None:
        raise NotImplementedError

    async def receive(self, topics: Any, take: Any, connected: Any) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def check(self, topics: Sequence[Topic]) -> None:
        """It carries all."""


class Place:
    """An application whose clock stands still, and processes that publish for it."""

    def __init__(self, app: Gantline, clock: FakeClock) -> None:
        self.app, self.clock = app, clock
        self.broker = Refusing()

    def reader(self, owner: str = "here") -> EventReader:
        publisher = EnvelopePublisher(self.app, self.broker, name=NAME)
        return EventReader(self.app.store, publisher.declared, owner, clock=self.clock)

    async def send(self, job_type: str, *marks: str) -> None:
        assert self.app.bridge is not None
        for mark in marks:
            await self.app.bridge.send({"jobType": job_type, "subjectId": mark})
        await number_events(self.app.store)

    async def read(self, reader: EventReader) -> None:
        while await reader.run_once() is Turn.MORE:
            pass

    @property
    def sent(self) -> str:
        """The marks of what was sent, in order."""
        return "".join(body.decode().partition('"subjectId":"')[2][0] for body in self.broker.sent)

    async def waits(self) -> set[str]:
        return set(await read_parts(self.app.store, NAME))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    clock = FakeClock()
    app = Gantline("memory://", bridge="amqp://nowhere?outcomes=")
    app.move_to("memory://", clock=clock)
    async with app:
        yield Place(app, clock)


async def test_it_is_tried_again_after_longer_and_longer_waits(place: Place) -> None:
    reader = place.reader()
    await place.send("mail", "a")
    await place.read(reader)
    assert place.broker.tries == 2  # with its page, and as what was put off
    tries = []
    for _ in range(60):
        place.clock.advance(timedelta(seconds=5))
        before = place.broker.tries
        await place.read(reader)
        tries.append(place.broker.tries - before)
    assert set(tries) == {0, 1}
    assert tries[0] == 1
    assert 6 <= sum(tries) <= 12
    place.broker.receives = {"mail"}
    place.clock.advance(timedelta(seconds=90))
    await place.read(reader)
    assert (place.sent, await place.waits()) == ("a", set())


async def test_an_old_page_of_another_process_cuts_off_nothing_that_waits(place: Place) -> None:
    """The other was frozen with a page in hand, and does not know that it has lost its lead."""
    late, reader = place.reader("late"), place.reader()
    await place.send("mail", "a")

    async def others_go_on() -> None:
        place.clock.advance(timedelta(minutes=1))
        await place.read(reader)
        await place.send("mail", "b")
        await place.read(reader)

    place.broker.meanwhile = others_go_on
    await late.run_once()
    place.broker.receives = {"mail"}
    place.clock.advance(timedelta(minutes=2))
    await place.read(reader)
    assert (place.sent, await place.waits()) == ("ab", set())


async def test_what_is_added_while_the_rest_is_being_sent_is_not_forgotten(place: Place) -> None:
    """The one who sends it believes to be alone, and to have come to the end."""
    late, reader = place.reader("late"), place.reader()
    await place.send("mail", "a")
    await place.read(late)
    place.broker.receives = {"mail"}

    async def others_go_on() -> None:
        place.broker.receives = set()
        place.clock.advance(timedelta(minutes=1))
        await place.send("mail", "b")
        await place.read(reader)

    place.clock.advance(timedelta(seconds=10))
    place.broker.meanwhile = others_go_on
    await late.run_once()
    assert (place.sent, await place.waits()) == ("a", {"mail"})
    place.broker.receives = {"mail"}
    place.clock.advance(timedelta(minutes=2))
    await place.read(reader)
    assert (place.sent, await place.waits()) == ("aab", set())


async def test_what_comes_after_it_waits_behind_it_and_others_pass(place: Place) -> None:
    reader = place.reader()
    place.broker.receives = {"post"}
    await place.send("mail", "a")
    await place.send("post", "1")
    await place.read(reader)
    place.broker.receives = {"mail", "post"}
    await place.send("mail", "b")
    await place.send("post", "2")
    await place.read(reader)
    assert place.sent == "12"
    place.clock.advance(timedelta(minutes=2))
    await place.read(reader)
    await place.send("mail", "c")
    await place.read(reader)
    assert place.sent == "12abc"


async def test_a_queue_that_comes_while_they_are_sent_gets_the_first_first(place: Place) -> None:
    reader = place.reader()
    await place.send("mail", "a", "b")
    await place.read(reader)
    place.broker.next, place.broker.receives = [False], {"mail"}
    for _ in range(2):
        place.clock.advance(timedelta(minutes=2))
        await place.read(reader)
    assert place.sent == "ab"


async def test_what_was_taken_is_not_sent_again_with_what_was_not(place: Place) -> None:
    """A queue that has become full, say."""
    reader = place.reader()
    await place.send("mail", "a", "b", "c")
    await place.read(reader)
    place.broker.next = [True, True, False]
    place.clock.advance(timedelta(minutes=2))
    await place.read(reader)
    place.broker.receives = {"mail"}
    place.clock.advance(timedelta(minutes=2))
    await place.read(reader)
    assert (place.sent, await place.waits()) == ("abc", set())


async def test_what_was_not_yet_read_is_not_sent_with_what_waits(place: Place) -> None:
    """It would be sent twice."""
    reader = place.reader()
    await place.send("mail", "a")
    await place.read(reader)
    place.broker.receives = {"mail", "post"}
    place.broker.meanwhile = lambda: place.send("mail", "b")
    place.clock.advance(timedelta(minutes=2))
    await place.send("post", "1")
    await place.read(reader)
    await place.read(reader)
    assert place.sent == "1ab"


async def test_what_waits_and_was_removed_holds_up_nothing(place: Place) -> None:
    reader = place.reader()
    await place.send("mail", "a", "b")
    await place.read(reader)
    (first, *_) = await place.app.store.events(after=0, limit=1)
    manager, gone = place.app.manager, [first.entry.job_id]
    await manager.cancel(gone, tenant_id=None, actor="")
    await manager.delete(gone, tenant_id=None)
    place.broker.receives = {"mail"}
    place.clock.advance(timedelta(minutes=2))
    await place.read(reader)
    assert (place.sent, await place.waits()) == ("b", set())
