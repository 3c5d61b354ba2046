"""The signals that ask a process with children to stop."""

import signal
from types import FrameType


class StopSignals:
    """Count them, and leave the acting to the main loop.

    A signal can come at any moment, also when a child runs that nobody has noted down yet.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._passed_on = 0

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._count)

    def _count(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1

    def has_come(self) -> bool:
        return self._asked > 0

    def next_to_pass_on(self) -> signal.Signals | None:
        """What to send to the children now, if anything.

        First SIGTERM, which is quiet in a child that has just begun; then SIGINT, since two of a
        kind may arrive as one.
        """
        if self._passed_on == self._asked:
            return None
        self._passed_on += 1
        return signal.SIGTERM if self._passed_on == 1 else signal.SIGINT
