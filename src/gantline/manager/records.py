"""Reading all records of a namespace, page by page."""

from typing import Final

from gantline.contract.records import Record
from gantline.contract.store import JobStore

_PAGE: Final = 1000


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
