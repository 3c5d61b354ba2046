"""A web server of one's own that answers as a test wants."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


def body(content: bytes, *, status: int = 200, **headers: str) -> Answer:
    """Answer with this, in order."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("content-length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return answer


class WebServer:
    """Listens on a free port of this machine. `paths` are those that were asked for."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.may_go_on = threading.Event()
        """For answers that wait; set when the server stops."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.paths.append(self.path)
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                try:
                    server.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self.may_go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
