"""The one place that writes: data to stdout, what is said to people to stderr.

Texts come from tenants too. Nothing here lets one steer the terminal of whoever reads it.
"""

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Final

import click

from gantline.app.settings import Settings
from gantline.moving.closing import CopyProgress
from gantline.runtime import monotonic
from gantline.telemetry.logs import TEXT, configure_logs
from gantline.telemetry.printable import printable, printable_json

NOTICE_AFTER_SECONDS = 2.0
_TERMINAL_SECONDS: Final = 0.2
_LOG_SECONDS: Final = 5.0

Say = Callable[[str], None]


def say(text: str, *, nl: bool = True) -> None:
    """Talk to the person; never mixed into data."""
    click.echo(printable(text), err=True, nl=nl)


def say_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say what ends the process unexpectedly, as Python itself would."""
    say("".join(traceback.format_exception(kind, error, trace)), nl=False)


def write(text: str, *, bold: bool = False, nl: bool = True) -> None:
    """Print a text as data."""
    shown = printable(text)
    click.echo(click.style(shown, bold=True) if bold else shown, nl=nl)


def write_json(text: str, *, nl: bool = True) -> None:
    """Print JSON as data."""
    click.echo(printable_json(text), nl=nl)


def _say_over(text: str) -> None:
    """Talk in the line of a terminal that was written last."""
    click.echo("\r\x1b[K", err=True, nl=False)
    say(text, nl=False)


def counted(number: int, what: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def log_as(settings: Settings, log_format: str | None, level: str, *, text: str = TEXT) -> Say:
    """Set the log up; return how to talk to people, which in JSON is the log as well."""
    chosen = log_format or settings.choice("log_format", "text", "json")
    configure_logs(chosen, level, text=text)
    return logging.getLogger("gantline.cli").info if chosen == "json" else say


@contextmanager
def notice_when_slow(label: str, patience: timedelta, *, report: Say = say) -> Iterator[None]:
    """Say after a while what is being waited for, and how long it will still be tried."""
    left = patience.total_seconds() - NOTICE_AFTER_SECONDS
    if left <= 0:
        yield
        return
    notice = f"Waiting for {label}, which does not answer; trying for {left:.0f} s more."
    timer = asyncio.get_running_loop().call_later(NOTICE_AFTER_SECONDS, report, notice)
    try:
        yield
    finally:
        timer.cancel()


class ProgressLine:
    """How far long work is: on a terminal in one line that changes, else now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._doing = ""
        self._began = self._reported_at = 0.0
        self._last: CopyProgress | None = None
        self._written: CopyProgress | None = None

    def report(self, progress: CopyProgress) -> None:
        now = monotonic()
        if progress.doing != self._doing:
            self.end()
            self._doing, self._began = progress.doing, now
            # A step that counts is written after a pause, any other at once.
            self._reported_at = now if progress.done else 0.0
        self._last = progress
        pause = _TERMINAL_SECONDS if self._is_terminal else _LOG_SECONDS
        if now - self._reported_at >= pause:
            self._reported_at = now
            self._write(progress)

    def end(self) -> None:
        """Say how the last step ended, and leave its line."""
        if self._last is not None and self._last != self._written:
            self._write(self._last)
        if self._is_terminal and self._last is not None:
            say("")
        self._last = None

    def _write(self, progress: CopyProgress) -> None:
        text = self._text(progress)
        self._written = progress
        if self._is_terminal:
            _say_over(text)
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


class LastLine:
    """A line that says how things stand: on a terminal it is written over, else one follows."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._is_begun = False

    def write(self, text: str) -> None:
        if self._is_terminal:
            _say_over(text)
            self._is_begun = True
        else:
            say(text)

    def end(self) -> None:
        """Leave the line."""
        if self._is_begun:
            say("")
        self._is_begun = False
