"""The reloader: runs a child and starts it again when a Python file below a folder changes."""

import os
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Final

from gantline.cli.supervision.children import (
    GRACE,
    Escalation,
    ParentPipe,
    StopSignals,
    exit_code_of,
    send,
)
from gantline.cli.talk import Say, say

_CHECK_SECONDS: Final = 0.5
_PASSED_OVER: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


class Reloader:
    """For development only: one child, ended and started again on every change."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        *,
        drain: timedelta,
        grace: timedelta = GRACE,
        report: Say = say,
    ) -> None:
        self._folder = folder
        self._command = list(command)
        self._drain = drain
        self._grace = grace
        self._report = report
        self._stop = StopSignals()

    def run(self) -> int:
        """Run the child until a signal comes; return 0 when it then has ended well."""
        self._stop.listen()
        seen, exit_code = self._changes(), 0
        with closing(ParentPipe()) as pipe:
            while not self._stop.count:
                child = pipe.start(self._command)
                seen = self._wait_for_a_change(seen, child)
                exit_code = self._end(child)
        return exit_code

    def _wait_for_a_change(self, seen: dict[str, float], child: Popen[bytes]) -> dict[str, float]:
        has_ended = False
        while (now := self._changes()) == seen and not self._stop.count:
            if not has_ended and child.poll() is not None:
                has_ended = True
                self._report("Waiting for a change of the code. Press Ctrl-C to stop.")
            time.sleep(_CHECK_SECONDS)  # noqa: TID251  # this process does nothing else
        if changed := {path for path, _ in now.items() ^ seen.items()}:
            name = os.path.relpath(min(changed), self._folder)
            self._report(f"{name} has changed: restarting.")
        return now

    def _end(self, child: Popen[bytes]) -> int:
        escalation = Escalation(self._drain, grace=self._grace)
        by_a_change = 0 if self._stop.count else 1
        while child.poll() is None:
            if number := escalation.next_signal(asked=by_a_change + self._stop.count):
                send(child, number)
            with suppress(TimeoutExpired):
                child.wait(_CHECK_SECONDS)
        return exit_code_of(child)

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
