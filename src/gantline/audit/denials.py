"""Denials: repeated refusals become one entry with a count, not a flood of writes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from gantline.audit.chain_writer import choose_chain
from gantline.contract.audit import AuditEntry

_log = logging.getLogger("gantline.audit")

WINDOW_SECONDS: Final = 10.0
_MOST_WINDOWS: Final = 1_000
_MOST_NAMED: Final = 10

Write = Callable[[AuditEntry], Awaitable[Any]]
_Kind = tuple[str, ...]
_REST: Final = ("", "", "", "", "")


class _Window:
    """The repeats of one kind since the entry that was written at once."""

    def __init__(self, first: AuditEntry) -> None:
        self.repeats = 0
        self.since: datetime | None = None
        self.last = first
        self.named: list[str] = []

    def add(self, entry: AuditEntry) -> None:
        self.repeats += 1
        self.since = self.since or entry.at
        self.last = entry
        name = str(entry.job_id or entry.what)
        if name and name not in self.named and len(self.named) < _MOST_NAMED:
            self.named.append(name)

    def summary(self) -> AuditEntry:
        """Return one entry for all: how many, since when, and the first few targets."""
        details = {"count": self.repeats, "since": self.since, "asked": self.named}
        unlike = {"tenant_id": "", "job_id": None, "job_type": "", "subject_id": "", "what": ""}
        return msgspec.structs.replace(self.last, details=details, **unlike)


class Denials:
    """Writes the first denial of a kind at once, and the number of its repeats some seconds later.

    A kind is the actor, his address, the operation and the outcome. When there are so many kinds at
    once that somebody must be inventing them, the rest counts as one kind.
    """

    def __init__(
        self,
        write: Write,
        *,
        window_seconds: float = WINDOW_SECONDS,
        most_windows: int = _MOST_WINDOWS,
    ) -> None:
        self._write = write
        self._window_seconds = window_seconds
        self._most_windows = most_windows
        self._windows: dict[_Kind, _Window] = {}
        self._timers: dict[_Kind, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def add(self, entry: AuditEntry) -> None:
        """Count or write a denial; raise where the first of a kind cannot be written."""
        kind = self._kind_of(entry)
        if kind == _REST:
            entry = _combine(entry)
        if window := self._windows.get(kind):
            window.add(entry)
            return
        self._open(kind, entry)
        try:
            await self._write(entry)
        except BaseException:
            self._end_window(kind)  # with those that came meanwhile
            raise

    async def flush(self) -> None:
        """End all windows now, and wait until their summaries are written."""
        for kind in list(self._windows):
            self._end_window(kind)
        while self._ending:
            await asyncio.wait(self._ending)

    def _kind_of(self, entry: AuditEntry) -> _Kind:
        asked_for = entry.operation or entry.action
        kind = (choose_chain(entry), entry.actor, asked_for, entry.outcome, entry.client)
        is_full = len(self._windows) >= self._most_windows
        return _REST if is_full and kind not in self._windows else kind

    def _open(self, kind: _Kind, entry: AuditEntry) -> None:
        self._windows[kind] = _Window(entry)
        loop = asyncio.get_running_loop()
        self._timers[kind] = loop.call_later(self._window_seconds, self._end_window, kind)

    def _forget(self, kind: _Kind) -> _Window | None:
        if timer := self._timers.pop(kind, None):
            timer.cancel()
        return self._windows.pop(kind, None)

    def _end_window(self, kind: _Kind) -> None:
        window = self._forget(kind)
        if window is None or not window.repeats:
            return
        task = asyncio.create_task(self._write_summary(window))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _write_summary(self, window: _Window) -> None:
        """Log a failure: nobody waits for this write, and the first of the kind is written."""
        try:
            await self._write(window.summary())
        except Exception as error:
            entry = window.last
            _log.error(
                "%d more denials of %s to %r could not be audited: %s",
                window.repeats,
                entry.operation or entry.action,
                entry.actor,
                error,
            )


def _combine(entry: AuditEntry) -> AuditEntry:
    """Return an entry for all kinds beyond the limit, in the installation's own chain."""
    return AuditEntry(at=entry.at, actor="", action="many", outcome=entry.outcome)
