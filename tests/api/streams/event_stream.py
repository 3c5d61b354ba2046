"""A client of event streams: reads them as WHATWG says a browser does, straight from ASGI."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from gantline import Gantline
from gantline.api.seal import Seal, read_seal

PATIENCE_SECONDS = 20
TENANTS = ("acme", "evil")


def opened(seal: Seal, last_id: str) -> int:
    """The position of an id, whichever tenant it was sealed for."""
    return max(seal.open_number(last_id, tenant_id) for tenant_id in TENANTS)


class Heard(NamedTuple):
    """An event as a listener gets it, with the Last-Event-ID at that moment."""

    name: str
    data: Any
    last_id: str

    @property
    def shown(self) -> tuple[str, str]:
        """The event, and the state that its data tells."""
        return self.name, self.data["state"]


class Parser:
    """The stream's text, taken apart by the rules of the standard."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self.retry: int | None = None
        self.comments: list[str] = []
        self._rest = b""
        self._id = last_id
        self._clear()

    def _clear(self) -> None:
        self._name = ""
        self._data: list[str] = []

    def feed(self, text: bytes) -> Iterator[Heard]:
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            yield from self._line(line.decode())

    def _line(self, line: str) -> Iterator[Heard]:
        if not line:
            self.last_id = self._id
            if self._data:
                data = msgspec.json.decode("\n".join(self._data))
                yield Heard(self._name or "message", data, self.last_id)
            self._clear()
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "":
                self.comments.append(value)
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case "id":
                self._id = value
            case "retry":
                self.retry = int(value)
            case _:
                raise AssertionError(f"a browser would not know {line!r}")


class EventStreamClient:
    """One request, whose answer may go on; `hang_up` is what a closed browser tab does."""

    def __init__(self, app: Any, scope: dict[str, Any]) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.parser = Parser()
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()
        self._gone = asyncio.Event()
        self._answered = asyncio.Event()
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()
        self._said = asyncio.Event()
        self._task = asyncio.create_task(app(scope, self._receive, self._send))
        self._asked = False

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self._may_go_on.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self._answered.set()
            return
        text = message.get("body", b"")
        self.body += text
        if self.headers.get("content-type") == "text/event-stream":
            for heard in self.parser.feed(text):
                self._heard.put_nowait(heard)
        self._said.set()

    async def answered(self) -> "EventStreamClient":
        async with asyncio.timeout(PATIENCE_SECONDS):
            answered = asyncio.create_task(self._answered.wait())
            await asyncio.wait({answered, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not answered.done():
                answered.cancel()
                self._task.result()
        return self

    async def hears(self) -> Heard:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._heard.get()

    async def hears_until(self, name: str) -> list[Heard]:
        """All events up to the first of this name."""
        heard = [await self.hears()]
        while heard[-1].name != name:
            heard.append(await self.hears())
        return heard

    async def hears_a_ping(self) -> None:
        await self._until(lambda: bool(self.parser.comments))

    async def hears_a_position(self) -> None:
        await self._until(lambda: self.parser.last_id != "")

    async def hears_up_to(self, jobs: Gantline, number: int) -> list[Heard]:
        """All that there is to be told up to this event; with pings that come soon."""
        seal = await read_seal(jobs.store)
        await self._until(lambda: opened(seal, self.parser.last_id) >= number)
        return self.so_far()

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not reached():
                self._said.clear()
                await self._said.wait()

    async def ends(self) -> list[Heard]:
        """Wait for the end of the answer; what was heard until then."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._task
        return self.so_far()

    def so_far(self) -> list[Heard]:
        return [self._heard.get_nowait() for _ in range(self._heard.qsize())]

    def pause(self) -> None:
        """Take nothing for now."""
        self._may_go_on.clear()

    def go_on(self) -> None:
        self._may_go_on.set()

    async def hang_up(self) -> None:
        self._gone.set()
        self.go_on()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(self._task, return_exceptions=True)


class Listener:
    """Opens streams as somebody, and hangs up at the end of the test."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._clients: list[EventStreamClient] = []

    async def __call__(
        self,
        who: str | None,
        path: str,
        *,
        last: str | None = None,
        headers: dict[str, str] | None = None,
        method: str = "GET",
        extensions: dict[str, Any] | None = None,
    ) -> EventStreamClient:
        sent = dict(headers or {})
        if who is not None:
            sent["authorization"] = f"Bearer {who}"
        if last is not None:
            sent["last-event-id"] = last
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("api.test", 80),
            "extensions": extensions or {},
        }
        client = EventStreamClient(self._app, scope)
        self._clients.append(client)
        return await client.answered()

    async def close(self) -> None:
        for client in self._clients:
            await client.hang_up()


@asynccontextmanager
async def listening_to(app: Any) -> AsyncIterator[Listener]:
    listener = Listener(app)
    try:
        yield listener
    finally:
        await listener.close()
