"""Numbering events: committed log rows get numbers, so that no cursor can skip a late commit."""

from typing import Final

from gantline.contract.store import JobStore

_BATCH: Final = 1000


async def number_events(store: JobStore) -> int:
    """Number what has been committed. Does nothing where a store numbers at commit itself."""
    numbered = 0
    while (step := await store.sequence(limit=_BATCH)) == _BATCH:
        numbered += step
    return numbered + step
