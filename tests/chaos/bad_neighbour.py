"""The bad neighbour: `python -m tests.chaos.bad_neighbour URL KEY OTHER_KEY RECEIVER SECONDS`.

Uses all that a key of its own tenant allows, as fast as one process can; prints how often what was
answered, as JSON. It calls from addresses of its own, as another customer does: one for each way of
misuse, and half-sent bodies with another key, so that what is refused to one does not slow others.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

NONE: Final[Mapping[str, str]] = MappingProxyType({})
_BATCH: Final = 1000
_TIMEOUT_SECONDS: Final = 60.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Connection:
    """One connection, one request after the other. Without a library, which takes more time."""

    def __init__(self, url: str, key: str, address: str | None = None) -> None:
        where = urlsplit(url)
        self._host, self._port, self._key = where.hostname, where.port, key
        self._from = None if address is None else (address, 0)
        self.reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def begin(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        size: int | None = None,
        headers: Mapping[str, str] = NONE,
    ) -> asyncio.StreamReader:
        """Send a request; `size` is what is said of its body, where that is not the truth."""
        if self._writer is None or self.reader is None or self._writer.is_closing():
            self.reader, self._writer = await asyncio.open_connection(
                self._host, self._port, local_addr=self._from
            )
        lines = [
            f"{method} {path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {self._key}",
        ]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if method != "GET":
            lines += ["Content-Type: application/json", f"Content-Length: {size or len(body)}"]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        return self.reader

    async def go_on(self, part: bytes) -> None:
        if self._writer is not None:
            self._writer.write(part)
            await self._writer.drain()

    async def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = NONE
    ) -> Answer:
        content = b"" if body is None else json.dumps(body).encode()
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return await self.answer(await self.begin(method, path, content, headers=headers))

    async def answer(self, reader: asyncio.StreamReader) -> Answer:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
        size = int(headers.get("content-length", "0"))
        body = await reader.readexactly(size) if size else b""
        if headers.get("connection") == "close":
            self.close()
        return Answer(int(line.split()[1]), headers, body)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None


class BadNeighbour:
    def __init__(self, url: str, key: str, other_key: str, receiver: str) -> None:
        self._url = url
        self._key = key
        self._other_key = other_key
        self._receiver = receiver
        self._names = count()
        self._jobs = [{"jobType": "flood", "payload": f"b{n}"} for n in range(_BATCH)]
        self.answers: Counter[str] = Counter()

    async def misuse(self, seconds: float) -> None:
        ways: list[tuple[int, Callable[[Connection], Awaitable[None]]]] = [
            (64, self._submit),
            (8, self._submit_with_key),
            (8, self._submit_batch),
            (4, self._submit_large),
            (150, self._wait),
            (30, self._follow),
            (20, self._follow_and_not_read),
            (4, self._make_webhooks),
            (4, self._make_schedules),
            (8, self._list),
            (16, self._ask_for_what_is_denied),
            (16, self._ask_with_a_wrong_key),
            (300, self._send_slowly),
        ]
        tasks = [
            asyncio.create_task(self._again_and_again(way, number))
            for number, (many, way) in enumerate(ways)
            for _ in range(many)
        ]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _again_and_again(
        self, way: Callable[[Connection], Awaitable[None]], number: int
    ) -> None:
        key = self._other_key if way == self._send_slowly else self._key
        if way == self._ask_with_a_wrong_key:
            key = f"gl_{uuid4().hex}"
        connection = Connection(self._url, key, f"127.0.0.{number + 2}")
        while True:
            try:
                await way(connection)
            except (OSError, EOFError, TimeoutError):
                connection.close()
                self.answers[f"{way.__name__} cut off"] += 1
                await asyncio.sleep(0.1)

    def _count(self, what: str, answer: Answer) -> Answer:
        self.answers[f"{what} {answer.status}"] += 1
        return answer

    def _job(self, **fields: Any) -> dict[str, Any]:
        return {"jobType": "flood", "payload": f"b{next(self._names)}", **fields}

    async def _submit(self, connection: Connection) -> None:
        self._count("submit", await connection.ask("POST", "/api/jobs", self._job()))

    async def _submit_with_key(self, connection: Connection) -> None:
        key = {"Idempotency-Key": f'"{uuid4()}"'}
        for _ in range(2):
            answer = await connection.ask("POST", "/api/jobs", self._job(), key)
            self._count("key", answer)

    async def _submit_batch(self, connection: Connection) -> None:
        body = {"jobs": self._jobs}
        self._count("batch", await connection.ask("POST", "/api/jobs/batch", body))

    async def _submit_large(self, connection: Connection) -> None:
        body = self._job() | {"payload": "x" * 1_000_000}
        self._count("large", await connection.ask("POST", "/api/jobs", body))

    async def _wait(self, connection: Connection) -> None:
        body = self._job(delaySeconds=3600)
        self._count("wait", await connection.ask("POST", "/api/jobs", body, {"Prefer": "wait=30"}))

    async def _follow(self, connection: Connection) -> None:
        reader = await connection.begin("GET", "/api/events")
        if self._count("stream", await connection.answer(reader)).status == 200:
            while await reader.read(65_536):
                pass
            connection.close()

    async def _follow_and_not_read(self, connection: Connection) -> None:
        reader = await connection.begin("GET", "/api/events")
        if self._count("stream", await connection.answer(reader)).status == 200:
            await asyncio.sleep(20)
            connection.close()

    async def _make_webhooks(self, connection: Connection) -> None:
        spec = {"url": self._receiver, "jobTypes": ["other"]}
        made = self._count("webhook", await connection.ask("POST", "/api/webhooks", spec))
        await connection.ask("GET", "/api/webhooks")
        if made.status == 201:
            webhook = made.headers["location"]
            await connection.ask("POST", f"{webhook}/test")
            await connection.ask("GET", f"{webhook}/deliveries?limit=200")
            await connection.ask("DELETE", webhook)

    async def _make_schedules(self, connection: Connection) -> None:
        name = f"s{next(self._names)}"
        spec = {"name": name, "jobType": "flood", "payload": name, "everySeconds": 1}
        self._count("schedule", await connection.ask("POST", "/api/schedules", spec))
        await connection.ask("GET", f"/api/schedules/{name}/next?count=100")
        await connection.ask("GET", "/api/schedules?limit=200")
        await connection.ask("DELETE", f"/api/schedules/{name}")

    async def _list(self, connection: Connection) -> None:
        for path in ("/api/jobs?limit=200", "/api/stats", "/api/audit?limit=200", "/api/job-types"):
            self._count("list", await connection.ask("GET", path))

    async def _ask_for_what_is_denied(self, connection: Connection) -> None:
        self._count("denied", await connection.ask("GET", f"/api/jobs/{uuid4()}/status"))
        self._count("denied", await connection.ask("GET", "/api/jobs?tenantId=good"))
        self._count("denied", await connection.ask("POST", "/api/queues/quiet/pause"))

    async def _ask_with_a_wrong_key(self, connection: Connection) -> None:
        self._count("wrong key", await connection.ask("GET", "/api/jobs"))

    async def _send_slowly(self, connection: Connection) -> None:
        reader = await connection.begin("POST", "/api/jobs", b"{", size=1000)
        answered = asyncio.create_task(connection.answer(reader))
        try:
            while not answered.done():
                await connection.go_on(b" ")
                await asyncio.wait({answered}, timeout=1.0)
            self._count("slow body", answered.result())
        finally:
            answered.cancel()
            connection.close()


async def _main(url: str, key: str, other_key: str, receiver: str, seconds: str) -> None:
    neighbour = BadNeighbour(url, key, other_key, receiver)
    await neighbour.misuse(float(seconds))
    sys.stdout.write(json.dumps(dict(sorted(neighbour.answers.items()))))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
