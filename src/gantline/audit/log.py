"""An audit sink that keeps nothing: one structured log line per entry."""

import logging
from typing import Final

import msgspec

from gantline.contract.audit import AuditEntry

_log = logging.getLogger("gantline.audit")
_REFUSED: Final = frozenset({"forbidden", "hidden", "unauthenticated"})


class AuditLog:
    """Write entries to the logger `gantline.audit`, as JSON; the entry is in `record.audit` too.

    JSON, so that what callers chose (a correlation id) cannot start a line of its own.
    """

    async def record(self, entry: AuditEntry) -> None:
        level = logging.WARNING if entry.outcome in _REFUSED else logging.INFO
        _log.log(level, "%s", msgspec.json.encode(entry).decode(), extra={"audit": entry})
