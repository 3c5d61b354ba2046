"""The HTTP API in a process of its own, served as `gantline api` serves it."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from tests.servers.postgres import free_port

_REPOSITORY: Final = Path(__file__).parents[2]
_PATIENCE_SECONDS: Final = 60
_COMMAND: Final = (sys.executable, "-m", "gantline.cli.main", "api")
_SERVING: Final = re.compile(r"Serving (http://\S+)/api,")


class ApiProcess:
    """Started at once, and ready when it is made."""

    def __init__(self, target: str, *, store: str, **environment: str) -> None:
        self._target = target
        self.store = store
        self._port = free_port()
        ours = {name: text for name, text in os.environ.items() if "GANTLINE" not in name}
        self._environment = ours | {
            "PYTHONPATH": f"{_REPOSITORY / 'src'}{os.pathsep}{_REPOSITORY}",
            "GANTLINE_TEST_STORE": store,
            **environment,
        }
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*_COMMAND, self._target, "--port", str(self._port)],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        said: list[str] = []
        for line in self._process.stderr:
            said.append(line)
            if match := _SERVING.match(line):
                self.url = match[1]
                break
        else:
            self._process.wait(_PATIENCE_SECONDS)
            raise RuntimeError(f"the API did not start: {''.join(said)}")
        # What it says later must not fill its pipe.
        self._reader = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        self._process.kill()
        self._ended()

    def pause(self) -> None:
        """Let it stand still, as a host that hangs does."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process.poll() is None:
            self.resume()
            self._process.terminate()
            self._ended()

    def _ended(self) -> None:
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        self._reader.join(_PATIENCE_SECONDS)
        if self._process.stderr is not None:
            self._process.stderr.close()
