"""Callers: `python -m benchmarks.http.calling_child ADDRESS KEY METHOD PATH CONNECTIONS SECONDS`.

Each sends one request after the other over a connection of its own, for so long. Tells how many
were answered in a second, and how long each took in milliseconds. Written by hand, because every
client library costs more than the server that is measured.
"""

import asyncio
import json
import re
import sys
import time
from typing import Final, cast
from urllib.parse import urlsplit

from benchmarks.worker.meter import INVOICE
from windlass.worker.tuning import run_tuned

_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_WARM_UP_SECONDS: Final = 1.0


class Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, delays: list[float]) -> None:
        self._request = request
        self._delays = delays
        self._received = b""
        self.is_over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not end or length is None or len(rest) < int(length[1]):
            return
        assert head.startswith((b"HTTP/1.1 202", b"HTTP/1.1 200")), self._received
        self._received = b""
        self._delays.append(time.perf_counter() - self._sent_at)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_over.set_result(None)

    def stop(self) -> None:
        self._transport.abort()


async def _call(request: bytes, address: str, connections: int, seconds: float) -> None:
    place = urlsplit(address)
    host, port = place.hostname or "", place.port or 80
    delays: list[float] = []
    callers = [
        (
            await asyncio.get_running_loop().create_connection(
                lambda: Caller(request, delays), host, port
            )
        )[1]
        for _ in range(connections)
    ]
    await asyncio.sleep(_WARM_UP_SECONDS)
    delays.clear()
    start = time.perf_counter()
    await asyncio.sleep(seconds)
    rate = len(delays) / (time.perf_counter() - start)
    took = [delay * 1e3 for delay in delays]
    for caller in callers:
        caller.stop()
    await asyncio.gather(*(caller.is_over for caller in callers))
    print(json.dumps([rate, took]))


def main() -> None:
    address, key, method, path, connections, seconds = sys.argv[1:]
    job = json.dumps({"jobType": "no_op", "payload": INVOICE}).encode()
    body = job if method == "POST" else b""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {urlsplit(address).netloc}",
        f"Authorization: Bearer {key}",
        *([f"Content-Length: {len(body)}", "Content-Type: application/json"] if body else []),
    ]
    request = "\r\n".join([*lines, "", ""]).encode() + body
    run_tuned(_call(request, address, int(connections), float(seconds)))


if __name__ == "__main__":
    main()
