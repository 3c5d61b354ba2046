"""An API server in a process of its own, which a test may kill and start again."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from tests.servers.postgres import free_port

REPOSITORY: Final = Path(__file__).parent.parent.parent
_PATIENCE_SECONDS: Final = 60
BY_GANTLINE: Final = ("gantline.cli.main", "api", "{target}", "--port", "{port}")
BY_UVICORN: Final = ("uvicorn", "{target}", "--port", "{port}", "--log-level", "warning")


class ApiProcess:
    """Serves on the same port however often it is started."""

    def __init__(
        self, target: str, *, by: tuple[str, ...] = BY_GANTLINE, **environment: str
    ) -> None:
        self.port = free_port()
        self._words = [word.format(target=target, port=self.port) for word in by]
        paths = f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"
        self._environment = {**os.environ, "PYTHONPATH": paths, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._log = TemporaryFile()  # noqa: SIM115  # closed by `close`

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def start(self) -> None:
        """Start, and wait until it listens."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", *self._words],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._environment,
        )
        end = time.monotonic() + _PATIENCE_SECONDS
        while not self._is_listening():
            assert self._process.poll() is None, self.log
            assert time.monotonic() < end, self.log

    def _is_listening(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """As a power cut does."""
        self._end(signal.SIGKILL)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """As a deploy does, or by SIGINT a person; tells the exit code."""
        return self._end(number)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(_PATIENCE_SECONDS)

    def close(self) -> None:
        self.kill()
        self._log.close()
