"""Reason: the base of all reasons for which a job waits, and the words they share."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec


class Reason(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="code", tag="REASON"
):
    """One reason. `now` is the time of the store at which it held."""

    @property
    def code(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def facts(self) -> dict[str, Any]:
        """What the sentence says, for programs."""
        facts: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        del facts["code"]
        return facts

    def text(self, now: datetime) -> str:
        """Say it in one or two sentences."""
        raise NotImplementedError

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        """Say what to do, or where to look: each with its command."""
        return ()


def when(instant: datetime, now: datetime) -> str:
    """`2026-11-19 15:04:05 UTC (in 3 min)`."""
    ahead = instant - now
    far = f"in {_length(ahead)}" if ahead > timedelta(0) else f"{_length(-ahead)} ago"
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC ({far})"


def _length(span: timedelta) -> str:
    seconds = span.total_seconds()
    for unit, size, least in (("d", 86400, 2), ("h", 3600, 2), ("min", 60, 2)):
        if seconds >= least * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
