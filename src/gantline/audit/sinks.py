"""Audit sinks: the hash chain in the store, with a log line beside; or the log line alone."""

import logging
from typing import Any, Final

import msgspec

from gantline.audit.chain_writer import ChainWriter, build_event, choose_chain
from gantline.audit.denials import WINDOW_SECONDS, Denials
from gantline.contract.audit import ALLOWED, AuditEntry
from gantline.contract.store import JobStore

_log = logging.getLogger("gantline.audit")
_REFUSED: Final = frozenset({"forbidden", "hidden", "unauthenticated"})


class AuditLog:
    """Write entries to the logger `gantline.audit`, as JSON; the entry is in `record.audit` too.

    JSON, so that what callers chose (a correlation id) cannot start a line of its own.
    """

    async def record(self, entry: AuditEntry) -> None:
        level = logging.WARNING if entry.outcome in _REFUSED else logging.INFO
        _log.log(level, "%s", msgspec.json.encode(entry).decode(), extra={"audit": entry})


class StoreAudit:
    """Keeps entries in the chains of a store, and logs each.

    What was allowed is durable when `record` returns, or `record` raises and it is not done.
    Repeated refusals are counted; see `Denials`.
    """

    def __init__(self, store: JobStore, *, window_seconds: float = WINDOW_SECONDS) -> None:
        self._log = AuditLog()
        self._writer = ChainWriter(store)
        self._denials = Denials(self._append, window_seconds=window_seconds)

    async def record(self, entry: AuditEntry) -> None:
        await self._log.record(entry)
        if entry.outcome == ALLOWED:
            await self._append(entry)
        else:
            await self._denials.add(entry)

    async def close(self) -> None:
        """Write the refusals that are still being counted."""
        await self._denials.flush()
        await self._writer.drain()

    async def _append(self, entry: AuditEntry) -> Any:
        return await self._writer.append(choose_chain(entry), build_event(entry))
