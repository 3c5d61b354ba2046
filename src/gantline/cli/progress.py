"""Telling how far long work is: on a terminal in one line that changes, else now and then."""

import sys
from time import monotonic
from typing import Final

import click

from gantline.cli.output import say
from gantline.moving.closing import CopyProgress

_TERMINAL_SECONDS: Final = 0.2
_LOG_SECONDS: Final = 5.0


class ProgressLine:
    """Writes to stderr, so that it is never mixed into data."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._doing = ""
        self._began = self._told_at = 0.0
        self._last: CopyProgress | None = None
        self._written: CopyProgress | None = None

    def tell(self, progress: CopyProgress) -> None:
        now = monotonic()
        if progress.doing != self._doing:
            self.end()
            self._doing, self._began = progress.doing, now
            # What is counted is told when there is something to tell.
            self._told_at = now if progress.done else 0.0
        self._last = progress
        pause = _TERMINAL_SECONDS if self._is_terminal else _LOG_SECONDS
        if now - self._told_at >= pause:
            self._told_at = now
            self._write(progress)

    def end(self) -> None:
        """Say how the last step ended, and leave its line."""
        if self._last is not None and self._last != self._written:
            self._write(self._last)
        if self._is_terminal and self._last is not None:
            click.echo(err=True)
        self._last = None

    def _write(self, progress: CopyProgress) -> None:
        text = self._text(progress)
        self._written = progress
        if self._is_terminal:
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)
        else:
            say(text)

    def _text(self, progress: CopyProgress) -> str:
        text = progress.doing[:1].upper() + progress.doing[1:]
        if not progress.done:
            return f"{text} …"
        of = "" if progress.of is None else f" of {progress.of}"
        seconds = monotonic() - self._began
        rate = f" ({progress.done / seconds:.0f}/s)" if seconds >= 1 else ""
        return f"{text}: {progress.done}{of}{rate}"
