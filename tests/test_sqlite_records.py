"""Records of a prefix are found by the index alone."""

import sqlite3
from contextlib import closing
from pathlib import Path

from gantline.contract.clock import SystemClock
from gantline.stores import store_from_url
from gantline.stores.sqlite.records import _WITHIN


async def test_a_prefix_is_a_range_of_the_index(tmp_path: Path) -> None:
    """A filter would go on reading to the end of the namespace, behind the last that matches."""
    store = store_from_url(f"sqlite:///{tmp_path}/records.db", clock=SystemClock())
    await store.open()
    await store.close()
    with closing(sqlite3.connect(tmp_path / "records.db")) as connection:
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN {_WITHIN}", ("audit", "a/", "", 0, "a0", 10)
        ).fetchall()
    (step,) = [row[3] for row in plan]
    assert step.endswith("(namespace=? AND key>? AND key<?)"), step
