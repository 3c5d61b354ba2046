"""Outages in the log: one warning when hints cannot get through, one line when they can again."""

import logging

_log = logging.getLogger("gantline.wakeup")


class Outage:
    """What cannot get through now: listening, sending or both."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._broken: set[str] = set()

    def begin(self, side: str, error: Exception) -> None:
        if not self._broken:
            cause = next(iter(str(error).splitlines()), "") or type(error).__name__
            _log.warning("no %s for now, only polling: %s", self._what, cause)
        self._broken.add(side)

    def end(self, *sides: str) -> None:
        if self._broken and self._broken <= set(sides):
            _log.info("%s are back", self._what)
        self._broken.difference_update(sides)
