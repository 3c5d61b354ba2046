"""Switches: which queues and types are paused or capped, which types are off, and whether the store
is closed altogether. Kept as records."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from gantline.contract.errors import StoreClosed
from gantline.contract.records import Record, RecordWrite
from gantline.contract.store import JobStore
from gantline.manager.records import LastRead

SWITCHES: Final = "switches"
CLOSED: Final = "closed"
_PAUSED_QUEUE: Final = "paused-queue/"
_PAUSED_TYPE: Final = "paused-type/"
_DISABLED_TYPE: Final = "disabled-type/"
_DEPTH_CAP: Final = "depth-cap/"
_TENANT_DEPTH_CAP: Final = "tenant-depth-cap/"


class Closed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Why a store takes no jobs and gives none: a copy is under way, or was its last."""

    copied_from: str
    copied_to: str
    """Both as people know them, without secrets."""
    copy: str
    """The id of the copy; a copy that is begun anew has another."""
    by: str
    since: datetime
    has_moved: bool = False
    """The jobs live elsewhere now, whatever is still here."""


class Switches:
    """The switches as last read."""

    def __init__(self, store: JobStore, *, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when one was changed here, to notify the workers."""
        self._store = store
        self._changed = changed
        self._records = LastRead(store, SWITCHES, self._keep)
        self.invalidate = self._records.invalidate

    async def refresh(self, *, max_age_seconds: float = 1.0) -> None:
        """Read them anew, unless that was done not so long ago."""
        await self._records.refresh(max_age_seconds=max_age_seconds)

    def _keep(self, records: Sequence[Record]) -> None:
        keys = [record.key for record in records]
        closing = [record.value for record in records if record.key == CLOSED]
        self.closed = msgspec.json.decode(closing[0], type=Closed) if closing else None
        self.paused_queues = _those_with(_PAUSED_QUEUE, keys)
        self.paused_types = _those_with(_PAUSED_TYPE, keys)
        self.disabled_types = _those_with(_DISABLED_TYPE, keys)
        self.depth_caps = _numbers(_DEPTH_CAP, records)
        """How many jobs may wait in a queue, for those that have a limit."""
        self.tenant_depth_caps = _numbers(_TENANT_DEPTH_CAP, records)
        """The same for the jobs of each tenant."""
        self.capped_queues = self.depth_caps.keys() | self.tenant_depth_caps.keys()

    async def refuse_if_closed(self) -> None:
        """Raise StoreClosed."""
        await self.refresh()
        if self.closed is not None:
            raise self.refusal

    @property
    def refusal(self) -> StoreClosed:
        """Why nothing of a closed store is run, and what to do."""
        if self.closed is not None and self.closed.has_moved:
            return StoreClosed(
                "The store is closed, for its jobs were moved to another one.",
                next_step="Use that one; `gantline doctor` shows where it is.",
            )
        return StoreClosed(
            "The store is closed, for its jobs are being moved to another one.",
            next_step="Try again later.",
        )

    def running(self, job_types: tuple[str, ...]) -> tuple[str, ...]:
        """The types of these that are not paused; none where the store is closed."""
        if self.closed is not None:
            return ()
        paused = self.paused_types
        return tuple(kind for kind in job_types if kind not in paused) if paused else job_types

    async def pause_queue(self, queue: str, *, paused: bool = True) -> None:
        """Claim nothing more from a queue; what runs goes on."""
        await self._set(_PAUSED_QUEUE + queue, paused)

    async def pause_type(self, job_type: str, *, paused: bool = True) -> None:
        await self._set(_PAUSED_TYPE + job_type, paused)

    async def disable_type(self, job_type: str, *, disabled: bool = True) -> None:
        """The kill switch: refuse new jobs of a type, and fail those that would run."""
        await self._set(_DISABLED_TYPE + job_type, disabled)

    async def cap_queue(
        self, queue: str, max_depth: int | None, *, per_tenant: int | UnsetType | None = UNSET
    ) -> None:
        """Refuse new jobs while this many wait in a queue; None takes the limit away.

        `per_tenant`: so many of each tenant; where it is not given, that stays as it is.
        """
        for prefix, most in ((_DEPTH_CAP, max_depth), (_TENANT_DEPTH_CAP, per_tenant)):
            if most is not UNSET:
                await self._put(prefix + queue, None if most is None else b"%d" % most)

    async def _set(self, key: str, on: bool) -> None:
        await self._put(key, b"true" if on else None)

    async def _put(self, key: str, value: bytes | None) -> None:
        await self._store.write_records([RecordWrite(SWITCHES, key, value)])
        self._changed()
        await self.refresh(max_age_seconds=0)


def _numbers(prefix: str, records: Sequence[Record]) -> dict[str, int]:
    return {
        record.key.removeprefix(prefix): msgspec.json.decode(record.value, type=int)
        for record in records
        if record.key.startswith(prefix)
    }


def _those_with(prefix: str, keys: Sequence[str]) -> frozenset[str]:
    return frozenset(key.removeprefix(prefix) for key in keys if key.startswith(prefix))
