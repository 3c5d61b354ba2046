"""The load: `python -m benchmarks.http.load URL KEY PATH CONNECTIONS SECONDS [STATUS_PATH]`.

Keeps as many requests under way as there are connections; with STATUS_PATH two more ask for that,
and their times are told apart. Without a library, so that the load costs less than the server.
"""

import asyncio
import json
import sys
import time
from typing import Final, cast

from gantline.cli.process import run_tuned

_WARM_UP_SECONDS: Final = 1.0


class Asking(asyncio.Protocol):
    """One connection, one request after the other."""

    def __init__(self, number: int, head: bytes) -> None:
        self._number = number
        self._head = head
        self._posts = head.startswith(b"POST")
        self._asked = 0
        self._sent_at = 0.0
        self._received = b""
        self.seconds: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        self._asked += 1
        self._sent_at = time.perf_counter()
        if not self._posts:
            self._transport.write(self._head + b"\r\n")
            return
        body = b'{"jobType":"index","payload":{"documentId":"d%d-%d","rowVersion":5}}' % (
            self._number,
            self._asked,
        )
        self._transport.write(self._head + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        if len(body) < size:
            return
        if not head.startswith((b"HTTP/1.1 202", b"HTTP/1.1 200")):
            sys.exit(f"the server answered {self._received!r}")
        self._received = b""
        self.seconds.append(time.perf_counter() - self._sent_at)
        self._ask()


async def load(
    url: str, key: str, path: str, connections: int, seconds: float, status_path: str | None
) -> dict[str, float]:
    asking = [Asking(n, _head(url, key, path)) for n in range(connections)]
    looking = [Asking(0, _head(url, key, status_path)) for _ in range(2) if status_path]
    for one in (*asking, *looking):
        await _connect(url, one)
    await asyncio.sleep(_WARM_UP_SECONDS)
    for one in (*asking, *looking):
        one.seconds.clear()
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    times = sorted(second for one in asking for second in one.seconds)
    status = sorted(second for one in looking for second in one.seconds)
    return {
        "rate": len(times) / took,
        "p99_ms": _percentile(times, 0.99),
        "status_p99_ms": _percentile(status, 0.99),
    }


def _is_status(path: str) -> bool:
    return path.endswith("/status")


async def _connect(url: str, asking: Asking) -> None:
    host, _, port = url.removeprefix("http://").rpartition(":")
    await asyncio.get_running_loop().create_connection(lambda: asking, host, int(port))


def _head(url: str, key: str, path: str) -> bytes:
    method = "GET" if _is_status(path) else "POST"
    host = url.removeprefix("http://")
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {key}"]
    if method == "POST":
        lines.append("Content-Type: application/json")
    return "\r\n".join([*lines, "Accept: */*", "User-Agent: load", ""]).encode()


def _percentile(times: list[float], share: float) -> float:
    return 1000 * times[int(len(times) * share)] if times else 0.0


if __name__ == "__main__":
    _, to, api_key, asked_path, many, span, *rest = sys.argv
    status = rest[0] if rest else None
    print(json.dumps(run_tuned(load(to, api_key, asked_path, int(many), float(span), status))))
