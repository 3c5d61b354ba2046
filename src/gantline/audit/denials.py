"""Denials: repeated refusals become one entry with a count, not a flood of writes."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from gantline.audit.chain_writer import choose_chain
from gantline.contract.audit import AuditEntry

_log = logging.getLogger("gantline.audit")

WINDOW_SECONDS: Final = 10.0
_MOST_KINDS: Final = 200
_MOST_NAMED: Final = 10
_MANY: Final = "many"

Write = Callable[[AuditEntry], Awaitable[Any]]


class _Kind(NamedTuple):
    """Denials that are alike."""

    chain: str
    actor: str
    asked_for: str
    outcome: str
    client: str

    @property
    def of_actor(self) -> "_Kind":
        """Everything that the actor is refused with this outcome."""
        return self._replace(asked_for=_MANY, client="")


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

    def summary(self, kind: _Kind) -> AuditEntry:
        """Return one entry for all: how many, since when, and the first few targets."""
        details = {"count": self.repeats, "since": self.since, "asked": self.named}
        unlike = {"tenant_id": "", "job_id": None, "job_type": "", "subject_id": "", "what": ""}
        if kind.asked_for == _MANY:
            unlike |= {"action": _MANY, "operation": "", "client": "", "correlation_id": ""}
        return msgspec.structs.replace(self.last, details=details, **unlike)


class Denials:
    """Writes the first denial of a kind at once, and the number of its repeats some seconds later.

    A kind is the actor, his address, the operation and the outcome. Each chain has a budget of
    kinds at once, also the installation's, in which callers are who are not known: so nobody's
    denials hide those of another tenant. Beyond it, all that one actor is refused with one outcome
    is one kind.
    """

    def __init__(
        self,
        write: Write,
        *,
        window_seconds: float = WINDOW_SECONDS,
        most_kinds: int = _MOST_KINDS,
    ) -> None:
        self._write = write
        self._window_seconds = window_seconds
        self._most_kinds = most_kinds
        self._windows: dict[_Kind, _Window] = {}
        self._used = Counter[str]()
        self._timers: dict[_Kind, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def add(self, entry: AuditEntry) -> None:
        """Count or write a denial; raise where the first of a kind cannot be written."""
        kind = self._kind_of(entry)
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
        kind = _Kind(
            chain=choose_chain(entry),
            actor=entry.actor,
            asked_for=entry.operation or entry.action,
            outcome=entry.outcome,
            client=entry.client,
        )
        is_full = self._used[kind.chain] >= self._most_kinds
        return kind.of_actor if is_full and kind not in self._windows else kind

    def _open(self, kind: _Kind, entry: AuditEntry) -> None:
        self._windows[kind] = _Window(entry)
        self._used[kind.chain] += 1
        loop = asyncio.get_running_loop()
        self._timers[kind] = loop.call_later(self._window_seconds, self._end_window, kind)

    def _forget(self, kind: _Kind) -> _Window | None:
        if timer := self._timers.pop(kind, None):
            timer.cancel()
        if window := self._windows.pop(kind, None):
            self._used[kind.chain] -= 1
            if not self._used[kind.chain]:
                del self._used[kind.chain]
        return window

    def _end_window(self, kind: _Kind) -> None:
        window = self._forget(kind)
        if window is None or not window.repeats:
            return
        task = asyncio.create_task(self._write_summary(window, window.summary(kind)))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _write_summary(self, window: _Window, summary: AuditEntry) -> None:
        """Log a failure: nobody waits for this write, and the first of the kind is written."""
        try:
            await self._write(summary)
        except Exception as error:
            _log.error(
                "%d more denials of %s to %r could not be audited: %s",
                window.repeats,
                summary.operation or summary.action,
                summary.actor,
                error,
            )
