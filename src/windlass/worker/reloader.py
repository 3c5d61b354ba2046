"""The reloader: runs a child and starts it anew when a Python file below a folder changes."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Final

from windlass.worker.stop_signals import StopSignals

_CHECK_SECONDS: Final = 0.5
_PASSED_OVER: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


class Reloader:
    """For development only: one child, ended and started again on every change."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._folder = folder
        self._command = list(command)
        self._stop = StopSignals()

    def run(self) -> int:
        """Run the child until a signal comes; return 0 when it then has ended well."""
        self._stop.listen()
        seen, exit_code = self._changes(), 0
        while not self._stop.has_come():
            child = Popen(self._command)  # noqa: S603  # our own command line
            seen = self._wait_for_a_change(seen)
            if not self._stop.has_come():
                child.terminate()
            exit_code = self._wait_for(child)
        return exit_code

    def _wait_for_a_change(self, seen: dict[str, float]) -> dict[str, float]:
        while (now := self._changes()) == seen and not self._stop.has_come():
            time.sleep(_CHECK_SECONDS)  # noqa: TID251  # this process does nothing else
        return now

    def _wait_for(self, child: Popen[bytes]) -> int:
        while child.poll() is None:
            if number := self._stop.next_to_pass_on():
                child.send_signal(number)
            with suppress(TimeoutExpired):
                child.wait(_CHECK_SECONDS)
        # By the signal itself: it was stopped before it could listen to us.
        return 0 if child.returncode == -signal.SIGTERM else child.returncode

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
