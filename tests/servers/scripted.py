"""A server that answers what a test says, byte by byte, and remembers what it was sent."""

import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

_PATIENCE_SECONDS: Final = 30

Act = Callable[[socket.socket, "ScriptedServer"], None]


def saying(*parts: bytes) -> Act:
    """Send these bytes, then hang up."""

    def act(connection: socket.socket, _: "ScriptedServer") -> None:
        for part in parts:
            connection.sendall(part)

    return act


def answering(status: str, body: bytes = b"", *headers: str) -> Act:
    """Send a whole and well-formed answer."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
    return saying("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def stalling(*parts: bytes) -> Act:
    """Send these bytes, then nothing more until the test is over."""

    def act(connection: socket.socket, server: "ScriptedServer") -> None:
        saying(*parts)(connection, server)
        server.over.wait(_PATIENCE_SECONDS)

    return act


def dripping(head: bytes, drop: bytes) -> Act:
    """Send a byte now and then, so that no single read takes long."""

    def act(connection: socket.socket, server: "ScriptedServer") -> None:
        connection.sendall(head)
        while not server.over.wait(0.02):
            connection.sendall(drop)

    return act


class ScriptedServer:
    """Plays one act per connection; the last is played for ever."""

    def __init__(self, acts: Sequence[Act]) -> None:
        self._acts = acts
        self.requests: list[bytes] = []
        self.over = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            if self.over.is_set():
                connection.close()
                return
            act = self._acts[min(len(self._threads), len(self._acts) - 1)]
            thread = threading.Thread(target=self._play, args=(connection, act))
            self._threads.append(thread)
            thread.start()

    def _play(self, connection: socket.socket, act: Act) -> None:
        with connection:
            connection.settimeout(_PATIENCE_SECONDS)
            try:
                self.requests.append(_request(connection))
                act(connection, self)
            except OSError:
                return  # the client has hung up

    def stop(self) -> None:
        self.over.set()
        socket.create_connection(self._socket.getsockname()).close()
        for thread in (self._listener, *self._threads):
            thread.join(_PATIENCE_SECONDS)
        self._socket.close()


def _request(connection: socket.socket) -> bytes:
    """All of a request: its head, and as much body as that says."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (part := connection.recv(65536)):
            return received
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    while len(body) < sum(lengths):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
