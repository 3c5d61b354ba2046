"""Reading all records of a namespace, page by page; and one that is made only once."""

from typing import Final

from gantline.contract.records import Record, RecordWrite
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


async def made_once(store: JobStore, namespace: str, value: bytes) -> bytes:
    """The only record of a namespace; whoever asks first makes it, of `value`."""
    if not (found := await store.read_records(namespace, limit=1)):
        await store.write_records([RecordWrite(namespace, "id", value, expected=0)])
        found = await store.read_records(namespace, limit=1)
    return found[0].value
