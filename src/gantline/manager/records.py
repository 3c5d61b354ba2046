"""Reading all records of a namespace, page by page, or as last read; one that is made only once."""

from collections.abc import Callable, Sequence
from typing import Final

from gantline.contract.records import Record, RecordWrite
from gantline.contract.store import JobStore
from gantline.runtime import monotonic

_PAGE: Final = 1000


class LastRead:
    """The records of a namespace as they were last read, for what is read at every claim."""

    def __init__(
        self, store: JobStore, namespace: str, keep: Callable[[Sequence[Record]], None]
    ) -> None:
        """`keep` is given them whenever they were read; none at first."""
        self._store = store
        self._namespace = namespace
        self._keep = keep
        self._read_at: float | None = None
        self._invalidations = 0
        keep(())

    async def refresh(self, *, max_age_seconds: float) -> None:
        """Read them anew, unless that was done not so long ago."""
        before, now, invalidations = self._read_at, monotonic(), self._invalidations
        if before is not None:
            if now - before < max_age_seconds:
                return
            self._read_at = now  # callers meanwhile use what is known
        try:
            records = await all_records(self._store, self._namespace)
        except BaseException:
            self._read_at = before
            raise
        self._keep(records)
        self._read_at = monotonic() if invalidations == self._invalidations else None

    def invalidate(self) -> None:
        """One was changed elsewhere: read them at the next `refresh`, however young they are."""
        self._invalidations += 1
        self._read_at = None


async def all_records(store: JobStore, namespace: str) -> list[Record]:
    """Every record of a namespace, however many there are."""
    found: list[Record] = []
    while page := await store.read_records(
        namespace, after=found[-1].key if found else "", limit=_PAGE
    ):
        found += page
        if len(page) < _PAGE:
            break
    return found


async def made_once(store: JobStore, namespace: str, value: bytes) -> bytes:
    """The only record of a namespace; whoever asks first makes it, of `value`."""
    if not (found := await store.read_records(namespace, limit=1)):
        await store.write_records([RecordWrite(namespace, "id", value, expected=0)])
        found = await store.read_records(namespace, limit=1)
    return found[0].value
