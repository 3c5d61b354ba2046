"""A pipe that children have in common with their parent: it ends when the parent does.

The parent alone has its writing end, so the kernel closes it whatever the parent dies of.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from subprocess import Popen
from typing import Any, Final

from gantline.cli.supervision.stop_signals import Escalation

PARENT_PIPE: Final = "--parent-pipe"
_CHECK_SECONDS: Final = 0.2

_log = logging.getLogger("gantline.worker")


class ParentPipe:
    """The parent's side. Nothing is ever written."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def start(self, command: Sequence[str], **options: Any) -> Popen[bytes]:
        """Start a child that has the reading end, and is given its number as an option."""
        return Popen(  # noqa: S603  # our own command line
            [*command, PARENT_PIPE, str(self._reading)], pass_fds=(self._reading,), **options
        )

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


def stop_with_parent(pipe: int, drain: Callable[[], timedelta]) -> None:
    """In a child: once the parent is gone, stop as if it had asked, and end in any case.

    It is a thread that sends signals to its own process. So it works at any moment: also before
    there is an event loop, and when that loop is blocked.
    """
    os.set_inheritable(pipe, False)  # programs that handlers start have no use for it
    threading.Thread(
        target=_stop_when_it_ends, args=(pipe, drain), name="gantline-parent-pipe", daemon=True
    ).start()


def _stop_when_it_ends(pipe: int, drain: Callable[[], timedelta]) -> None:
    while os.read(pipe, 1):
        pass
    _log.warning("the process that started this one is gone: stopping")
    escalation = Escalation(drain())
    while True:
        if number := escalation.next_signal(asked=1):
            os.kill(os.getpid(), number)
        time.sleep(_CHECK_SECONDS)  # noqa: TID251  # a thread of its own
