"""The sequencer: numbers committed log rows, so that no reader's cursor can skip a late commit."""

from typing import Final

from gantline.contract.store import JobStore

_BATCH: Final = 1000


class Sequencer:
    """Number what has been committed. Does nothing where a store numbers at commit itself."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def run_once(self) -> int:
        numbered = step = await self._store.sequence(limit=_BATCH)
        while step == _BATCH:
            step = await self._store.sequence(limit=_BATCH)
            numbered += step
        return numbered
