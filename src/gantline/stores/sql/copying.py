"""Pages of what a SQL store holds."""

from collections.abc import Sequence

import msgspec

from gantline.contract.stored import Dumped, Stored
from gantline.stores.sql.rows import Row


def page_of(items: Sequence[Stored], rows: Sequence[Row], names: int, limit: int) -> Dumped:
    """Each row begins with the columns that it is found by."""
    is_last = len(rows) < limit
    return Dumped(tuple(items), "" if is_last else msgspec.json.encode(rows[-1][:names]).decode())
