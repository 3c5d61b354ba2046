"""A receiver of webhooks: a real server on this machine that remembers what it was sent."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple

_PATIENCE_SECONDS: Final = 60


class Received(NamedTuple):
    """One request. The names of its headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def webhook_id(self) -> str:
        return self.headers["webhook-id"]


Answer = Callable[[BaseHTTPRequestHandler], None]


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    """Answer with this."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


class Receiver:
    """Listens on a free port. `answers` says what to answer by path; all else is 204."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.over = threading.Event()
        """For answers that wait; set when the receiver stops."""
        self._received: list[Received] = []
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.close_connection = True
                size = int(self.headers["content-length"])
                body = self.rfile.read(size)
                if len(body) < size:
                    return  # whoever sent it died in the middle
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver._take(Received(self.path, headers, body))
                try:
                    receiver.answers.get(self.path, status(204))(self)
                except OSError:
                    return  # whoever sent it has hung up

            def log_message(self, format: str, *args: object) -> None:
                """Keep quiet."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _take(self, received: Received) -> None:
        with self._changed:
            self._received.append(received)
            self._changed.notify_all()

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    @property
    def received(self) -> list[Received]:
        with self._changed:
            return list(self._received)

    def at(self, path: str) -> list[Received]:
        return [one for one in self.received if one.path == path]

    def wait_for(self, is_enough: Callable[[list[Received]], bool]) -> list[Received]:
        """Wait until enough has come; in a thread, where there is a loop."""
        with self._changed:
            assert self._changed.wait_for(lambda: is_enough(self._received), _PATIENCE_SECONDS)
            return list(self._received)

    def stop(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
