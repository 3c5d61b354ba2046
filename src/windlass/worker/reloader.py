"""The reloader: runs a child and starts it anew when a Python file below a folder changes."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

_CHECK_SECONDS: Final = 0.5
_PASSED_OVER: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


class Reloader:
    """For development only: one child, ended and started again on every change."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._folder = folder
        self._command = list(command)
        self._is_stopping = False
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        seen = self._changes()
        self._child = subprocess.Popen(self._command)  # noqa: S603  # our own command line
        while not self._is_stopping:
            time.sleep(_CHECK_SECONDS)  # noqa: TID251  # this process does nothing else
            now = self._changes()
            if now != seen:
                seen = now
                self._restart()
        return self._child.wait()

    def _restart(self) -> None:
        if self._child is not None:
            self._child.terminate()
            self._child.wait()
        if not self._is_stopping:
            self._child = subprocess.Popen(self._command)  # noqa: S603  # our own command line

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _changes(self) -> dict[str, float]:
        """When each Python file was last changed."""
        found: dict[str, float] = {}
        for folder, folders, files in os.walk(self._folder):
            folders[:] = [name for name in folders if not _is_passed_over(name)]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    try:
                        found[path] = os.stat(path).st_mtime
                    except OSError:
                        continue
        return found


def _is_passed_over(name: str) -> bool:
    return name.startswith(".") or name in _PASSED_OVER
